# SPDX-License-Identifier: Apache-2.0
"""Pieces of `tf.contrib.eager`."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


class Iterator:
  """An iterator over a `tf.data.Dataset`, for eager execution."""

  def __init__(self, dataset: Any):
    self._dataset, self._iterator = dataset, iter(dataset)

  def __iter__(self) -> Iterator:
    return self

  def __next__(self) -> Any:
    return next(self._iterator)

  def next(self) -> Any:
    """Returns the next element.

    Raises:
      StopIteration: There are no more elements.
    """
    return next(self)

  def get_next(self, name: str | None = None) -> Any:
    """Returns the next element; `name` is not used.

    Raises:
      tf.errors.OutOfRangeError: There are no more elements.
    """
    del name
    return self._iterator.get_next()

  @property
  def element_spec(self) -> Any:
    """The specification of an element."""
    return self._dataset.element_spec

  @property
  def output_classes(self) -> Any:
    """The classes of an element's components."""
    return tf.data.get_output_classes(self._dataset)

  @property
  def output_shapes(self) -> Any:
    """The shapes of an element's components."""
    return tf.data.get_output_shapes(self._dataset)

  @property
  def output_types(self) -> Any:
    """The dtypes of an element's components."""
    return tf.data.get_output_types(self._dataset)
