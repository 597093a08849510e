# SPDX-License-Identifier: Apache-2.0
"""Tests the rules, arguments, configs and weights of loss scales, and `get`."""

import copy
import fractions
import math

import helpers
from helpers import OWN
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale._core.tf import graphs

tf1 = tf.compat.v1


def test_an_update_reads_and_writes_in_order():
  """Checks the order that workers of a parameter server rely on."""
  with helpers.mode_scope("graph_v1") as graph:
    loss_scale = tfl.DynamicLossScale(8, 2)
    update_op, finite = loss_scale.update([tf1.placeholder(tf.float32, [])])
    before = lambda op: graphs.list_ancestors([op]) - {op}  # noqa: E731

    def find(kind, variable):
      found = []
      for op in graph.get_operations():
        handle = op if op.type != kind else op.inputs[0].op
        while handle.type == "Switch":  # Into a branch.
          handle = handle.inputs[0].op
        if handle is variable.handle.op and op.name.startswith("cond/"):
          found += [op] * (op.type == kind)
      return found

    good, scale = loss_scale.good_steps, loss_scale.current_loss_scale
    look, look_again = find("ReadVariableOp", good)
    (read,) = find("ReadVariableOp", scale)
    (reset,), (write,) = (find("AssignVariableOp", v) for v in (good, scale))
  assert finite.op in before(look) and read in before(look_again)
  assert reset in before(write) and write in before(update_op.op)
  # Programs use the update as a tensor.
  assert isinstance(update_op, tf.Tensor) and update_op.name == "cond/update:0"


@pytest.mark.parametrize("make", [float, lambda x: tf.constant(x, tf.float64)])
def test_products_are_those_of_float64(make):
  # The factor is rounded to float32, or else the first product would be 3.3.
  # The last one would be the smallest that float32 rounds to an infinity.
  for scale, factor, grown in [
    (3, 1.1, np.float32(3.3000002)),
    (1082400 * 2.0**103, 31, 1082400 * 31 * 2.0**103),
    (1082401 * 2.0**103, 31, 1082401 * 2.0**103),
  ]:
    assert (
      loss_scale_lib.grow(tf.constant(scale, tf.float32), make(factor)) == grown
    )


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
def test_a_run_that_another_worker_ended_is_not_ended_again(mode):
  with helpers.mode_scope(mode) as graph, tf1.Session() as session:
    loss_scale = tfl.DynamicLossScale(8, 3)
    update_op, _ = loss_scale.update([tf1.placeholder_with_default(1.0, [])])
    session.run(tf1.global_variables_initializer())
    # The first look at the count saw a full run, which is over by now.
    first = next(op for op in graph.get_operations() if op.type == "LogicalAnd")
    session.run(update_op, {first.outputs[0]: False})
    assert session.run([loss_scale(), loss_scale.good_steps]) == [8, 1]


@pytest.mark.parametrize("mode", ["graph_v1", "eager"])
def test_fixed_loss_scale(mode):
  with helpers.mode_scope(mode):
    loss_scale = tfl.FixedLossScale(1000)
    value = loss_scale()
    assert value.dtype == tf.float32 and value.shape == ()
    assert tf.get_static_value(value) == 1000
    for grad in (0.0, math.nan):
      update_op, should_apply = loss_scale.update([tf.constant(grad)])
      assert should_apply is True
      assert (update_op is None) == (mode == "eager")
    assert loss_scale._loss_scale_value == 1000.0
    assert repr(loss_scale) == "FixedLossScale(1000.0)"


def test_repr_tells_the_state_where_it_can():
  loss_scale = tfl.DynamicLossScale(1, 2, 3)
  assert repr(loss_scale) == repr(OWN.DynamicLossScale(1, 2, 3))
  assert "current_loss_scale=1.0" in repr(loss_scale)
  with tf.Graph().as_default():
    graph_repr = "DynamicLossScale(initial_loss_scale=1.0, increment_period=2, "
    assert repr(loss_scale) == graph_repr + "multiplier=3.0)"
    assert not tf1.global_variables()
    in_graph = tfl.DynamicLossScale(5)
  assert "current_loss_scale" not in repr(in_graph)


def test_the_names_of_tensorflows_own_state_stay():
  loss_scale = tfl.DynamicLossScale()
  assert loss_scale._current_loss_scale is loss_scale.current_loss_scale
  assert loss_scale._num_good_steps is loss_scale.good_steps


def test_a_subclass_may_have_attributes_of_the_new_names():
  """Checks a subclass written before the names were public."""

  class Counting(tfl.DynamicLossScale):
    def __init__(self):
      super().__init__(8, 2)
      self.good_steps = "mine"

  loss_scale = Counting()
  loss_scale.update([tf.constant(1.0)])
  loss_scale.update([tf.constant(1.0)])
  assert loss_scale.good_steps == "mine"
  assert float(loss_scale.current_loss_scale) == 16


def test_abstract():
  with pytest.raises(TypeError, match="abstract"):
    tfl.LossScale()


# Invalid scales, periods and multipliers -----------------------------------


_NO_NUMBERS = ["8", b"8", None, True, np.bool_(True), [8], {}, 1j, "dynamic"]

_BAD_SCALES = [*_NO_NUMBERS, math.nan, math.inf, -1, 0, 0.999, 1e39, 10**400]


_BAD = {
  "loss_scale_value": (tfl.FixedLossScale, _BAD_SCALES),
  "initial_loss_scale": (tfl.DynamicLossScale, _BAD_SCALES),
  "multiplier": (
    tfl.DynamicLossScale,
    [*_NO_NUMBERS, math.nan, math.inf, 1, 0.5, -2, 1 + 1e-9, 1e39],
  ),
  "increment_period": (
    tfl.DynamicLossScale,
    [*_NO_NUMBERS, math.nan, math.inf, 0, -3, 2.5, 2**63, np.float32(1.5)],
  ),
}


@pytest.mark.parametrize("name", _BAD)
def test_bad_arguments(name):
  cls, values = _BAD[name]
  for value in values:
    with pytest.raises(ValueError) as error:
      cls(**{name: value})
    assert name in str(error.value)
    assert repr(value) in str(error.value)


@pytest.mark.parametrize(
  "value",
  [
    8,
    8.0,
    np.float16(8),
    np.float32(8),
    np.int64(8),
    np.uint8(8),
    np.array(8.0),
    fractions.Fraction(8),
  ],
)
def test_numbers_of_every_kind(value):
  assert float(tfl.FixedLossScale(value)()) == 8
  assert float(tfl.DynamicLossScale(value)()) == 8
  assert tfl.DynamicLossScale(increment_period=value).increment_period == 8
  assert isinstance(tfl.get(value), tfl.FixedLossScale)
  assert tfl.get(value).get_config() == {"loss_scale_value": 8.0}


def test_a_scale_below_1_is_for_growth_backoff():
  for value in (0.5, np.float32(0.5)):
    with pytest.raises(
      ValueError, match=r"but got .*0\.5.*GrowthBackoff\(0\.5, min_loss_scale="
    ):
      tfl.DynamicLossScale(value)
  for value in (0, -1, float("nan")):
    with pytest.raises(ValueError, match=r"^((?!GrowthBackoff).)*$"):
      tfl.DynamicLossScale(value)


def test_periods():
  loss_scale = tfl.DynamicLossScale(increment_period=2**63 - 1)
  loss_scale.update([tf.constant(1.0)])
  assert (loss_scale().numpy(), loss_scale.good_steps.numpy()) == (2**15, 1)
  loss_scale = tfl.DynamicLossScale(increment_period=2.0)
  assert loss_scale.increment_period == 2
  assert isinstance(loss_scale.increment_period, int)


# get() and configs ---------------------------------------------------------


def test_get():
  assert tfl.get(None) is None
  loss_scale = tfl.get("dynamic")
  assert isinstance(loss_scale, tfl.DynamicLossScale)
  assert loss_scale.get_config() == OWN.DynamicLossScale().get_config()
  assert tfl.get(loss_scale) is loss_scale


@pytest.mark.parametrize(
  "loss_scale",
  [tfl.FixedLossScale(123), tfl.DynamicLossScale(4, 5, 6)],
  ids=repr,
)
def test_configs(loss_scale):
  config = loss_scale.get_config()
  cls = type(loss_scale)
  for again in (
    cls.from_config(config),
    tfl.get(config),
    tfl.get({"class_name": cls.__name__, "config": config}),
  ):
    assert type(again) is cls
    assert again.get_config() == config
    assert float(again()) == float(loss_scale())
  own = getattr(OWN, cls.__name__).from_config(config)
  assert own.get_config() == config


@pytest.mark.parametrize(
  "identifier",
  [
    "static",
    "",
    True,
    np.bool_(False),
    [8],
    Ellipsis,
    b"dynamic",
    {},
    {"class_name": "Nonsense", "config": {}},
    {"class_name": "DynamicLossScale"},
    {"class_name": "FixedLossScale", "config": {"value": 3}},
    {"loss_scale_value": 3, "multiplier": 2},
    0.5,
    math.nan,
    tfl.DynamicLossScale,
    np.array([8.0]),
  ],
  ids=repr,
)
def test_get_refuses(identifier):
  with pytest.raises(ValueError) as error:
    tfl.get(identifier)
  assert repr(identifier) in str(error.value)


def test_get_makes_nothing_when_it_refuses():
  with tf.Graph().as_default():
    with pytest.raises(ValueError):
      tfl.get({"class_name": "DynamicLossScale", "config": {"multiplier": 1}})
    assert not tf1.global_variables()


# Loss scales of users ------------------------------------------------------


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


def test_duplicate_weights_are_refused_in_a_graph():
  loss_scale = Halving()
  with pytest.raises(KeyError):
    loss_scale._get_weight("doubled")
  with pytest.raises(RuntimeError, match="'halved'"):
    loss_scale._add_weight("halved", 1.0, tf.float32)
  with tf.Graph().as_default():
    loss_scale._add_weight("halved", 1.0, tf.float32)  # The graph is new.
    with pytest.raises(RuntimeError, match="'halved'"):
      loss_scale._add_weight("halved", 1.0, tf.float32)


def test_subclass_without_super_init():
  class Lazy(Halving):
    def __init__(self):
      self._add_weight("halved", 4.0, tf.float32)

  assert float(Lazy()()) == 4


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
