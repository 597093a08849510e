# SPDX-License-Identifier: Apache-2.0
"""Tests attributes of a wrapped optimizer, read and set through its wrapper."""

import copy
import inspect
import pickle
from unittest import mock

import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import environment
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
  assert "_momentum" in dir(wrapper)
  assert "get_slot_names" not in dir(wrapper)


@wrappers
def test_attributes_are_deleted(name):
  inner = tf1.train.MomentumOptimizer(0.25, momentum=0.5)
  wrapper = _WRAPPERS[name](inner)
  inner.note = 1
  del wrapper.note
  assert not hasattr(inner, "note") and not hasattr(wrapper, "note")
  with pytest.raises(AttributeError, match="has no attribute 'note', and the"):
    del wrapper.note
  wrapper.note = 2
  assert inner.note == 2 and "note" not in vars(wrapper)
  wrapper.of_wrapper = 3
  del wrapper.of_wrapper
  assert not hasattr(wrapper, "of_wrapper")
  for _ in range(2):
    with mock.patch.object(wrapper, "_momentum", 0.75):
      assert inner._momentum == 0.75
    assert inner._momentum == 0.5 and "_momentum" not in vars(wrapper)
  with mock.patch.object(wrapper, "get_slot_names", list):
    assert wrapper.get_slot_names() == []
  assert "get_slot_names" not in vars(wrapper)


def test_a_rate_that_is_set_in_a_graph():
  with tf.Graph().as_default(), tf1.Session() as session:
    variable = tf1.get_variable("v", [], initializer=tf1.ones_initializer())
    optimizer = wrap_managed(tf1.train.GradientDescentOptimizer(0.25))
    optimizer._learning_rate = tf1.placeholder_with_default(0.5, [])
    train_op = optimizer.minimize(variable * 1.0)
    session.run(tf1.global_variables_initializer())
    session.run(train_op)
    assert session.run(variable) == 0.5


@wrappers
def test_what_neither_has(name):
  wrapper = _WRAPPERS[name](tf1.train.AdamOptimizer())
  for attribute, advice in (
    ("lr", ". There is '_lr'."),
    ("_learning_rate", ". There is '_lr'."),
    ("beta1", ". There is '_beta1'."),
    ("no_such", "."),
    ("__private", None),
    ("__wrapped__", None),
  ):
    with pytest.raises(AttributeError) as caught:
      getattr(wrapper, attribute)
    text = f"{name!r} object has no attribute {attribute!r}"
    if advice is not None:
      text += f", and the AdamOptimizer that it wraps has none{advice}"
    assert str(caught.value) == text
    assert (caught.value.name, caught.value.obj) == (attribute, wrapper)


@wrappers
def test_what_is_the_wrappers_own(name):
  inner = tf1.train.GradientDescentOptimizer(0.5)
  state = dict.fromkeys(("_steps", "_window", "_drop", "loss_scale"), "inner's")
  for attribute, value in {**state, "__private": 1, "_self_note": 1}.items():
    setattr(inner, attribute, value)
  wrapper = _WRAPPERS[name](inner)
  wrapper.loss_scale = "the wrapper's"
  wrapper.note = 1
  setattr(wrapper, "__private", 2)
  assert not hasattr(wrapper, "_self_note")
  assert {key: getattr(inner, key) for key in state} == state
  assert not hasattr(inner, "note") and getattr(inner, "__private") == 1
  assert wrapper.loss_scale == "the wrapper's"
  assert train(wrapper, tf.Variable(1.0)) == 0.5
  assert {key: getattr(inner, key) for key in state} == state


def test_a_wrapper_in_a_wrapper():
  inner = wrap_managed(tf1.train.GradientDescentOptimizer(0.25))
  outer = wrap_managed(inner)
  variable = tf.Variable(1.0)
  assert outer.loss_scale_manager is not inner.loss_scale_manager
  outer._learning_rate = 0.5
  assert train(outer, variable) == 0.5
  assert outer.loss_scale_manager is not inner.loss_scale_manager
  outer._loss_scale_manager = contrib.FixedLossScaleManager(2.0)
  assert float(inner.loss_scale()) == 8 and float(outer.loss_scale()) == 2


def test_an_error_in_a_property_is_not_hidden():
  class Broken(tfl.MixedPrecisionLossScaleOptimizer):
    @property
    def rate(self):
      return self._optimizer.no_such

  wrapper = Broken(tf1.train.AdamOptimizer(), 8)
  with pytest.raises(AttributeError, match=r"'AdamOptimizer' .* 'no_such'"):
    wrapper.rate  # noqa: B018


def test_a_subclass_before_its_constructor():
  class Late(contrib.LossScaleOptimizer):
    def __init__(self, optimizer, manager):
      self._lr = "the subclass's"
      assert not hasattr(self, "_beta1")
      super().__init__(optimizer, manager)

  inner = tf1.train.AdamOptimizer(0.5)
  wrapper = Late(inner, contrib.FixedLossScaleManager(2.0))
  assert (wrapper._lr, inner._lr) == ("the subclass's", 0.5)


class _Mixin:
  def __init__(self, *args):
    super().__init__(*args)
    self._momentum = 0.75


class _Own(tfl.MixedPrecisionLossScaleOptimizer):
  def __init__(self, optimizer, scale, momentum=0.75):
    super().__init__(optimizer, scale)
    self._momentum = momentum


class _OwnByMixin(_Mixin, tfl.MixedPrecisionLossScaleOptimizer):
  pass


class _OwnOfOwn(_Own):
  def __init__(self, optimizer, scale):
    super().__init__(optimizer, scale, 0.5)
    self._momentum = 0.75


class _OwnWithoutOurs(contrib.LossScaleOptimizer):
  def __init__(self, optimizer, manager):
    self._opt = optimizer
    self._loss_scale_manager = contrib.FixedLossScaleManager(manager)
    self._momentum = 0.75


@pytest.mark.parametrize("cls", [_Own, _OwnByMixin, _OwnOfOwn, _OwnWithoutOurs])
def test_what_a_constructor_sets_is_the_wrappers_own(cls):
  inner = tf1.train.MomentumOptimizer(0.5, 0.25)
  wrapper = cls(inner, 8)
  assert (wrapper._momentum, inner._momentum) == (0.75, 0.25)
  for each in (wrapper, copy.copy(wrapper)):
    each._learning_rate = 0.125
    assert inner._learning_rate == 0.125
    inner._learning_rate = 0.5
  with pytest.raises(TypeError):
    wrapper.__init__()
  wrapper._learning_rate = 0.125
  assert inner._learning_rate == 0.125


def test_signatures_of_subclasses():
  assert list(inspect.signature(_Own).parameters) == [
    "optimizer",
    "scale",
    "momentum",
  ]


def test_a_scale_by_the_environment_is_of_one_optimizer(monkeypatch):
  monkeypatch.setenv("TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING", "1")
  environment.honor_environment(quiet=True)
  try:
    inner = tf1.train.GradientDescentOptimizer(0.5)
    wrapper = wrap_managed(inner)
    assert environment.find_steps(inner) is not None
    assert environment.find_steps(wrapper) is None
  finally:
    environment.ignore_environment()


@wrappers
def test_copies(name):
  inner = tf1.train.GradientDescentOptimizer(0.5)
  wrapper = _WRAPPERS[name](inner)
  train(wrapper, tf.Variable(1.0))
  shallow, deep = copy.copy(wrapper), copy.deepcopy(wrapper)
  shallow._learning_rate = 0.25
  assert (wrapper._learning_rate, deep._learning_rate) == (0.25, 0.5)
  deep._learning_rate = 0.125
  assert inner._learning_rate == 0.25
  assert train(deep, tf.Variable(1.0)) == 0.875


def test_pickle():
  wrapper = tfl.MixedPrecisionLossScaleOptimizer(
    tf1.train.GradientDescentOptimizer(0.5), 8
  )
  again = pickle.loads(pickle.dumps(wrapper))
  again._learning_rate = 0.25
  assert wrapper._learning_rate == 0.5
  assert train(again, tf.Variable(1.0)) == 0.75


@pytest.mark.parametrize("kind", ["legacy", "new"])
@pytest.mark.parametrize("scale", ["dynamic", 8])
def test_keras(kind, scale):
  home = k2.optimizers.legacy if kind == "legacy" else k2.optimizers
  inner = home.SGD(0.25, momentum=0.5, nesterov=True)
  wrapper = keras.LossScaleOptimizer(inner, scale)
  model = k2.Sequential([k2.layers.Dense(1, input_shape=(2,))])
  model.compile(wrapper, "mse", run_eagerly=True)
  data = np.ones((4, 2), "f"), np.ones((4, 1), "f")
  rates = []
  callbacks = [
    k2.callbacks.LearningRateScheduler(lambda epoch: 0.5 / (epoch + 1)),
    k2.callbacks.ReduceLROnPlateau(monitor="loss"),
    k2.callbacks.LambdaCallback(
      on_epoch_end=lambda epoch, logs: rates.append(float(inner.learning_rate))
    ),
  ]
  model.fit(*data, epochs=2, callbacks=callbacks, verbose=0)
  assert rates == [0.5, 0.25]
  k2.backend.set_value(wrapper.lr, 0.125)
  assert float(inner.learning_rate) == 0.125
  wrapper.lr = 0.5
  wrapper.momentum = 0.75
  wrapper.nesterov = False
  assert float(inner.learning_rate) == 0.5
  assert k2.backend.get_value(inner.momentum) == 0.75 and not inner.nesterov
  assert {"momentum", "lr"} <= set(dir(wrapper))
  assert not {"momentum", "nesterov"} & set(vars(wrapper))
  wrapper.note = 1
  assert not hasattr(inner, "note")
  for attribute in ("_lr", "epsilon", "__private"):
    with pytest.raises(AttributeError, match=f"'LossScaleOpt.*{attribute}'"):
      getattr(wrapper, attribute)
  assert copy.copy(wrapper).momentum is inner.momentum


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
  assert copy.deepcopy(wrapper).epsilon == 0.125


if __name__ == "__main__":
  helpers.main()
