# SPDX-License-Identifier: Apache-2.0
"""Tests the arguments and configs of loss scales, and `get`."""

import fractions
import math

import helpers
from helpers import OWN
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import policies

tf1 = tf.compat.v1


def test_abstract():
  with pytest.raises(TypeError, match="abstract"):
    tfl.LossScale()


# Invalid scales, periods and multipliers -----------------------------------

_NO_NUMBERS = ["8", b"8", None, True, np.bool_(True), [8], {}, 1j, "dynamic"]
_BAD_SCALES = [*_NO_NUMBERS, math.nan, math.inf, -1, 0, 0.999, 1e39, 10**400]


@pytest.mark.parametrize("value", _BAD_SCALES, ids=repr)
def test_bad_scales(value):
  with pytest.raises(ValueError) as error:
    tfl.FixedLossScale(value)
  assert "loss_scale_value" in str(error.value)
  assert repr(value) in str(error.value)
  with pytest.raises(ValueError) as error:
    tfl.DynamicLossScale(value)
  assert "initial_loss_scale" in str(error.value)
  assert repr(value) in str(error.value)


@pytest.mark.parametrize(
  "value",
  [*_NO_NUMBERS, math.nan, math.inf, 1, 0.5, -2, 1 + 1e-9, 1e39],
  ids=repr,
)
def test_bad_multipliers(value):
  with pytest.raises(ValueError) as error:
    tfl.DynamicLossScale(multiplier=value)
  assert "multiplier" in str(error.value)
  assert repr(value) in str(error.value)


@pytest.mark.parametrize(
  "value",
  [*_NO_NUMBERS, math.nan, math.inf, 0, -3, 2.5, 2**63, np.float32(1.5)],
  ids=repr,
)
def test_bad_periods(value):
  with pytest.raises(ValueError) as error:
    tfl.DynamicLossScale(increment_period=value)
  assert "increment_period" in str(error.value)
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
  with pytest.raises(ValueError):  # TensorFlow's takes only int and float.
    if isinstance(value, (int, float)):
      raise ValueError
    OWN.FixedLossScale(value)
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
  loss_scale = policies.GrowthBackoff(0.5, min_loss_scale=2**-4)
  for expected in (0.25, 0.125, 0.0625, 0.0625):
    loss_scale.update([tf.constant(float("inf"))])
    assert float(loss_scale()) == expected


def test_old_code_passes_a_float_for_the_period():
  loss_scale = tfl.DynamicLossScale(increment_period=2.0)
  assert loss_scale.increment_period == 2
  assert isinstance(loss_scale.increment_period, int)


# get() and configs ---------------------------------------------------------


def test_get():
  assert tfl.get(None) is None
  loss_scale = tfl.get("dynamic")
  assert isinstance(loss_scale, tfl.DynamicLossScale)
  assert loss_scale.get_config() == tfl.DynamicLossScale().get_config()
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


if __name__ == "__main__":
  helpers.main()
