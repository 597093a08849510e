# SPDX-License-Identifier: Apache-2.0
"""Tests what the optimizer does with its inner optimizer, and its gradients."""

import itertools
import math

import helpers
from helpers import MODES
from helpers import Trainer
import numpy as np
import pytest
from scaled_optimizers import dynamic
from scaled_optimizers import wrap
import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1


# Gradients between computing and applying ----------------------------------


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
def test_gradients_are_unscaled_for_clipping(mode):
  with helpers.mode_scope(mode), tf1.Session() as session:
    v = tf1.get_variable("v", initializer=[3.0, 4.0])
    opt = wrap(dynamic(1024.0))()
    ((grad, var),) = opt.compute_gradients(tf.reduce_sum(v * v) / 2)
    assert var is v
    (clipped,), norm = tf.clip_by_global_norm([grad], 1.0)
    train_op = opt.apply_gradients([(clipped, v)])
    session.run(tf1.global_variables_initializer())
    assert session.run(norm) == 5
    session.run(train_op)
    np.testing.assert_allclose(session.run(v), [2.7, 3.6], rtol=1e-6)


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
def test_gradients_may_be_replaced(mode):
  with helpers.mode_scope(mode), tf1.Session() as session:
    v = tf1.get_variable("v", initializer=[1.0])
    opt = wrap(dynamic())()
    fed = tf1.placeholder(tf.float32, [1])
    train_op = opt.apply_gradients(iter([(fed, v)]))  # An iterator.
    session.run(tf1.global_variables_initializer())
    session.run(train_op, {fed: [math.nan]})
    session.run(train_op, {fed: [2.0]})
    assert session.run([v, opt.loss_scale()]) == [[0.0], 4.0]


# Inner optimizers ----------------------------------------------------------


class Signed(tf1.train.Optimizer):
  """An optimizer by the gradients' signs, with only `apply_gradients`."""

  def __init__(self):
    super().__init__(False, "Signed")

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    ops = [tf1.assign_sub(v, tf.sign(g)) for g, v in grads_and_vars]
    if global_step is not None:
      ops.append(tf1.assign_add(global_step, 1))
    return tf.group(*ops, name=name)


@pytest.mark.parametrize("mode", MODES)
def test_custom_optimizers(mode):
  with Trainer(mode, wrap(dynamic(), Signed)) as trainer:
    trainer.step([3.0, -0.5])
    trainer.step([math.nan, 1.0])
    assert trainer.state()["v0"].tolist() == [0, 2]
    assert trainer.state()["global_step"] == 1


class Decayed(tf1.train.Optimizer):
  """An optimizer that calls `get_variable` to apply, as BERT's Adam does."""

  def __init__(self):
    super().__init__(False, "Decayed")

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    ops = []
    for grad, var in grads_and_vars:
      m = tf1.get_variable(
        var.op.name + "/decayed_m",
        shape=var.shape,
        trainable=False,
        initializer=tf1.zeros_initializer(),
      )
      new_m = 0.5 * m + grad
      ops += [m.assign(new_m), var.assign(var - 0.25 * new_m)]
    if global_step is not None:
      ops.append(tf1.assign_add(global_step, 1))
    return tf.group(*ops, name=name)


@pytest.mark.parametrize(
  ("mode", "use_resource", "in_cond"),
  # A v2 cond cannot capture reference variables.
  [
    row
    for row in itertools.product(helpers.GRAPH_MODES, *[[True, False]] * 2)
    if row != ("graph_v2", False, True)
  ],
)
def test_optimizers_that_make_variables_as_they_apply(
  mode, use_resource, in_cond
):
  with helpers.mode_scope(mode), tf1.Session() as session:
    with tf1.variable_scope("net", use_resource=use_resource):
      v = tf1.get_variable("v", initializer=[1.0])
    step = tf1.train.get_or_create_global_step()
    opt = wrap(dynamic(), Decayed)()
    fed = tf1.placeholder(tf.float32, [1])
    grads_and_vars = [(fed, v)]
    if in_cond:
      train = tf.cond(
        tf1.placeholder_with_default(True, []),
        lambda: opt.apply_gradients(grads_and_vars, step),
        tf.no_op,
      )
    else:
      train = opt.apply_gradients(grads_and_vars, step)
    session.run(tf1.global_variables_initializer())
    for grad in (1.0, math.nan, 1.0):
      session.run(train, {fed: [grad]})
    assert session.run([v, step, opt.loss_scale()]) == [[0.375], 2, 4]
    assert "net/v/decayed_m" in helpers.variable_names()


@pytest.mark.parametrize("mode", MODES)
def test_wrapped_twice(mode):
  inner = wrap(dynamic(4.0))
  with Trainer(mode, wrap(dynamic(16.0), inner)) as trainer:
    trainer.step(1.0)
    trainer.step(math.inf)
    assert trainer.state()["v0"].tolist() == [0.5, 0.5]


def test_it_speaks_for_the_inner_optimizer():
  make = wrap(dynamic(), lambda: tf1.train.AdamOptimizer(0.1, name="Eve"))
  with Trainer("graph_v1", make) as trainer:
    opt, (v,) = trainer.opt, trainer.variables
    inner = opt._optimizer
    assert opt.get_name() == inner.get_name() == "Eve"
    assert opt.get_slot_names() == ["m", "v"]
    assert opt.get_slot(v, "m") is inner.get_slot(v, "m")
    assert opt.get_slot(v, "m").op.name == "v0/Eve"
    assert opt.get_slot(v, "no such slot") is None
    names = [variable.op.name for variable in opt.variables()]
    assert names[-2:] == ["current_loss_scale", "good_steps"]
    assert sorted(names[:-2]) == [
      "cond_1/beta1_power",
      "cond_1/beta2_power",
      "v0/Eve",
      "v0/Eve_1",
    ]
    assert trainer.train_op.name == "Eve"
    assert isinstance(opt, tf1.train.Optimizer)
    assert "AdamOptimizer" in repr(opt) and "DynamicLossScale" in repr(opt)


def test_locking_is_the_inner_optimizers():
  inner = tf1.train.GradientDescentOptimizer(0.5, use_locking=True)
  assert tfl.MixedPrecisionLossScaleOptimizer(inner, 8)._use_locking


class _Returning(tf1.train.GradientDescentOptimizer):
  """An optimizer whose `apply_gradients` returns a tensor in every mode."""

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    done = super().apply_gradients(grads_and_vars, global_step)
    with tf.control_dependencies([] if done is None else [done]):
      return tf.constant(7.0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loss_scale", [8.0, "dynamic"])
def test_an_apply_that_returns_a_tensor(mode, loss_scale):
  with Trainer(mode, wrap(loss_scale, lambda: _Returning(0.5))) as trainer:
    trainer.step([2.0, 4.0])
    assert trainer.state()["v0"].tolist() == [0, -1]


class _Averaged(tf1.train.Optimizer):
  """A wrapper that calls no constructor of the base class, so has no name."""

  def __init__(self, optimizer):
    self._optimizer = optimizer
    self._average = tf1.train.ExponentialMovingAverage(0.5)

  def compute_gradients(self, *args, **kwargs):
    return self._optimizer.compute_gradients(*args, **kwargs)

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    pairs = list(grads_and_vars)
    step = self._optimizer.apply_gradients(pairs, global_step, name)
    with tf.control_dependencies([step]):
      return self._average.apply([var for _, var in pairs])


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
@pytest.mark.parametrize("api", ["compat.v1", "contrib"])
def test_a_wrapper_without_a_name(mode, api):
  with helpers.mode_scope(mode), tf1.Session() as session:
    v = tf1.get_variable("v", initializer=[3.0], use_resource=True)
    inner = _Averaged(tf1.train.MomentumOptimizer(0.5, 0.5))
    if api == "contrib":
      manager = tfl.contrib.ExponentialUpdateLossScaleManager(8.0, 2)
      opt = tfl.contrib.LossScaleOptimizer(inner, manager)
    else:
      opt = tfl.MixedPrecisionLossScaleOptimizer(inner, "dynamic")
    assert opt.get_name() == "Averaged"
    grad = tf1.placeholder(tf.float32, [1])
    train_op = opt.apply_gradients([(grad, v)])
    average = inner._average.average(v)
    session.run(tf1.global_variables_initializer())
    session.run(train_op, {grad: [math.nan]})
    assert session.run([v, average]) == [[3.0], [3.0]]
    session.run(train_op, {grad: [2.0]})
    assert session.run([v, average]) == [[2.0], [2.5]]


@pytest.mark.parametrize("loss_scale", [8.0, "dynamic"])
def test_an_inner_optimizer_may_change_its_list(loss_scale):
  class Sorting(tf1.train.GradientDescentOptimizer):
    def apply_gradients(self, grads_and_vars, *args, **kwargs):
      grads_and_vars.sort(key=lambda pair: pair[1].name)
      return super().apply_gradients(grads_and_vars, *args, **kwargs)

  variable = tf.Variable(1.0)
  opt = tfl.MixedPrecisionLossScaleOptimizer(Sorting(0.5), loss_scale)
  opt.minimize(lambda: variable * 1.0, var_list=[variable])
  assert variable.numpy() == 0.5


if __name__ == "__main__":
  helpers.main()
