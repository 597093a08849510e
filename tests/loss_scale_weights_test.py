# SPDX-License-Identifier: Apache-2.0
"""Tests loss scales of users: subclasses that add weights."""

import copy

import helpers
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1


class Halving(tfl.LossScale):
  """A loss scale that halves on every update, whatever the gradients are."""

  def __init__(self, start=64.0):
    super().__init__()
    self.start = start
    self._add_weight("halved", start, tf.float32)
    self._add_weight("updates", 0, tf.int64)

  def __call__(self):
    return tf.convert_to_tensor(self._get_weight("halved"))

  def update(self, grads):
    halved = self._get_weight("halved")
    updates = self._get_weight("updates")
    ops = [halved.assign(halved / 2), updates.assign_add(1)]
    return (None if tf.executing_eagerly() else tf.group(ops)), True

  def get_config(self):
    return {"start": self.start}


def test_weights_are_float32_or_int64_resources():
  with tf.Graph().as_default():
    loss_scale = Halving()
    weights = loss_scale._weights
    assert list(weights) == ["halved", "updates"]
    assert weights["halved"].dtype == tf.float32
    assert weights["updates"].dtype == tf.int64
    for weight in weights.values():
      assert weight.op.type == "VarHandleOp"
      assert not weight.trainable
      assert weight.aggregation == tf.VariableAggregation.NONE
    assert not tf1.trainable_variables()


def test_duplicate_weights_are_refused_in_a_graph():
  loss_scale = Halving()
  with pytest.raises(RuntimeError, match="'halved'"):
    loss_scale._add_weight("halved", 1.0, tf.float32)
  with tf.Graph().as_default():
    loss_scale._add_weight("halved", 1.0, tf.float32)  # The graph is new.
    with pytest.raises(RuntimeError, match="'halved'"):
      loss_scale._add_weight("halved", 1.0, tf.float32)


def test_no_such_weight():
  with pytest.raises(KeyError):
    Halving()._get_weight("doubled")


def test_subclass_without_super_init():
  class Lazy(Halving):
    def __init__(self):
      self._add_weight("halved", 4.0, tf.float32)

  assert float(Lazy()()) == 4


def test_subclass_with_equality_of_its_own():
  class Equal(Halving):
    def __eq__(self, other):
      return isinstance(other, Equal)

  with tf.Graph().as_default():
    a, b = Equal(), Equal()
    assert a == b
    assert a._get_weight("halved") is not b._get_weight("halved")
    assert helpers.variable_names() == [
      "halved",
      "halved_1",
      "updates",
      "updates_1",
    ]


def test_deep_copies_are_apart():
  loss_scale = tfl.DynamicLossScale(8, 1)
  clone = copy.deepcopy(loss_scale)
  loss_scale.update([1.0])
  assert float(loss_scale()) == 16
  assert float(clone()) == 8
  with tf.Graph().as_default(), tf1.Session() as session:
    clone()
    copied = copy.deepcopy(clone)
    copied()
    session.run(tf1.global_variables_initializer())
    session.run(clone.update([1.0])[0])
    assert session.run([clone(), copied()]) == [16, 8]


def test_the_private_function_that_lists_weights():
  with tfl.installed():
    from tensorflow.python.training.experimental import loss_scale as old

    scale = old.DynamicLossScale(8.0)
    weights = list(old.get_loss_scale_weights(scale))
    assert [float(x) for x in weights] == [8.0, 0.0]
    assert not old.get_loss_scale_weights(old.FixedLossScale(8.0))


if __name__ == "__main__":
  helpers.main()
