# SPDX-License-Identifier: Apache-2.0
"""The rivals: an optimizer by itself, and the same optimizer in wrappers."""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import dataclasses
from typing import Any
from unittest import mock

import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import gradients
from tf_compat_lossscale import policies

tf1 = tf.compat.v1
_OWN = tf1.mixed_precision

OPTIMIZERS: dict[str, Callable[[], tf1.train.Optimizer]] = {
  "sgd": lambda: tf1.train.GradientDescentOptimizer(1e-6),
  "momentum": lambda: tf1.train.MomentumOptimizer(1e-6, 0.9),
  "adam": lambda: tf1.train.AdamOptimizer(1e-6),
}


def _yes(grads: Any) -> tf.Tensor:
  """Replaces the check of gradients: returns true without waiting for them."""
  del grads
  if tf.executing_eagerly():
    return tf.constant(True)
  # Given a constant, TensorFlow would remove the cond, too.
  return tf.random.uniform([]) < 2


def _awaited(grads: Any) -> tf.Tensor:
  """Replaces the check of gradients: waits for all of them and reads none.

  No real check can be faster.
  """
  flat = [grad for grad in tf.nest.flatten(grads) if grad is not None]
  with tf.control_dependencies(flat):
    return _yes(grads)


@dataclasses.dataclass(frozen=True)
class Rival:
  """A way to wrap an optimizer, and what replaces the check of gradients."""

  wrap: Callable[[tf1.train.Optimizer], tf1.train.Optimizer]
  check: Callable[[Any], tf.Tensor] | None = None

  def entered(self) -> contextlib.AbstractContextManager[Any]:
    """Returns the context in which to build the step and, if eager, run it."""
    if self.check is None:
      return contextlib.nullcontext()
    return mock.patch.object(gradients, "all_finite", self.check)


def _own(scale: Any) -> Rival:
  return Rival(lambda opt: _OWN.MixedPrecisionLossScaleOptimizer(opt, scale()))


def _ours(scale: Any, check: Any = None) -> Rival:
  return Rival(
    lambda opt: tfl.MixedPrecisionLossScaleOptimizer(opt, scale()), check
  )


RIVALS: dict[str, Rival] = {
  "bare": Rival(lambda opt: opt),
  "TensorFlow": _own(_OWN.DynamicLossScale),
  "ours": _ours(tfl.DynamicLossScale),
  "awaited": _ours(tfl.DynamicLossScale, _awaited),
  "floor": _ours(tfl.DynamicLossScale, _yes),
  "TensorFlow, fixed": _own(lambda: _OWN.FixedLossScale(1024.0)),
  "ours, fixed": _ours(lambda: tfl.FixedLossScale(1024.0)),
}
MAIN = ("bare", "TensorFlow", "ours")
RULE = "DynamicLossScale"
# The rules to compare with `RULE`. Together, they have every part that costs: a
# hysteresis, an error at the minimum, and a tolerance.
POLICIES: dict[str, Rival] = {
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
