# SPDX-License-Identifier: Apache-2.0
"""Pieces of `tf.contrib.data`: functions for `tf.data.Dataset.apply`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf
import tensorflow.compat.v2 as tf2

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


def assert_element_shape(expected_shapes: Any) -> _Transformation:
  """Returns a transformation that checks each element's shape and sets it.

  Args:
    expected_shapes: A shape for each tensor of an element, in dicts and tuples
      as in the element.

  Returns:
    A function from a dataset to a dataset with the same dtypes.

  Raises:
    ValueError: The dataset's known shapes contradict `expected_shapes`. The
      function that is returned raises the error.
    tf.errors.InvalidArgumentError: An element has another shape. The error is
      raised when the element is read.
  """

  def check(*components: Any) -> Any:
    element = components if len(components) > 1 else components[0]
    return tf2.__internal__.nest.map_structure_up_to(
      element, tf.ensure_shape, element, expected_shapes, check_types=False
    )

  return lambda dataset: dataset.map(check)


def sliding_window_batch(
  window_size: Any,
  stride: Any = None,
  window_shift: Any = None,
  window_stride: Any = 1,
) -> _Transformation:
  """Returns a transformation that batches elements in windows that slide.

  Args:
    window_size: The number of elements in a window, an integer []. So are the
      other arguments.
    stride: An older name of `window_shift`.
    window_shift: How far one window begins after the window before; 1 by
      default.
    window_stride: The distance of a window's elements in the input.

  Returns:
    A function from a dataset to a dataset. Elements [...] become
    [window_size, ...], of the same dtypes. Smaller windows are dropped.

  Raises:
    ValueError: Both `stride` and `window_shift` are given.
  """
  if stride is not None and window_shift is not None:
    raise ValueError(
      f"sliding_window_batch got stride={stride} and "
      f"window_shift={window_shift}: give one of the two"
    )
  shift = next((x for x in (window_shift, stride) if x is not None), 1)

  def apply(dataset: Any) -> Any:
    windows = dataset.window(
      window_size, shift=shift, stride=window_stride, drop_remainder=True
    )
    return windows.flat_map(lambda *parts: _batch_windows(parts, window_size))

  return apply


def _batch_windows(parts: Any, size: Any) -> Any:
  """Returns a dataset of one element: the batch of a window's elements."""
  batches = tf.nest.map_structure(
    lambda part: part.batch(size, drop_remainder=True), parts
  )
  if len(batches) == 1 and isinstance(batches[0], tf.data.Dataset):
    return batches[0]
  return tf.data.Dataset.zip(batches if len(batches) > 1 else batches[0])
