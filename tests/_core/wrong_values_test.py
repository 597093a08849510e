# SPDX-License-Identifier: Apache-2.0
"""Tests that errors lead on: what was meant, and what to use instead."""

import logging

import helpers
from helpers import OWN
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale import contrib
from tf_compat_lossscale import distributed
from tf_compat_lossscale import monitoring
from tf_compat_lossscale import policies

tf1 = tf.compat.v1
_Adam = tf1.train.AdamOptimizer


def _wrap(scale, opt=None):
  return tfl.MixedPrecisionLossScaleOptimizer(opt or _Adam(1e-3), scale)


def _manage(manager, **kwargs):
  return contrib.LossScaleOptimizer(_Adam(1e-3), manager, **kwargs)


class _KerasOptimizer:
  """An optimizer of Keras, as its class's module tells."""

  __module__ = "tf_keras.src.optimizers.optimizer"


def _message(error, function):
  with pytest.raises(error) as raised:
    function()
  return str(raised.value)


@pytest.mark.parametrize(
  ("make", "words"),
  [
    (lambda: _wrap("dynamc"), "'dynamc' (did you mean 'dynamic'?)"),
    (lambda: tfl.get("none"), "did you mean None?"),
    (lambda: _wrap("1024"), "did you mean the number 1024, without"),
    (
      lambda: tfl.get({"initial_loss_scal": 8}),
      "did you mean 'initial_loss_scale'?",
    ),
    (
      lambda: policies.GrowthBackoff(refill=("backof", "growth")),
      "did you mean 'backoff'?",
    ),
    (
      lambda: monitoring.LossScaleHook(_wrap(8), None, on_stuck="wran"),
      "did you mean 'warn'?",
    ),
    (
      lambda: distributed.agree(tfl.FixedLossScale(8), "horovd"),
      "did you mean 'horovod'?",
    ),
  ],
)
def test_words_that_are_nearly_right(make, words):
  assert words in _message(ValueError, make)


def test_words_that_are_like_none():
  for word in ("fixed", "", "x" * 100_000):
    message = _message(ValueError, lambda w=word: _wrap(w))
    assert "did you" not in message and len(message) < 2000


@pytest.mark.parametrize(
  "make",
  [
    lambda: _wrap("fixed"),
    lambda: _wrap(tfl.DynamicLossScale),
    lambda: tfl.enable_mixed_precision_graph_rewrite(_Adam(1e-3), "fixed"),
  ],
)
def test_none_is_not_offered_where_it_is_refused(make):
  assert "None" not in _message(ValueError, make)


def test_none_is_refused_with_what_to_pass():
  message = _message(ValueError, lambda: _wrap(None))
  assert "cannot be None: pass 'dynamic'" in message
  assert "None, 'dynamic'" in _message(ValueError, lambda: tfl.get("fixed"))


@pytest.mark.parametrize(
  "make",
  [
    lambda: _wrap(tfl.DynamicLossScale),
    lambda: _wrap(8, _Adam),
    lambda: _manage(contrib.FixedLossScaleManager),
    lambda: tfl.accumulate(tfl.MixedPrecisionLossScaleOptimizer, 2),
    lambda: tfl.enable_mixed_precision_graph_rewrite(_Adam),
    lambda: monitoring.LossScaleHook(contrib.LossScaleOptimizer, None),
    lambda: tfl.DynamicLossScale(increment_period=int),
  ],
)
def test_a_class_in_place_of_an_object(make):
  assert "did you forget ()?" in _message(ValueError, make)


@pytest.mark.parametrize(
  "make",
  [
    lambda opt: _wrap(8, opt),
    lambda opt: contrib.LossScaleOptimizer(
      opt, contrib.FixedLossScaleManager(8)
    ),
    lambda opt: tfl.enable_mixed_precision_graph_rewrite(opt),
  ],
)
def test_an_optimizer_of_keras(make):
  message = _message(ValueError, lambda: make(_KerasOptimizer()))
  assert "tf_compat_lossscale.keras.LossScaleOptimizer" in message
  message = _message(ValueError, lambda: make("adam"))
  assert "not its name" in message and "LossScaleOptimizer(" not in message


def test_an_optimizer_of_the_keras_that_is_here():
  opt = tf.keras.optimizers.SGD()
  message = _message(ValueError, lambda: _wrap(8, opt))
  assert "tf_compat_lossscale.keras.LossScaleOptimizer" in message
  if helpers.RELEASE >= (2, 16):
    assert "wrap it in keras.optimizers.LossScaleOptimizer" in message


def test_arguments_in_the_wrong_order():
  scale = tfl.DynamicLossScale()
  make = tfl.MixedPrecisionLossScaleOptimizer
  message = _message(ValueError, lambda: make(scale, _Adam(1e-3)))
  assert "Pass the optimizer first" in message
  message = _message(ValueError, lambda: make(_Adam(1e-3), _Adam(1e-3)))
  assert "Pass the optimizer first" in message


def test_loss_scales_of_others():
  message = _message(
    ValueError, lambda: _wrap(contrib.FixedLossScaleManager(8))
  )
  assert "to_loss_scale()" in message
  message = _message(ValueError, lambda: _wrap(OWN.FixedLossScale(8)))
  assert "Use this package's FixedLossScale" in message
  for scale in ("dynamic", tfl.DynamicLossScale()):
    message = _message(ValueError, lambda s=scale: _manage(s))
    assert "MixedPrecisionLossScaleOptimizer" in message
  message = _message(ValueError, lambda: _manage(128))
  assert "FixedLossScaleManager(128)" in message


@pytest.mark.parametrize(
  "make",
  [
    lambda: _wrap(8, _wrap("dynamic")),
    lambda: _wrap(8, OWN.MixedPrecisionLossScaleOptimizer(_Adam(1e-3), 8)),
    lambda: _wrap(8, _manage(contrib.FixedLossScaleManager(8))),
    lambda: _wrap(8, tfl.accumulate(_wrap(8), 2)),
    lambda: contrib.LossScaleOptimizer(
      _wrap(8), contrib.FixedLossScaleManager(8)
    ),
    lambda: _wrap(
      8, tf1.train.SyncReplicasOptimizer(_wrap(8), replicas_to_aggregate=1)
    ),
  ],
)
def test_wrapping_twice_warns(make, caplog):
  with caplog.at_level(logging.WARNING):
    make()
  assert "scales the loss already" in caplog.text


# Names that there are not --------------------------------------------------


def test_which_loss_scale_optimizer():
  message = _message(AttributeError, lambda: tfl.LossScaleOptimizer)
  for name in (
    "MixedPrecisionLossScaleOptimizer for optimizers of tf.compat.v1.train",
    "keras.LossScaleOptimizer for those of Keras",
    "contrib.LossScaleOptimizer",
  ):
    assert name in message


@pytest.mark.parametrize(
  ("module", "name", "where"),
  [
    (tfl, "LossScaleHook", "tf_compat_lossscale.monitoring.LossScaleHook"),
    (tfl, "Saver", "tf_compat_lossscale.checkpoint.Saver"),
    (tfl, "Policy", "tf_compat_lossscale.keras.Policy"),
    (tfl, "GrowthBackoff", "tf_compat_lossscale.policies.GrowthBackoff"),
    (checkpoint, "DynamicLossScale", "tf_compat_lossscale.DynamicLossScale"),
  ],
)
def test_names_of_other_modules(module, name, where):
  message = _message(AttributeError, lambda: getattr(module, name))
  assert message.endswith(f"did you mean {where}?")


def test_names_that_nobody_has():
  for name in ("bogus", "__wrapped__", "_Optimizer"):
    message = _message(AttributeError, lambda n=name: getattr(tfl, n))
    assert message.endswith(f"has no attribute {name!r}")


if __name__ == "__main__":
  helpers.main()
