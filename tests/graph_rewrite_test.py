# SPDX-License-Identifier: Apache-2.0
"""Tests `enable_mixed_precision_graph_rewrite` and its counterpart."""

import importlib
import logging

from absl import logging as absl_logging
import half_precision
import helpers
import numpy as np
import processes
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import graph_rewrite
from tf_compat_lossscale._core.tf import rewrite

tf1 = tf.compat.v1


@pytest.fixture(autouse=True)
def restored(monkeypatch):
  """Turns the rewrite off and forgets sessions, before and after each test."""
  monkeypatch.setattr(graph_rewrite, "_wrappers", {**graph_rewrite._wrappers})
  with half_precision.on_cpu():
    yield
  tf.__internal__.train.set_using_mixed_precision_policy(False)


@pytest.fixture
def warnings(caplog):
  absl_logging.get_absl_logger().addHandler(caplog.handler)
  yield lambda: [
    record.getMessage()
    for record in caplog.records
    if record.levelno == logging.WARNING
  ]
  absl_logging.get_absl_logger().removeHandler(caplog.handler)


def sgd():
  return tf1.train.GradientDescentOptimizer(1.0)


def is_on():
  """Returns whether sessions and functions compute in float16; both must."""
  in_sessions = half_precision.is_float16()
  with tf.__internal__.eager_context.eager_mode():
    in_functions = bool(np.isinf(tf.function(half_precision.multiply)()))
  flag = tf.__internal__.train.is_mixed_precision_graph_rewrite_enabled()
  assert in_sessions == in_functions == flag
  # The session was created before what the test calls next.
  rewrite._state.set_non_mixed_precision_session_created(False)
  return in_sessions


@pytest.mark.parametrize("mode", ["graph_v1", "eager"])
def test_turns_on_wraps_and_turns_off(mode):
  with helpers.mode_scope(mode):
    opt = tfl.enable_mixed_precision_graph_rewrite(sgd(), 123.0)
    assert is_on()
    assert isinstance(opt, tfl.MixedPrecisionLossScaleOptimizer)
    assert opt.loss_scale.get_config() == {"loss_scale_value": 123.0}
    tfl.disable_mixed_precision_graph_rewrite()
    assert not is_on()


def test_the_default_loss_scale_is_dynamic():
  opt = tfl.enable_mixed_precision_graph_rewrite(sgd())
  assert isinstance(opt.loss_scale, tfl.DynamicLossScale)
  loss_scale = tfl.DynamicLossScale(4)
  opt = tfl.enable_mixed_precision_graph_rewrite(sgd(), loss_scale)
  assert opt.loss_scale is loss_scale


_NO_OPTIMIZER = (
  r'"opt" must be an instance of a tf.train.Optimizer or a '
  r"tf.keras.optimizers.Optimizer, but got"
)
_WRAPPED = (
  '"opt" must not already be an instance of a MixedPrecisionLossScaleOptimizer'
)


@pytest.mark.parametrize(
  ("make", "loss_scale", "message"),
  [
    *((lambda x=x: x, 8, _NO_OPTIMIZER) for x in (1, None, "sgd")),
    (lambda: tf1.train.AdamOptimizer, 8, _NO_OPTIMIZER),
    *(
      (lambda m=m: m.MixedPrecisionLossScaleOptimizer(sgd(), 8), 8, _WRAPPED)
      for m in (tfl, helpers.OWN)
    ),
    *(
      (sgd, loss_scale, "loss.scale")
      for loss_scale in (None, "static", 0, True)
    ),
    (
      lambda: importlib.import_module(
        "tensorflow.python.keras.optimizer_v2.adam"
      ).Adam(),
      8,
      r"private copy of Keras: make one of tf.keras.*use_keras_2\(\)",
    ),
  ],
)
def test_refuses(make, loss_scale, message):
  with pytest.raises(ValueError, match=message):
    tfl.enable_mixed_precision_graph_rewrite(make(), loss_scale)
  assert not is_on()


def test_nothing_is_on_when_the_options_cannot_be_set(monkeypatch):
  def fail(options):
    raise RuntimeError("no such option")

  options = graph_rewrite.tf.config.optimizer
  monkeypatch.setattr(options, "set_experimental_options", fail)
  with pytest.raises(RuntimeError):
    tfl.enable_mixed_precision_graph_rewrite(sgd())
  monkeypatch.undo()
  assert not is_on()


def test_warnings(warnings):
  tfl.enable_mixed_precision_graph_rewrite(sgd())
  assert not warnings()
  with tf.Graph().as_default(), tf1.Session():
    tfl.disable_mixed_precision_graph_rewrite()
  with tf.Graph().as_default(), tf1.Session():
    tfl.enable_mixed_precision_graph_rewrite(sgd())
  assert set(warnings()) == {
    "You already have existing Sessions that do not use mixed precision. "
    "enable_mixed_precision_graph_rewrite() will not affect these Sessions."
  }


def test_warns_when_it_is_off_already(warnings):
  tfl.disable_mixed_precision_graph_rewrite()
  assert set(warnings()) == {
    "disable_mixed_precision_graph_rewrite() called when mixed precision is "
    "already disabled."
  }


# Optimizers of other families ----------------------------------------------


class Family:
  """A base class of optimizers, unknown to TensorFlow."""


class Wrapped(Family):
  def __init__(self, opt, loss_scale):
    self.opt, self.loss_scale = opt, loss_scale


def test_registered_families():
  with pytest.raises(ValueError, match="must be an instance of"):
    tfl.enable_mixed_precision_graph_rewrite(Family())
  graph_rewrite.register_loss_scale_wrapper(Family, Wrapped)
  opt = Family()
  wrapped = tfl.enable_mixed_precision_graph_rewrite(opt, 8)
  assert isinstance(wrapped, Wrapped)
  assert (wrapped.opt, wrapped.loss_scale) == (opt, 8)
  assert is_on()
  tfl.disable_mixed_precision_graph_rewrite()
  with pytest.raises(ValueError, match="already be an instance of a Wrapped"):
    tfl.enable_mixed_precision_graph_rewrite(wrapped)
  assert not is_on()


def test_a_family_registered_by_a_function():
  graph_rewrite.register_loss_scale_wrapper(
    Family, lambda opt, loss_scale: Wrapped(opt, loss_scale), Wrapped
  )
  assert isinstance(tfl.enable_mixed_precision_graph_rewrite(Family()), Wrapped)


def test_a_function_alone_does_not_say_what_it_makes():
  with pytest.raises(ValueError, match="wrapper_cls must be given"):
    graph_rewrite.register_loss_scale_wrapper(Family, lambda *args: None)


def _wrap_keras_2():
  keras_2 = importlib.import_module("tf_keras")
  assert keras_2 is not tf.keras
  scale = tfl.DynamicLossScale(4, 5, 6)
  for kind in (keras_2.optimizers, keras_2.optimizers.legacy):
    opt = tfl.enable_mixed_precision_graph_rewrite(kind.SGD(), scale)
    assert opt.loss_scale.multiplier == 6


@helpers.NEEDS_KERAS_3
def test_optimizers_of_keras_2_beside_keras_3():
  processes.run_alone(_wrap_keras_2)
