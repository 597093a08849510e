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
import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1

_EXAMPLES = int(os.environ.get("SKIPPED_STEPS_EXAMPLES", "16"))

_FIRST = int(os.environ.get("SKIPPED_STEPS_FIRST", "0"))

_SHAPES = [(), (2,), (3, 2), (1, 1), (150, 120)]


class Program:
  """A training program in a graph, the same for each seed."""

  def __init__(self, seed: int, module) -> None:
    rng = random.Random(seed)
    self.mode = rng.choice(["graph_v1"] * 3 + ["graph_v2"])
    self.use_resource = rng.random() < 0.6
    # TensorFlow's own takes reference variables in v1 graphs alone.
    if not self.use_resource and module is helpers.OWN:
      self.mode = "graph_v1"
    self.shapes = [rng.choice(_SHAPES) for _ in range(rng.randint(1, 3))]
    self.clip = rng.random() < 0.4
    self.feeds_clipped = self.clip and rng.random() < 0.5
    self.sparse = [rng.random() < 0.2 and len(s) > 1 for s in self.shapes]
    self.config = random_optimizers.session_config(rng)
    self.steps = [
      [
        rng.choice([1.0, -2.0, 0.5, 0.0, 1e20])
        if rng.random() < 0.75
        else rng.choice([math.inf, -math.inf, math.nan])
        for _ in self.shapes
      ]
      for _ in range(5)
    ]
    self._build(module, rng.randrange(2**32))

  def _build(self, module, seed: int) -> None:
    with helpers.mode_scope(self.mode) as graph:
      variables = [
        tf1.get_variable(
          f"v{i}",
          shape,
          initializer=tf1.constant_initializer(1.0 + i),
          use_resource=self.use_resource,
        )
        for i, shape in enumerate(self.shapes)
      ]
      # If gradients are fed, placeholders are not. Some rewrites then keep ops
      # that read placeholders, so the placeholders have defaults.
      self.feeds = [
        tf1.placeholder_with_default(np.ones(shape, np.float32), shape)
        for shape in self.shapes
      ]
      self.inner = random_optimizers.RandomOptimizer(
        seed, self.shapes, self.use_resource
      )
      step = tf1.get_variable(
        "step",
        [],
        tf.int64,
        tf1.zeros_initializer(),
        trainable=False,
        use_resource=self.use_resource,
      )
      self.opt = module.MixedPrecisionLossScaleOptimizer(
        self.inner, module.DynamicLossScale(8, 2)
      )
      loss = tf.add_n(
        [
          tf.reduce_sum((tf.gather(v, [0]) if sparse else v) * g)
          for v, g, sparse in zip(variables, self.feeds, self.sparse)
        ]
      )
      grads = [g for g, _ in self.opt.compute_gradients(loss, variables)]
      if self.clip:
        grads, _ = tf.clip_by_global_norm(grads, 100.0)
      if self.feeds_clipped and not any(self.sparse):
        self.feeds = grads
      self.train = self.opt.apply_gradients(
        zip(grads, variables), global_step=step
      )
      self.state = {v.op.name: v for v in tf1.global_variables()}
      self.session = tf1.Session(graph=graph, config=self.config)
      with graph.as_default():
        self.session.run(tf1.global_variables_initializer())

  def step(self, values):
    """Runs a step in which one element of each gradient is a given value."""
    fed = {}
    for feed, shape, value in zip(self.feeds, self.shapes, values):
      fed[feed] = np.full(shape, 0.25, np.float32)
      fed[feed].flat[-1 if shape else 0] = value
    self.session.run(self.train, fed)

  def read(self):
    """Returns name -> value of everything that a step can change."""
    state, sizes = self.session.run([self.state, self.inner.sizes])
    return {
      **state,
      "sizes": np.array(sizes),
      "calls": np.array(len(self.inner.calls)),
    }


def run(program):
  """Returns the state at first and after each step."""
  states = [program.read()]
  for values in program.steps:
    program.step(values)
    states.append(program.read())
  return states


@pytest.mark.parametrize("seed", range(_FIRST, _FIRST + _EXAMPLES))
def test_a_skipped_step_leaves_nothing(seed):
  program, own = Program(seed, tfl), Program(seed, helpers.OWN)
  with np.errstate(all="ignore"), program.session, own.session:
    states, expected = run(program), run(own)
  for values, before, after in zip(program.steps, states, states[1:]):
    if not np.isfinite(values).all():
      for name, value in after.items():
        if name not in ("current_loss_scale", "good_steps"):
          assert value.tobytes() == before[name].tobytes(), (name, value)
  for state, expected_state in zip(states, expected, strict=True):
    helpers.assert_same_state(state, expected_state)


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
  with helpers.mode_scope(mode) as graph:
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
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(1.0), tfl.DynamicLossScale(8, 1)
    )
    train = opt.apply_gradients([(grad, v)])
    initialize = tf1.global_variables_initializer()
    scale = opt.loss_scale()
  with tf1.Session(graph=graph) as session:
    session.run(initialize)
    fed = np.zeros([size], np.float32)
    for bad, expected in ((math.nan, 4), (math.inf, 2), (1.0, 4)):
      before = session.run(v)
      fed[1] = bad
      session.run(train, {grad: fed})
      assert session.run(scale) == expected
      assert (session.run(v)[1] == before[1]) == (not math.isfinite(bad))


if __name__ == "__main__":
  helpers.main()
