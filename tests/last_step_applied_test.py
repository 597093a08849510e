# SPDX-License-Identifier: Apache-2.0
"""Tests `last_step_applied` of eager steps and of steps in a `tf.function`."""

import gc
import weakref

import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib

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
}
KINDS = ("eager", "function", "jit")


def make_step(opt, kind, variable=None):
  """Returns a function that does a step with a factor of the loss.

  The function returns `last_step_applied`, as it is read right after the step.
  """
  if variable is None:
    variable = tf.Variable([1.0, 2.0])

  def step(factor):
    opt.minimize(lambda: tf.reduce_sum(variable * factor), var_list=[variable])
    return opt.last_step_applied

  if kind != "eager":
    step = tf.function(step, jit_compile=kind == "jit", autograph=False)
  return lambda factor: step(tf.convert_to_tensor(factor))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MAKERS)
def test_read_after_each_step(name, kind):
  step = make_step(MAKERS[name](), kind)
  for factor in _SCHEDULE:
    value = step(factor)
    assert value.dtype == tf.bool and value.shape == []
    assert bool(value) == bool(np.isfinite(factor))


def test_eager_code_knows_eager_steps_alone():
  opt = MAKERS["dynamic"]()
  variable = tf.Variable([1.0, 2.0])
  eager, function, jit = [make_step(opt, kind, variable) for kind in KINDS]
  assert not function(_INF)
  with pytest.raises(RuntimeError, match="has taken no eager step"):
    _ = opt.last_step_applied
  assert eager(1.0) and not function(_INF) and opt.last_step_applied
  assert not eager(_INF) and jit(1.0) and not opt.last_step_applied


def test_each_trace_has_a_tensor_of_its_own():
  step = make_step(MAKERS["dynamic"](), "function")
  assert step(1.0) and not step([_INF]) and not step(_INF) and step([1.0])


@pytest.mark.parametrize("jit", [False, True])
def test_loop_in_a_function(jit):
  step = make_step(MAKERS["dynamic"](), "eager")

  @tf.function(jit_compile=jit)
  def train(factors):
    applied = True
    for i in tf.range(3):
      applied = step(factors[i])
    return applied

  assert not train(tf.constant([1.0, 1.0, _INF]))
  assert train(tf.constant([_INF, _INF, 1.0]))


@pytest.mark.parametrize("kind", KINDS)
def test_fixed_loss_scale_always_applies(kind):
  opt = tfl.MixedPrecisionLossScaleOptimizer(sgd(), 8)
  assert make_step(opt, kind)(_INF)


@pytest.mark.parametrize("kind", ["eager", "function"])
def test_python_answers(kind):
  loss_scale = Fickle()
  opt = tfl.MixedPrecisionLossScaleOptimizer(sgd(), loss_scale)
  for answer in (True, False, True):
    loss_scale.answer = answer
    assert bool(make_step(opt, kind)(1.0)) == answer


def test_no_step_yet():
  opt = MAKERS["dynamic"]()
  make_step(opt, "eager")(1.0)
  with tf.Graph().as_default(), pytest.raises(RuntimeError, match="this graph"):
    _ = opt.last_step_applied


def test_function_in_a_graph_of_tensorflow_1():
  with tf.Graph().as_default(), tf1.Session() as session:
    variable = tf1.get_variable("v", [2], use_resource=True)
    opt = MAKERS["dynamic"]()
    step = make_step(opt, "function", variable)
    good, bad = step(1.0), step(_INF)
    with pytest.raises(RuntimeError, match=r"that a tf\.function"):
      _ = opt.last_step_applied
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
    return opt.last_step_applied

  if kind == "function":
    step = tf.function(step, autograph=False)
  for bad in (False, True, False, True):
    assert bool(step(tf.constant(bad))) == (fixed or not bad)


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


if __name__ == "__main__":
  helpers.main()
