# SPDX-License-Identifier: Apache-2.0
"""The rivals: an optimizer by itself, and the same optimizer in wrappers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from typing import TypeAlias

import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import policies

tf1 = tf.compat.v1
_OWN = tf1.mixed_precision
Wrapper: TypeAlias = Callable[[tf1.train.Optimizer], tf1.train.Optimizer]

OPTIMIZERS: dict[str, Callable[[], tf1.train.Optimizer]] = {
  "sgd": lambda: tf1.train.GradientDescentOptimizer(1e-6),
  "momentum": lambda: tf1.train.MomentumOptimizer(1e-6, 0.9),
  "adam": lambda: tf1.train.AdamOptimizer(1e-6),
}


def _own(scale: Any) -> Wrapper:
  return lambda opt: _OWN.MixedPrecisionLossScaleOptimizer(opt, scale())


def _ours(scale: Any) -> Wrapper:
  return lambda opt: tfl.MixedPrecisionLossScaleOptimizer(opt, scale())


RIVALS: dict[str, Wrapper] = {
  "bare": lambda opt: opt,
  "TensorFlow": _own(_OWN.DynamicLossScale),
  "ours": _ours(tfl.DynamicLossScale),
  "TensorFlow, fixed": _own(lambda: _OWN.FixedLossScale(1024.0)),
  "ours, fixed": _ours(lambda: tfl.FixedLossScale(1024.0)),
}
MAIN = ("bare", "TensorFlow", "ours")
RULE = "DynamicLossScale"
# The rules to compare with `RULE`. Together, they have every part that costs: a
# hysteresis, an error at the minimum, and a tolerance.
POLICIES: dict[str, Wrapper] = {
  RULE: RIVALS["ours"],
  "GrowthBackoff": _ours(policies.GrowthBackoff),
  "hysteresis": _ours(lambda: policies.GrowthBackoff(hysteresis=2)),
  "raise": _ours(
    lambda: policies.GrowthBackoff(
      hysteresis=2, at_minimum="raise", good_steps_after_growth=1
    )
  ),
  "tolerance": _ours(lambda: policies.GrowthBackoff(overflow_tolerance=0.25)),
}
