# SPDX-License-Identifier: Apache-2.0
"""Tests `accumulate` against one step with the mean, and against NumPy."""

import dataclasses
import itertools
import math
import os

import helpers
from helpers import GRAPH_MODES
from helpers import MODES
from helpers import Spec
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import loss_scale_optimizer

tf1 = tf.compat.v1
_WINDOWS = int(os.environ.get("ACCUMULATION_WINDOWS", "15"))
_SPECS = (
  Spec(),
  Spec((3, 2), kind="sparse"),
  Spec(kind="float16"),
  Spec(dtype="float16"),
  Spec(dtype="float64"),
  Spec(kind="none"),
)
# Sums are dense, and no sum is of float16.
_DENSE = tuple(
  dataclasses.replace(spec, kind="none" if spec.kind == "none" else "dense")
  for spec in _SPECS
)
_BAD = (math.inf, -math.inf, math.nan)


def dynamic(inner):
  """Returns an optimizer with a dynamic loss scale."""
  scale = tfl.DynamicLossScale(8, 2)
  return tfl.MixedPrecisionLossScaleOptimizer(inner, scale)


def random_micro_batches(rng, steps, specs):
  """Returns gradients, whose sums are exact, for each micro-batch."""
  bad_share = rng.choice([0.0, 0.3, 0.9], p=[0.6, 0.3, 0.1])
  batches = []
  for _ in range(steps):
    grads = [rng.integers(-8, 9, spec.fed) / 8.0 for spec in specs]
    if rng.random() < bad_share:
      grad = grads[rng.integers(len([x for x in specs if x.kind != "none"]))]
      grad.flat[rng.integers(grad.size)] = rng.choice(_BAD)
    batches.append(grads)
  return batches


def comparable(trainer):
  """Returns the state of training without loss scale and window."""
  return {
    name.split("/")[-1] if "power" in name else name: value
    for name, value in trainer.state().items()
    if "accumul" not in name
    and name not in ("current_loss_scale", "good_steps")
  }


def is_finite(grads):
  return all(np.isfinite(grad).all() for grad in grads)


@pytest.mark.parametrize(
  ("mode", "steps", "use_resource"),
  helpers.pairs(
    MODES,
    [1, 3, 4],
    [True, False],
    allowed=lambda row: row[2] or row[0] in GRAPH_MODES,
  ),
)
def test_as_one_step_with_the_mean(mode, steps, use_resource):
  rng = np.random.default_rng(steps)
  windows = [random_micro_batches(rng, steps, _SPECS) for _ in range(_WINDOWS)]
  inner = helpers.INNER["adam"]
  make = lambda: tfl.accumulate(dynamic(inner()), steps)  # noqa: E731
  plain = lambda: tfl.MixedPrecisionLossScaleOptimizer(inner(), 1)  # noqa: E731
  states, scales, scale = [], [8.0], tfl.DynamicLossScale(8, 2)
  for batches in windows:
    is_good = all(map(is_finite, batches))
    scale.update([tf.constant(0.0 if is_good else math.nan)])
    scales.append(float(scale()))
  with helpers.Trainer(mode, make, _SPECS, use_resource=use_resource) as ours:
    for batches, (scale, next_scale) in zip(
      windows, itertools.pairwise(scales)
    ):
      before = ours.state()
      for grads in batches:
        assert ours.state()["v0"].tobytes() == before["v0"].tobytes()
        assert ours.loss_scale == scale
        ours.step(*grads)
      assert ours.loss_scale == next_scale
      states.append(comparable(ours))
  applied = 0
  with helpers.Trainer(mode, plain, _DENSE, use_resource=use_resource) as other:
    for batches, state in zip(windows, states):
      if all(map(is_finite, batches)):
        applied += 1
        other.step(*mean(batches))
      if applied:
        expected = comparable(other)
        if steps == 3:  # TensorFlow may multiply by the reciprocal.
          assert sorted(state) == sorted(expected)
          for name in state:
            np.testing.assert_allclose(state[name], expected[name], rtol=1e-3)
        else:
          helpers.assert_same_state(state, expected)
    assert 0 < applied < _WINDOWS
    assert state["global_step"] == applied


def mean(batches):
  """Returns the mean of gradients, divided as the optimizer does."""
  means = []
  for spec, grads in zip(_SPECS, zip(*batches)):
    dtype = np.float64 if spec.dtype == "float64" else np.float32
    total = np.sum(grads, axis=0, dtype=dtype)
    if spec.kind == "sparse":
      rows = np.zeros(spec.shape, dtype)
      rows[0] = total.sum(axis=0)
      total = rows
    means.append((total / dtype(len(batches))).astype(spec.dtype))
  return means


class Careless(tfl.LossScale):
  """A user's loss scale that always says that gradients are good.

  The answer is a tensor, or a Python bool.
  """

  def __init__(self, is_tensor):
    super().__init__()
    self._is_tensor = is_tensor

  def __call__(self):
    return tf.constant(8.0)

  def update(self, grads):
    tf.nest.flatten(grads)
    answer = tf.constant(True) if self._is_tensor else True
    return None if tf.executing_eagerly() else tf.no_op(), answer

  def get_config(self):
    return {"is_tensor": self._is_tensor}


# Loss scales that do not look at gradients.
_BLIND = {
  "one": lambda: 1,
  "fixed": lambda: tfl.FixedLossScale(8),
  "python": lambda: Careless(is_tensor=False),
  "tensor": lambda: Careless(is_tensor=True),
}


@pytest.mark.parametrize("scale", _BLIND)
@pytest.mark.parametrize("mode", MODES)
def test_a_scale_that_does_not_look_at_gradients(mode, scale):
  make = lambda: tfl.accumulate(  # noqa: E731
    tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.MomentumOptimizer(0.5, 0.5), _BLIND[scale]()
    ),
    2,
    mean=False,
  )
  with helpers.Trainer(mode, make) as trainer:
    for grad in (1.0, 2.0):
      trainer.step(grad)
    state = trainer.state()
    np.testing.assert_array_equal(state["v0"], [-0.5, -0.5])
    # An infinity, and finite gradients whose sum is none.
    for grads in ((math.inf, math.nan), (3e38, 3e38), (1.0, -math.inf)):
      for grad in grads:
        trainer.step(grad)
      helpers.assert_same_state(trainer.state(), state)
    assert state["global_step"] == 1


@pytest.mark.parametrize("mode", GRAPH_MODES)
@pytest.mark.parametrize("use_resource", [True, False])
def test_names_with_a_fixed_scale_and_a_window(mode, use_resource):
  """Checks that the cond of the window names no variable."""
  inner = helpers.INNER["adam"]
  wrap = tfl.MixedPrecisionLossScaleOptimizer
  make = lambda: tfl.accumulate(wrap(inner(), 8), 2)  # noqa: E731
  with helpers.Trainer(mode, make, use_resource=use_resource) as trainer:
    names = [v.op.name for v in trainer.opt.variables() if "power" in v.name]
  scope = "" if mode == "graph_v2" and use_resource else "cond/"
  assert names == [f"{scope}beta1_power", f"{scope}beta2_power"]


class Tiny(helpers.Trainer):
  """A trainer of a float16 variable with the gradient 2**-25."""

  def _build(self, fed):
    loss = lambda: tf.reduce_sum(  # noqa: E731
      tf.cast(self.variables[0], tf.float32) * 2.0**-25
    )
    op = self.opt.minimize(
      loss if self.graph is None else loss(), var_list=self.variables
    )
    return None if self.mode == "function" else op


@pytest.mark.parametrize("mode", MODES)
def test_small_half_gradients_add_up(mode):
  """Checks gradients that are 0 in float16."""
  make = lambda: tfl.accumulate(  # noqa: E731
    tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(2.0**13), 2.0**10
    ),
    64,
    mean=False,
  )
  with Tiny(mode, make, (Spec(dtype="float16"),)) as trainer:
    for _ in range(64):
      trainer.step(0.0)
    assert trainer.state()["v0"].tolist() == [1 - 64 * 2.0**-12] * 2


@pytest.mark.parametrize("mode", MODES)
def test_transform(mode):
  seen = []

  def clip(pairs):
    grads, variables = zip(*pairs)
    seen.append([v.name for v in variables])
    grads, _ = tf.clip_by_global_norm(grads, 1.0)
    return list(zip(grads, variables))

  make = lambda: tfl.accumulate(  # noqa: E731
    dynamic(tf1.train.GradientDescentOptimizer(1.0)), 2, transform=clip
  )
  with helpers.Trainer(mode, make, (Spec(), Spec((1,)))) as trainer:
    trainer.step([3.0, 0.0], [1.0])
    trainer.step([3.0, 0.0], [7.0])
    state = trainer.state()
    np.testing.assert_allclose(state["v0"], [0.4, 1.0], rtol=1e-6)
    np.testing.assert_allclose(state["v1"], [0.2], rtol=1e-6)
    trainer.step([3.0, 0.0], [1.0])
    trainer.step([math.inf, 0.0], [1.0])
    assert trainer.state()["v0"].tobytes() == state["v0"].tobytes()
  assert seen[0] == ["v0:0", "v1:0"]


@pytest.mark.parametrize("mode", ["eager", "function"])
def test_gradients_that_are_sometimes_none(mode):
  a, b, c = (tf.Variable(1.0, name=name) for name in "abc")
  opt = tfl.accumulate(dynamic(tf1.train.GradientDescentOptimizer(1.0)), 2)

  def step(both):
    grads = [tf.constant(2.0), tf.constant(4.0) if both else None, None]
    opt.apply_gradients(zip(grads, (a, b, c)))

  if mode == "function":
    step = tf.function(step, autograph=False)
  for both in (True, False, False, False):
    step(both)
  assert (float(a), float(b), float(c)) == (-3.0, -1.0, 1.0)


def test_a_variable_that_comes_late_is_an_error_in_functions():
  a, b = (tf.Variable(1.0, name=name) for name in "ab")
  opt = tfl.accumulate(dynamic(tf1.train.GradientDescentOptimizer(1.0)), 2)

  @tf.function
  def step(both):
    grad = tf.constant(1.0)
    opt.apply_gradients([(grad, a), (grad if both else None, b)])

  step(False)
  with pytest.raises(ValueError, match="b:0 has a gradient for the first time"):
    step(True)
  with pytest.raises(ValueError, match="no variable has a gradient"):
    tfl.accumulate(dynamic(opt._optimizer), 2).apply_gradients([(None, a)])


@pytest.mark.parametrize("mode", GRAPH_MODES)
@pytest.mark.parametrize("use_resource", [True, False])
def test_in_a_cond_of_the_program(mode, use_resource):
  with helpers.mode_scope(mode):
    if mode == "graph_v2" and not use_resource:
      pytest.skip("a branch of a v2 cond cannot use reference variables")
    v = tf1.Variable([1.0], use_resource=use_resource, name="v")
    wanted = tf1.placeholder(tf.bool, [])
    grad = tf1.placeholder(tf.float32, [1])
    opt = tfl.accumulate(dynamic(tf1.train.MomentumOptimizer(1.0, 0.5)), 2)

    def step():
      return tf.group(opt.apply_gradients([(grad, v)]))

    op = tf.cond(wanted, step, tf.no_op)
    with tf1.Session() as session:
      session.run(tf1.global_variables_initializer())
      for answer, fed in [(1, 1), (0, 9), (1, 2), (1, math.inf), (1, 4)]:
        session.run(op, {wanted: bool(answer), grad: [float(fed)]})
      assert session.run(v).tolist() == [-0.5]
      assert session.run(opt.loss_scale()) == 4


@pytest.mark.parametrize("jit", [False, True])
def test_loop_in_a_function(jit):
  v = tf.Variable([1.0])
  opt = tfl.accumulate(dynamic(tf1.train.AdamOptimizer(0.5)), 2)

  def step(grad):
    opt.minimize(lambda: v * grad, var_list=[v])

  @tf.function(jit_compile=jit)
  def train(grads):
    for i in tf.range(5):
      step(grads[i])

  train(tf.constant([1.0, 3.0, math.inf, 1.0, 2.0]))
  assert int(opt.micro_batches) == 1
  assert float(opt.loss_scale()) == 4
  np.testing.assert_allclose(v, [0.5], rtol=1e-5)


def test_threads():
  weight = tf.Variable(0.0)
  scaled = tfl.MixedPrecisionLossScaleOptimizer(
    tf1.train.GradientDescentOptimizer(1.0), tfl.DynamicLossScale(8, 1000)
  )
  opt = tfl.accumulate(scaled, 4)
  step = tf.Variable(0, dtype=tf.int64)

  def train(_):
    for _ in range(60):
      opt.apply_gradients([(tf.constant(1.0), weight)], step)

  helpers.in_threads(train, 6)
  assert (step.numpy(), weight.numpy()) == (90, -90)
  assert int(opt.micro_batches) == 0
  assert int(scaled.loss_scale.good_steps) == 90


@pytest.mark.parametrize("mode", ["eager", "function"])
def test_last_step_applied_belongs_to_windows(mode):
  v = tf.Variable([1.0])
  opt = tfl.accumulate(dynamic(tf1.train.GradientDescentOptimizer(0.5)), 2)
  with pytest.raises(RuntimeError, match="taken no eager step"):
    print(opt.last_step_applied)

  def step(grad):
    opt.minimize(lambda: v * grad, var_list=[v])
    return None if tf.executing_eagerly() else opt.last_step_applied

  if mode == "function":
    step = tf.function(step, autograph=False)
  step(tf.constant(1.0))
  seen = []
  for grad in (1.0, math.inf, 1.0, 1.0, 1.0):
    answer = step(tf.constant(grad))
    seen.append(bool(opt.last_step_applied if answer is None else answer))
  # Eagerly, a micro-batch within a window does not change the answer.
  assert seen == [True, True, False, mode == "function", True]


@pytest.mark.parametrize("mode", GRAPH_MODES)
def test_last_step_applied_in_graphs(mode):
  sgd = tf1.train.GradientDescentOptimizer(0.5)
  make = lambda: tfl.accumulate(dynamic(sgd), 2)  # noqa: E731
  with helpers.Trainer(mode, make) as trainer:
    with trainer.graph.as_default():
      applied = trainer.opt.last_step_applied
    feed = trainer.feeds[0]
    seen = [
      trainer.session.run([applied, trainer.train_op], {feed: [grad] * 2})[0]
      for grad in (1.0, math.inf, 1.0, 1.0)
    ]
    assert seen == [True, False, True, True]


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"steps": 0}, "steps"),
    ({"steps": 1.5}, "steps"),
    ({"transform": 3}, "transform must be a function"),
    (
      {"optimizer": tf1.train.AdamOptimizer()},
      r"accumulate\(MixedPrecisionLossScaleOptimizer\(opt, scale\), steps\)",
    ),
  ],
)
def test_errors(change, message):
  sgd = tf1.train.GradientDescentOptimizer(0.5)
  arguments = {
    "optimizer": tfl.MixedPrecisionLossScaleOptimizer(sgd, 8),
    "steps": 2,
    **change,
  }
  with pytest.raises(ValueError, match=message):
    tfl.accumulate(**arguments)


def test_wrappers_that_do_not_accumulate():
  class Own(tfl.MixedPrecisionLossScaleOptimizer):
    def apply_gradients(self, *args, **kwargs):
      return super().apply_gradients(*args, **kwargs)

  sgd = tf1.train.GradientDescentOptimizer(0.5)
  once = tfl.accumulate(tfl.MixedPrecisionLossScaleOptimizer(sgd, 8), 2)
  for opt, message in [
    (once, "accumulates already"),
    (Own(sgd, 8), r"Own has a apply_gradients\(\) of its own"),
  ]:
    with pytest.raises(ValueError, match=message):
      tfl.accumulate(opt, 2)


def test_a_graph_lists_the_optimizer_that_takes_its_steps():
  with tf.Graph().as_default() as graph:
    weights = tf1.get_variable("w", [2])
    opt = tfl.accumulate(
      tfl.MixedPrecisionLossScaleOptimizer(
        tf1.train.AdamOptimizer(), "dynamic"
      ),
      steps=2,
    )
    opt.minimize(tf.reduce_sum(weights))
    assert loss_scale_optimizer.list_optimizers(graph) == [opt]


if __name__ == "__main__":
  helpers.main()
