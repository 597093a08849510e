# SPDX-License-Identifier: Apache-2.0
"""Tests that a skipped step changes nothing, whatever the inner optimizer does.

16 random optimizers by default, always the same ones. For more:

  SKIPPED_STEPS_EXAMPLES=2000 make test
"""

import math
import os
import random

import helpers
import numpy as np
import pytest
import random_optimizers
from scaled_optimizers import dynamic
from scaled_optimizers import wrap
import tensorflow as tf
import trainers

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1

_EXAMPLES = int(os.environ.get("SKIPPED_STEPS_EXAMPLES", "16"))
_SHAPES = [(), (2,), (3, 2), (1, 1), (150, 120)]


class Program(trainers.Trainer):
  """A training program in a graph, the same for each seed."""

  def __init__(self, seed: int, module) -> None:
    rng = random.Random(seed)
    mode = rng.choice(["graph_v1"] * 3 + ["graph_v2"])
    use_resource = rng.random() < 0.6
    # TensorFlow's own takes reference variables in v1 graphs alone.
    if not use_resource and module is helpers.OWN:
      mode = "graph_v1"
    shapes = [rng.choice(_SHAPES) for _ in range(rng.randint(1, 3))]
    specs = tuple(
      trainers.Spec(shape, kind=rng.choice(["sparse"] + ["dense"] * 4))
      if len(shape) > 1
      else trainers.Spec(shape)
      for shape in shapes
    )
    config = random_optimizers.session_config(rng)
    self.grads = [
      [
        rng.choice([1.0, -2.0, 0.5, 0.0, 1e20])
        if rng.random() < 0.75
        else rng.choice([math.inf, -math.inf, math.nan])
        for _ in shapes
      ]
      for _ in range(5)
    ]

    def make():
      self.inner = random_optimizers.RandomOptimizer(seed, shapes, use_resource)
      return module.MixedPrecisionLossScaleOptimizer(
        self.inner, module.DynamicLossScale(8, 2)
      )

    super().__init__(
      mode, make, specs, use_resource=use_resource, config=config
    )

  def _state_variables(self):
    return {v.op.name: v for v in tf1.global_variables()}

  def read(self):
    """Returns name -> value of everything that a step can change."""
    sizes = self.session.run(self.inner.sizes)
    effects = {"sizes": np.array(sizes), "calls": len(self.inner.calls)}
    return {**self.state(), **{k: np.asarray(v) for k, v in effects.items()}}

  def run(self):
    """Returns what `read` returns at first and after each step."""
    states = [self.read()]
    for values in self.grads:
      # One element of each gradient is the value.
      arrays = [np.full(spec.fed, 0.25) for spec in self.specs]
      for array, value in zip(arrays, values):
        array.flat[-1] = value
      self.step(*arrays)
      states.append(self.read())
    return states


@pytest.mark.parametrize("seed", range(_EXAMPLES))
def test_a_skipped_step_leaves_nothing(seed):
  with np.errstate(all="ignore"):
    with Program(seed, helpers.OWN) as own:
      expected = own.run()
    with Program(seed, tfl) as program:
      states = program.run()
  for values, before, after in zip(program.grads, states, states[1:]):
    if not np.isfinite(values).all():
      for name, value in after.items():
        if name not in ("current_loss_scale", "good_steps"):
          assert value.tobytes() == before[name].tobytes(), (name, value)
  for state, expected_state in zip(states, expected, strict=True):
    trainers.assert_same_state(state, expected_state)


@pytest.mark.parametrize(
  ("mode", "size", "through", "use_resource"),
  helpers.pairs(
    helpers.GRAPH_MODES,
    [2, 20_000],
    ["clip", "product", "norm", "constant"],
    [True, False],
  ),
)
def test_a_gradient_that_is_fed_is_looked_at(mode, size, through, use_resource):
  """Programs that accumulate gradients outside of TensorFlow feed them."""
  with helpers.mode_scope(mode), tf1.Session() as session:
    v = tf1.get_variable("v", [size], use_resource=use_resource)
    x = tf.random.uniform([size])
    if through == "clip":
      (grad,), _ = tf.clip_by_global_norm([x], 1.0)
    elif through == "constant":
      grad = tf.zeros([size])
    elif through == "product":
      grad = x * tf.random.uniform([])
      tf.nn.l2_loss(x)
    else:
      grad = tf.identity(x)
      tf.linalg.global_norm([grad])
    opt = wrap(dynamic(8, 1))()
    train = opt.apply_gradients([(grad, v)])
    scale = opt.loss_scale()
    session.run(tf1.global_variables_initializer())
    fed = np.zeros([size], np.float32)
    for bad, expected in ((math.nan, 4), (math.inf, 2), (1.0, 4)):
      before = session.run(v)
      fed[1] = bad
      session.run(train, {grad: fed})
      assert session.run(scale) == expected
      assert (session.run(v)[1] == before[1]) == (not math.isfinite(bad))
