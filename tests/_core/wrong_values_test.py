# SPDX-License-Identifier: Apache-2.0
"""Tests that errors lead on: what was meant, and what to use instead."""

import logging

import helpers
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


_TWICE = "MixedPrecisionLossScaleOptimizer"
_OF_KERAS = "tf_compat_lossscale.keras.LossScaleOptimizer"

# What is wrong -> what the error says.
_MISTAKES = [
  # Words that are nearly right.
  (lambda: _wrap("dynamc"), "'dynamc' (did you mean 'dynamic'?)"),
  (lambda: tfl.get("none"), "did you mean None?"),
  (lambda: _wrap("1024"), "did you mean the number 1024, without"),
  (lambda: tfl.get({"initial_loss_scal": 8}), "mean 'initial_loss_scale'?"),
  (
    lambda: tfl.get({"class_name": "FixedLossScal", "config": {"x": 1}}),
    "did you mean 'FixedLossScale'?",
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
  # None.
  (lambda: _wrap(None), "cannot be None: pass 'dynamic'"),
  (lambda: tfl.get("fixed"), "None, 'dynamic'"),
  # A class in place of an object.
  (lambda: _wrap(tfl.DynamicLossScale), "did you forget ()?"),
  (lambda: _wrap(8, _Adam), "did you forget ()?"),
  (lambda: _manage(contrib.FixedLossScaleManager), "did you forget ()?"),
  (
    lambda: tfl.accumulate(tfl.MixedPrecisionLossScaleOptimizer, 2),
    "did you forget ()?",
  ),
  (
    lambda: tfl.enable_mixed_precision_graph_rewrite(_Adam),
    "did you forget ()?",
  ),
  (
    lambda: monitoring.LossScaleHook(contrib.LossScaleOptimizer, None),
    "did you forget ()?",
  ),
  (lambda: tfl.DynamicLossScale(increment_period=int), "did you forget ()?"),
  # An optimizer of Keras, or its name.
  *(
    (lambda wrap=wrap, opt=opt: wrap(opt()), words)
    for wrap in (
      lambda opt: _wrap(8, opt),
      lambda opt: contrib.LossScaleOptimizer(
        opt, contrib.FixedLossScaleManager(8)
      ),
      tfl.enable_mixed_precision_graph_rewrite,
    )
    for opt, words in (
      (_KerasOptimizer, _OF_KERAS),
      (lambda: "adam", "not its name"),
    )
  ),
  (lambda: _wrap(8, tf.keras.optimizers.SGD()), _OF_KERAS),
  # Arguments in the wrong order.
  (
    lambda: _wrap(_Adam(1e-3), tfl.DynamicLossScale()),
    "Pass the optimizer first",
  ),
  (lambda: _wrap(_Adam(1e-3)), "Pass the optimizer first"),
  # Loss scales of others.
  (lambda: _wrap(contrib.FixedLossScaleManager(8)), "to_loss_scale()"),
  (
    lambda: _wrap(helpers.OWN.FixedLossScale(8)),
    "Use this package's FixedLossScale",
  ),
  (lambda: _manage("dynamic"), _TWICE),
  (lambda: _manage(tfl.DynamicLossScale()), _TWICE),
  (lambda: _manage(128), "FixedLossScaleManager(128)"),
]


@pytest.mark.parametrize(("make", "words"), _MISTAKES)
def test_errors_say_what_was_meant(make, words):
  assert words in _message(ValueError, make)


@pytest.mark.parametrize(
  ("make", "words"),
  [
    *(
      (lambda word=w: _wrap(word), "did you") for w in ("fixed", "", "x" * 9999)
    ),
    (lambda: _wrap("fixed"), "None"),
    (lambda: _wrap(tfl.DynamicLossScale), "None"),
    (
      lambda: tfl.enable_mixed_precision_graph_rewrite(_Adam(1e-3), "fixed"),
      "None",
    ),
    (lambda: _wrap(8, "adam"), "LossScaleOptimizer("),
  ],
)
def test_errors_do_not_offer_what_will_not_do(make, words):
  message = _message(ValueError, make)
  assert words not in message and len(message) < 2000


@pytest.mark.parametrize(
  "make",
  [
    lambda: _wrap(8, _wrap("dynamic")),
    lambda: _wrap(8, helpers.OWN.MixedPrecisionLossScaleOptimizer(_Adam(), 8)),
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


@pytest.mark.parametrize(
  ("module", "name", "words"),
  [
    (
      tfl,
      "LossScaleOptimizer",
      [
        "MixedPrecisionLossScaleOptimizer for optimizers of tf.compat.v1.train",
        "keras.LossScaleOptimizer for those of Keras",
        "contrib.LossScaleOptimizer",
      ],
    ),
    (tfl, "LossScaleHook", ["did you mean monitoring.LossScaleHook?"]),
    (tfl, "Saver", ["did you mean checkpoint.Saver?"]),
    (tfl, "Policy", ["did you mean keras.Policy?"]),
    (tfl, "GrowthBackoff", ["did you mean policies.GrowthBackoff?"]),
    (checkpoint, "DynamicLossScale", ["did you mean DynamicLossScale?"]),
    (tfl, "bogus", ["has no attribute 'bogus'"]),
    (tfl, "__wrapped__", ["has no attribute '__wrapped__'"]),
    (tfl, "_Optimizer", ["has no attribute '_Optimizer'"]),
  ],
)
def test_names_that_there_are_not(module, name, words):
  message = _message(AttributeError, lambda: getattr(module, name))
  message = message.replace("mean tf_compat_lossscale.", "mean ")
  assert all(word in message for word in words)
  assert len(words) > 1 or message.endswith(words[0])
