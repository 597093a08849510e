# SPDX-License-Identifier: Apache-2.0
"""Measures what gradients hold: infinities, NaNs, zeros, large numbers."""

from __future__ import annotations

from collections.abc import Sequence
import math

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale.monitoring import steps

# The numbers of a gradient: infinities, NaNs, zeros, size, largest magnitude,
# and of the finite magnitudes that are not 0: the sum of log2, the smallest.
COLUMNS = 7


def measure(values: Sequence[tf.Tensor]) -> tf.Tensor:
  """Measures tensors.

  Args:
    values: Dense tensors of numbers, of any shapes.

  Returns:
    A float64 tensor of shape [number of tensors, `COLUMNS`].
  """
  if not values:
    return tf.zeros([0, COLUMNS], tf.float64)
  return tf.stack([_measure_one(value) for value in values])


def decode(names: Sequence[str], rows: np.ndarray) -> list[steps.Contents]:
  """Returns the contents of gradients, added up over replicas.

  Args:
    names: A name for each row.
    rows: What `measure` returned.
  """
  contents = []
  for name, row in zip(names, rows.tolist()):
    infinities, nans, zeros, size = map(int, row[:4])
    count = size - zeros - infinities - nans
    typical = 2.0 ** (row[5] / count) if count > 0 else 0.0
    contents.append(
      steps.Contents(
        *(name, infinities, nans, zeros, size, row[4], typical, row[6])
      )
    )
  return steps.add_replicas(contents)


def _measure_one(value: tf.Tensor) -> tf.Tensor:
  """Returns the numbers of a tensor, of shape [`COLUMNS`]."""
  if value.dtype.is_complex:
    real, imag = tf.math.real(value), tf.math.imag(value)
    infinite = tf.math.is_inf(real) | tf.math.is_inf(imag)
    nan = tf.math.is_nan(real) | tf.math.is_nan(imag)
    magnitude = tf.maximum(tf.abs(real), tf.abs(imag))
  else:
    if not value.dtype.is_floating:
      value = tf.cast(value, tf.float64)
    infinite, nan = tf.math.is_inf(value), tf.math.is_nan(value)
    magnitude = tf.abs(value)
  # A cast to float64 is exact. Some dtypes, such as bfloat16, lack other ops.
  magnitude = tf.cast(magnitude, tf.float64)
  finite = tf.where(infinite | nan, tf.zeros_like(magnitude), magnitude)
  is_some = finite > 0
  ones = tf.ones_like(finite)
  some = tf.where(is_some, finite, ones)
  # The maximum of no elements is an infinity below 0.
  largest = tf.maximum(tf.reduce_max(finite), 0.0)
  smallest = tf.reduce_min(tf.where(is_some, finite, ones * tf.float64.max))
  numbers = [
    _count(infinite),
    # A complex number with an infinite and a NaN part counts as infinite.
    _count(nan & ~infinite),
    _count(tf.equal(magnitude, 0)),
    tf.cast(tf.size(magnitude, tf.int64), tf.float64),
    largest,
    tf.reduce_sum(tf.math.log(some)) / math.log(2),
    tf.where(largest > 0, smallest, 0.0),
  ]
  return tf.stack(numbers)


def _count(flags: tf.Tensor) -> tf.Tensor:
  """Returns how many flags are True, a float64 scalar."""
  return tf.reduce_sum(tf.cast(flags, tf.float64))
