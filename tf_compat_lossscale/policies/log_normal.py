# SPDX-License-Identifier: Apache-2.0
"""A loss scale that follows statistics of the largest gradient."""

from __future__ import annotations

import math
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale import gradients
from tf_compat_lossscale._core import stepping
from tf_compat_lossscale._core.tf import control_flow
from tf_compat_lossscale.policies import base
from tf_compat_lossscale.policies import float32
from tf_compat_lossscale.policies import log_normal_rule as rules

_MANTISSA_BITS = 52
_MANTISSA = (1 << _MANTISSA_BITS) - 1
_BIAS = 1023
_ONE = _BIAS << _MANTISSA_BITS  # The bits of 1.0.


class LogNormal(base.Policy):
  """A loss scale that keeps the chance of an overflow small.

  The rule takes log2 of the largest |g| for normally distributed, and estimates
  its mean and variance by exponential averages. The scale is the largest power
  of 2 for which the next step overflows with `overflow_probability` at most.
  `LogNormalRule` has the whole rule.

  The idea is that of LogMax in NVIDIA's OpenSeq2Seq (2018). There, an overflow
  entered the averages as 2**16 where log2 of a gradient was expected, which
  spoiled them for hundreds of steps; the limit was a constant; the variables
  had no names. Here, an overflow leaves the averages as they are. It lowers the
  scale, and a ceiling that keeps the scale low, because gradients that the
  averages do not know have overflowed. The ceiling doubles after each
  `recovery_interval` consecutive finite steps.

  The state is seven scalar variables in each graph: `current_loss_scale` and
  `ceiling` (float32), `log2_mean` and `log2_variance` (float64), and the counts
  `good_steps`, `observations` and `skipped_steps` (int64).
  """

  def __init__(
    self,
    initial_loss_scale: float = 2**15,
    overflow_probability: float = 0.001,
    limit: float = 65504.0,
    mean_decay: float = 0.99,
    variance_decay: float = 0.999,
    warmup_steps: int = 20,
    backoff_factor: float = 0.5,
    recovery_interval: int = 200,
    min_loss_scale: float = 1.0,
    max_loss_scale: float = 2**24,
  ) -> None:
    """Creates a loss scale, and its variables in the current graph.

    Args:
      initial_loss_scale: The first scale, within the bounds below.
      overflow_probability: The chance of an overflow in a step; between 0 and
        1.
      limit: The largest scaled gradient that does not overflow. The default is
        float16's largest number.
      mean_decay: The weight of the old mean in the new mean; between 0 and 1.
      variance_decay: The same for the variance.
      warmup_steps: The scale follows the averages once they hold that many
        steps; whole, at least 1.
      backoff_factor: The factor by which the scale and its ceiling fall at a
        step that is not finite; between 0 and 1.
      recovery_interval: The number of consecutive finite steps after which the
        ceiling doubles; whole, at least 1.
      min_loss_scale: The lowest scale, at least 2**-126.
      max_loss_scale: The highest scale, finite in float32.

    Raises:
      ValueError: An argument is none of these; the message names it.
    """
    super().__init__(
      rules.LogNormalRule(
        initial_loss_scale,
        overflow_probability,
        limit,
        mean_decay,
        variance_decay,
        warmup_steps,
        backoff_factor,
        recovery_interval,
        min_loss_scale,
        max_loss_scale,
      )
    )

  def _find_dtype(self, name: str) -> tf.DType:
    """Returns float64 for the averages, and float32 for others."""
    return tf.float64 if name.startswith("log2_") else tf.float32

  def update(self, grads: Any) -> tuple[tf.Tensor | None, tf.Tensor]:
    """Applies the rule, once for all replicas.

    Args:
      grads: A nest of unscaled gradients. If a gradient of any replica is not
        finite, the step is not finite for every replica. Otherwise the largest
        gradient is that of all replicas.

    Returns:
      A pair: a tensor that depends on the update (None when eager), and a bool
      scalar, True if all gradients are finite.

    Raises:
      ValueError: In a replica context of a `tf.distribute` strategy.
    """
    finite = gradients.all_replicas_finite(grads)
    largest = gradients.find_largest(grads)
    # Name-based checkpoints depend on cond names: see DynamicLossScale.
    with self._lock_if_eager(), tf.name_scope("cond"):
      update = control_flow.cond(
        finite, lambda: self._follow(largest), self._back_off
      )
      return stepping.finish(update, finite)

  def _assign(self, **values: tf.Tensor) -> tf.Operation | None:
    """Assigns values to weights, once all values are computed."""
    with tf.control_dependencies(list(values.values())):
      return tf.group(
        [self._get_weight(name).assign(value) for name, value in values.items()]
      )

  def _back_off(self) -> tf.Operation | None:
    """Lowers the scale and its ceiling."""
    scale = self._clip(self._read("current_loss_scale"))
    product = tf.cast(scale, tf.float64) * self._rule.backoff_factor
    lower = self._clip(
      tf.cast(tf.maximum(product, float32.SMALLEST), tf.float32)
    )
    assigned = self._assign(
      current_loss_scale=lower,
      ceiling=lower,
      good_steps=tf.constant(0, tf.int64),
    )
    return tf.group(assigned, self._count_skipped(1))

  def _follow(self, largest: tf.Tensor) -> tf.Operation | None:
    """Counts a finite step, and sets the scale by the averages."""
    rule = self._rule
    good = self._read("good_steps") + 1
    ended = good >= rule.recovery_interval
    ceiling = self._read("ceiling")
    doubled = 2 * tf.minimum(ceiling, float32.LARGEST_POWER / 2)
    ceiling = tf.where(ended, doubled, ceiling)
    count, mean, variance = self._observe(largest)
    power = tf.floor(rule.log2_limit - mean - rule.quantile * tf.sqrt(variance))
    wanted = tf.minimum(_power_of_2(power), ceiling)
    return self._assign(
      current_loss_scale=tf.where(
        count < rule.warmup_steps,
        self._read("current_loss_scale"),
        self._clip(wanted),
      ),
      good_steps=tf.where(ended, tf.constant(0, tf.int64), good),
      ceiling=ceiling,
      observations=count,
      log2_mean=mean,
      log2_variance=variance,
    )

  def _observe(
    self, largest: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the count, mean and variance that include a step's gradients."""
    rule = self._rule
    count = self._read("observations")
    mean, variance = self._read("log2_mean"), self._read("log2_variance")
    x = _log2(tf.clip_by_value(largest, float32.SMALLEST, float32.LARGEST))
    error = x - mean
    n = tf.cast(count, tf.float64)
    a = tf.maximum(tf.constant(1 - rule.mean_decay, tf.float64), 1 / (n + 1))
    b = tf.maximum(
      tf.constant(1 - rule.variance_decay, tf.float64), 1 / tf.maximum(n, 1)
    )
    is_first = tf.equal(count, 0)
    new_mean = tf.where(is_first, x, mean + a * error)
    new_variance = tf.where(
      is_first,
      tf.zeros_like(variance),
      (1 - b) * (variance + b * (error * error)),
    )
    is_seen = largest > 0  # The logarithm of 0 would spoil the averages.
    return (
      tf.where(is_seen, count + 1, count),
      tf.where(is_seen, new_mean, mean),
      tf.where(is_seen, new_variance, variance),
    )


def _log2(number: tf.Tensor) -> tf.Tensor:
  """Returns log2 of a positive, normal float64 scalar, exact for powers of 2.

  The exponent and the mantissa are taken apart as in `log_normal_rule.log2`.
  """
  bits = tf.bitcast(number, tf.int64)
  exponent = tf.bitwise.right_shift(bits, tf.constant(_MANTISSA_BITS, tf.int64))
  mantissa = tf.bitcast((bits & _MANTISSA) | _ONE, tf.float64)
  return tf.cast(exponent - _BIAS, tf.float64) + (
    tf.math.log(mantissa) / math.log(2.0)
  )


def _power_of_2(power: tf.Tensor) -> tf.Tensor:
  """Returns 2 to a whole power, exactly: a normal number of float32."""
  power = tf.clip_by_value(
    power, float32.LEAST_EXPONENT, float32.LARGEST_EXPONENT
  )
  bits = tf.bitwise.left_shift(
    tf.cast(power, tf.int32) + 127, tf.constant(23, tf.int32)
  )
  return tf.bitcast(bits, tf.float32)
