# SPDX-License-Identifier: Apache-2.0
"""Pieces of `tf.contrib.data`: functions for `tf.data.Dataset.apply`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

_Transformation = Callable[[Any], Any]


def batch_and_drop_remainder(batch_size: Any) -> _Transformation:
  """Returns a transformation that batches, and drops a smaller last batch.

  Args:
    batch_size: An integer [].

  Returns:
    A function from a dataset to a dataset. Elements [...] become
    [batch_size, ...], of the same dtypes.
  """
  return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(
  batch_size: Any, padded_shapes: Any, padding_values: Any = None
) -> _Transformation:
  """Returns a transformation that pads, batches, and drops a smaller batch.

  Args:
    batch_size: An integer [].
    padded_shapes: The shapes of an element's components after padding.
    padding_values: A value [] for each component, of its dtype; None for what
      `tf.data.Dataset.padded_batch` pads with by default.

  Returns:
    A function from a dataset to a dataset, whose elements are
    [batch_size, ...].
  """
  return lambda dataset: dataset.padded_batch(
    batch_size, padded_shapes, padding_values, drop_remainder=True
  )


def sloppy_interleave(
  map_func: Callable[..., Any], cycle_length: int, block_length: int = 1
) -> _Transformation:
  """Returns a transformation that interleaves datasets in any order.

  Args:
    map_func: A function from an element to a dataset.
    cycle_length: The number of datasets that are read at a time, [].
    block_length: The number of elements in a row from one dataset, [].

  Returns:
    A function from a dataset to a dataset.
  """
  return tf.data.experimental.parallel_interleave(
    map_func, cycle_length, block_length, sloppy=True
  )
