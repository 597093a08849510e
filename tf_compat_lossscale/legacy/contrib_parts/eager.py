# SPDX-License-Identifier: Apache-2.0
"""Pieces of `tf.contrib.eager`."""

from __future__ import annotations

from typing import Any


class Iterator:
  """An iterator over a dataset, for eager execution."""

  def __init__(self, dataset: Any):
    self._iterator = iter(dataset)

  def __iter__(self) -> Iterator:
    return self

  def __next__(self) -> Any:
    return next(self._iterator)

  def next(self) -> Any:
    """Returns the next element."""
    return next(self)

  def get_next(self, name: str | None = None) -> Any:
    """Returns the next element; raises `OutOfRangeError` at the end."""
    del name
    return self._iterator.get_next()
