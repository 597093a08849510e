# SPDX-License-Identifier: Apache-2.0
"""Tests `last_step_applied` of eager steps and of steps in a `tf.function`."""

import copy
import gc
import weakref

import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import policies

tf1 = tf.compat.v1
_INF = float("inf")
_SCHEDULE = [1.0, _INF, _INF, 1.0, float("nan"), 1.0]


class Fickle(tfl.LossScale):
  """A user's loss scale that answers by a Python bool, in turn."""

  def __init__(self):
    super().__init__()
    self.answer = True

  def __call__(self):
    return tf.constant(4.0)

  def update(self, grads):
    del grads
    return tf.no_op(), self.answer

  def get_config(self):
    return {}


def sgd():
  return tf1.train.GradientDescentOptimizer(0.25)


MAKERS = {
  "dynamic": lambda: tfl.MixedPrecisionLossScaleOptimizer(
    tf1.train.AdamOptimizer(0.1), tfl.DynamicLossScale(8, 2)
  ),
  "contrib": lambda: contrib.LossScaleOptimizer(
    sgd(), contrib.ExponentialUpdateLossScaleManager(8, 2)
  ),
  "policy": lambda: tfl.MixedPrecisionLossScaleOptimizer(
    sgd(), policies.GrowthBackoff(8.0, growth_interval=2)
  ),
}
KINDS = ("eager", "function", "jit")


def make_step(opt, kind, variable=None):
  """Returns a function that does a step with a factor of the loss."""
  if variable is None:
    variable = tf.Variable([1.0, 2.0])

  def step(factor):
    opt.minimize(lambda: tf.reduce_sum(variable * factor), var_list=[variable])

  if kind != "eager":
    step = tf.function(step, jit_compile=kind == "jit", autograph=False)
  return lambda factor: step(tf.constant(factor))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MAKERS)
def test_eager_read_after_each_step(name, kind):
  opt = MAKERS[name]()
  step = make_step(opt, kind)
  for factor in _SCHEDULE:
    step(factor)
    value = opt.last_step_applied
    assert value.dtype == tf.bool and value.shape == []
    assert bool(value) == bool(np.isfinite(factor))


def test_eager_steps_and_functions_in_turn():
  opt = MAKERS["dynamic"]()
  variable = tf.Variable([1.0, 2.0])
  steps = [make_step(opt, kind, variable) for kind in KINDS]
  for factor, i in [(1, 0), (_INF, 1), (1, 0), (_INF, 2), (_INF, 0), (1, 1)]:
    steps[i](float(factor))
    assert bool(opt.last_step_applied) == bool(np.isfinite(factor)), i


def test_symbolic_in_the_function():
  opt = MAKERS["dynamic"]()
  variable = tf.Variable([1.0, 2.0])

  @tf.function
  def step(factor):
    opt.minimize(lambda: tf.reduce_sum(variable * factor), var_list=[variable])
    assert not hasattr(opt.last_step_applied, "numpy")
    return opt.last_step_applied

  for factor in _SCHEDULE:
    assert bool(step(tf.constant(factor))) == bool(np.isfinite(factor))
  # Another trace has a tensor of its own.
  assert not step(tf.constant([_INF]))
  assert not opt.last_step_applied


@pytest.mark.parametrize("jit", [False, True])
def test_loop_in_a_function(jit):
  opt = MAKERS["dynamic"]()
  variable = tf.Variable([1.0, 2.0])

  def step(factor):
    opt.minimize(lambda: tf.reduce_sum(variable * factor), var_list=[variable])

  @tf.function(jit_compile=jit)
  def train(factors):
    for i in tf.range(3):
      step(factors[i])

  train(tf.constant([1.0, 1.0, _INF]))
  assert not opt.last_step_applied
  train(tf.constant([_INF, _INF, 1.0]))
  assert opt.last_step_applied


def test_fixed_loss_scale_always_applies():
  opt = tfl.MixedPrecisionLossScaleOptimizer(sgd(), 8)
  make_step(opt, "function")(_INF)
  assert opt.last_step_applied


@pytest.mark.parametrize("kind", ["eager", "function"])
def test_python_answers(kind):
  loss_scale = Fickle()
  opt = tfl.MixedPrecisionLossScaleOptimizer(sgd(), loss_scale)
  variable = tf.Variable([1.0, 2.0])
  for answer in (True, False, True):
    loss_scale.answer = answer
    make_step(opt, kind, variable)(1.0)
    assert bool(opt.last_step_applied) == answer


@pytest.mark.parametrize("kind", ["eager", "function"])
def test_no_step_yet(kind):
  opt = MAKERS["dynamic"]()
  with pytest.raises(RuntimeError, match="has taken no step"):
    _ = opt.last_step_applied
  variable = tf.Variable([1.0, 2.0])

  def step(factor):
    opt.minimize(lambda: tf.reduce_sum(variable * factor), var_list=[variable])

  tf.function(step).get_concrete_function(tf.TensorSpec([]))
  with pytest.raises(RuntimeError, match="has taken no step"):
    _ = opt.last_step_applied
  if kind == "eager":
    step(tf.constant(_INF))
    assert not opt.last_step_applied


def test_function_in_a_graph_of_tensorflow_1():
  with tf.Graph().as_default(), tf1.Session() as session:
    variable = tf1.get_variable("v", [2], use_resource=True)
    opt = MAKERS["dynamic"]()

    @tf.function
    def step(factor):
      opt.minimize(
        lambda: tf.reduce_sum(variable * factor), var_list=[variable]
      )
      return opt.last_step_applied

    good, bad = step(tf.constant(1.0)), step(tf.constant(_INF))
    with pytest.raises(RuntimeError, match=r"steps of a tf\.function"):
      _ = opt.last_step_applied
    names = [x.op.name for x in tf1.global_variables()]
    assert not [name for name in names if "last_step" in name]
    session.run(tf1.global_variables_initializer())
    assert session.run(good)
    assert not session.run(bad)


@pytest.mark.parametrize("kind", ["eager", "function"])
@pytest.mark.parametrize("fixed", [False, True])
def test_replicas(kind, fixed):
  strategy = helpers.two_replicas()
  with strategy.scope():
    variable = tf.Variable([1.0, 2.0])
    loss_scale = 8 if fixed else tfl.DynamicLossScale(8, 2)
    opt = tfl.MixedPrecisionLossScaleOptimizer(sgd(), loss_scale)

  def on_replica(bad):
    factor = helpers.factor_of_replica(bad)
    opt.minimize(lambda: tf.reduce_sum(variable * factor), var_list=[variable])

  def step(bad):
    strategy.run(on_replica, (bad,))

  if kind == "function":
    step = tf.function(step, autograph=False)
  for bad in (False, True, False, True):
    step(tf.constant(bad))
    assert bool(opt.last_step_applied) == (fixed or not bad)


def test_threads():
  opt = MAKERS["dynamic"]()
  variable = tf.Variable([1.0, 2.0])
  step = make_step(opt, "function", variable)
  helpers.in_threads(lambda _: step(_INF), 8)
  assert not opt.last_step_applied
  assert len(opt._eager_steps.list_variables()) == 1


def test_copies_are_of_their_own():
  opt = MAKERS["dynamic"]()
  step = make_step(opt, "eager")
  step(_INF)
  clone = copy.deepcopy(opt)
  step(1.0)
  assert not clone.last_step_applied
  assert opt.last_step_applied
  make_step(clone, "function")(1.0)
  step(_INF)
  assert clone.last_step_applied
  assert not opt.last_step_applied


def object_graph(path):
  """Returns the object graph of a checkpoint, as bytes."""
  reader = tf.train.load_checkpoint(path)
  return reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")


def test_checkpoints_do_not_have_it(tmp_path):
  graphs, variables = {}, {}
  for kind in ("eager", "function"):
    variable = tf.Variable([1.0, 2.0], name="v")
    # The names of eager slots have numbers that depend on earlier tests.
    opt = tfl.MixedPrecisionLossScaleOptimizer(sgd(), tfl.DynamicLossScale())
    make_step(opt, kind, variable)(1.0)
    path = tf.train.Checkpoint(opt=opt, v=variable).save(tmp_path / kind)
    graphs[kind] = object_graph(path)
    variables[kind] = [x.name for x in opt.variables()]
  assert graphs["function"] == graphs["eager"]
  assert variables["function"] == variables["eager"]


def test_saved_model(tmp_path):
  module = tf.Module()
  module.variable = tf.Variable([1.0, 2.0])
  module.opt = opt = tfl.MixedPrecisionLossScaleOptimizer(
    sgd(), tfl.DynamicLossScale(8, 2)
  )

  @tf.function(input_signature=[tf.TensorSpec([])])
  def step(factor):
    opt.minimize(
      lambda: tf.reduce_sum(module.variable * factor),
      var_list=[module.variable],
    )
    return opt.last_step_applied

  module.step = step
  step(tf.constant(1.0))
  tf.saved_model.save(module, tmp_path)
  loaded = tf.saved_model.load(tmp_path)
  assert not loaded.step(tf.constant(_INF))
  assert loaded.step(tf.constant(1.0))
  np.testing.assert_array_equal(loaded.variable, [0.5, 1.5])


@pytest.mark.parametrize("kind", ["eager", "function"])
def test_no_gradient_is_kept(kind):
  opt = MAKERS["dynamic"]()
  variable = tf.Variable([1.0, 2.0])
  kept = []

  def step():
    ((grad, _),) = pairs = opt.compute_gradients(
      lambda: tf.reduce_sum(variable * variable), [variable]
    )
    kept.append(weakref.ref(grad))
    opt.apply_gradients(pairs)

  if kind == "function":
    step = tf.function(step, autograph=False)
  step()
  del step
  gc.collect()
  assert kept[0]() is None


def test_an_eager_step_then_a_function_with_autograph():
  v = tf.Variable(1.0)
  opt = tfl.MixedPrecisionLossScaleOptimizer(
    tf.compat.v1.train.GradientDescentOptimizer(0.1), "dynamic"
  )

  def step(x):
    opt.minimize(lambda: v * x, var_list=[v])

  step(tf.constant(1.0))
  function = tf.function(step)
  for value in (1.0, float("inf"), 1.0):
    function(tf.constant(value))
    assert bool(opt.last_step_applied) == (value == 1.0)
  step(tf.constant(float("nan")))
  assert not bool(opt.last_step_applied)


if __name__ == "__main__":
  helpers.main()
