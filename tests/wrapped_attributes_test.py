# SPDX-License-Identifier: Apache-2.0
"""Tests attributes of a wrapped optimizer, read and set through its wrapper."""

import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import keras
from tf_compat_lossscale.keras import _keras2

tf1 = tf.compat.v1
k2 = _keras2.keras


def wrap_managed(optimizer):
  return contrib.LossScaleOptimizer(
    optimizer, contrib.ExponentialUpdateLossScaleManager(8.0, 2)
  )


_WRAPPERS = {
  "MixedPrecisionLossScaleOptimizer": (
    lambda opt: tfl.MixedPrecisionLossScaleOptimizer(opt, "dynamic")
  ),
  "LossScaleOptimizer": wrap_managed,
  "AccumulatingOptimizer": (
    lambda opt: tfl.accumulate(tfl.MixedPrecisionLossScaleOptimizer(opt, 8), 1)
  ),
}
wrappers = pytest.mark.parametrize("name", list(_WRAPPERS))
pytestmark = pytest.mark.any_release


def train(optimizer, variable):
  optimizer.minimize(lambda: tf.reduce_sum(variable), var_list=[variable])
  return float(variable)


@wrappers
def test_attributes_are_read_and_set(name):
  inner = tf1.train.MomentumOptimizer(0.25, momentum=0.5)
  wrapper = _WRAPPERS[name](inner)
  assert (wrapper._learning_rate, wrapper._momentum) == (0.25, 0.5)
  wrapper._learning_rate = 0.5
  assert inner._learning_rate == 0.5
  assert "_learning_rate" not in vars(wrapper)
  assert train(wrapper, tf.Variable(1.0)) == 0.5
  assert hasattr(wrapper, "_momentum") and not hasattr(wrapper, "momentum")
  assert getattr(wrapper, "momentum", "none") == "none"
  assert "get_slot_names" not in dir(wrapper)


def test_a_rate_that_is_set_in_a_graph():
  with tf.Graph().as_default(), tf1.Session() as session:
    variable = tf1.get_variable("v", [], initializer=tf1.ones_initializer())
    optimizer = wrap_managed(tf1.train.GradientDescentOptimizer(0.25))
    optimizer._learning_rate = tf1.placeholder_with_default(0.5, [])
    train_op = optimizer.minimize(variable * 1.0)
    session.run(tf1.global_variables_initializer())
    session.run(train_op)
    assert session.run(variable) == 0.5


def test_a_subclass_may_have_a_rate_of_its_own():
  class Mine(tfl.MixedPrecisionLossScaleOptimizer):
    def __init__(self, rate):
      self._lr = rate
      super().__init__(tf1.train.AdamOptimizer(rate / 2), "dynamic")

  optimizer = Mine(1.0)
  assert (optimizer._lr, optimizer._optimizer._lr) == (1.0, 0.5)
  optimizer._lr = 2.0
  optimizer._momentum = 0.5  # Adam has none.
  assert (optimizer._lr, optimizer._momentum) == (2.0, 0.5)
  assert optimizer._optimizer._lr == 0.5


@wrappers
@pytest.mark.parametrize("attribute", ["lr", "_learning_rate", "__private"])
def test_what_neither_has(name, attribute):
  wrapper = _WRAPPERS[name](tf1.train.AdamOptimizer())
  with pytest.raises(AttributeError, match=f"has no attribute '{attribute}'"):
    getattr(wrapper, attribute)


@wrappers
def test_what_is_the_wrappers_own(name):
  inner = tf1.train.GradientDescentOptimizer(0.5)
  inner.loss_scale = "the inner optimizer's"
  wrapper = _WRAPPERS[name](inner)
  assert callable(wrapper.loss_scale)
  wrapper.note = 1
  assert wrapper.note == 1 and not hasattr(inner, "note")


def test_an_error_in_a_property_is_not_hidden():
  class Broken(tfl.MixedPrecisionLossScaleOptimizer):
    @property
    def rate(self):
      return self._optimizer.no_such

  wrapper = Broken(tf1.train.AdamOptimizer(), 8)
  with pytest.raises(AttributeError, match=r"'AdamOptimizer' .* 'no_such'"):
    wrapper.rate  # noqa: B018


@pytest.mark.parametrize("kind", ["legacy", "new"])
def test_keras(kind):
  home = k2.optimizers.legacy if kind == "legacy" else k2.optimizers
  inner = home.SGD(0.25, momentum=0.5, nesterov=True)
  wrapper = keras.LossScaleOptimizer(inner, "dynamic")
  model = k2.Sequential([k2.layers.Dense(1, input_shape=(2,))])
  model.compile(wrapper, "mse", run_eagerly=True)
  schedule = k2.callbacks.LearningRateScheduler(lambda epoch: 0.5)
  model.fit(np.ones((4, 2)), np.ones((4, 1)), callbacks=[schedule], verbose=0)
  assert float(inner.learning_rate) == 0.5
  k2.backend.set_value(wrapper.lr, 0.125)
  assert float(inner.learning_rate) == 0.125
  wrapper.lr = 0.5
  assert float(inner.learning_rate) == 0.5
  assert k2.backend.get_value(wrapper.momentum) == 0.5 and wrapper.nesterov
  with pytest.raises(AttributeError, match=r"'LossScaleOpt.*epsilon'"):
    wrapper.epsilon  # noqa: B018


def test_the_state_of_legacy_optimizers():
  rate = k2.optimizers.schedules.ExponentialDecay(0.5, 2, 0.25)
  inner = k2.optimizers.legacy.Adam(rate, epsilon=0.125)
  wrapper = keras.LossScaleOptimizer(inner, "dynamic")
  wrapper.iterations = tf.Variable(2, dtype=tf.int64)
  assert int(inner.iterations) == 2
  assert wrapper._hyper is inner._hyper
  assert float(wrapper._decayed_lr("float32")) == 0.125
  assert (wrapper.epsilon, wrapper.amsgrad) == (0.125, False)
  variable = tf.Variable(1.0)
  wrapper.minimize(lambda: variable * 1.0, [variable])
  assert wrapper.get_slot(variable, "m") is inner.get_slot(variable, "m")


if __name__ == "__main__":
  helpers.main()
