# SPDX-License-Identifier: Apache-2.0
"""Small pieces of private modules of TensorFlow 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf


def scalar() -> Any:
  """Returns the shape of a scalar."""
  return tf.TensorShape([])


def vector(length: Any) -> Any:
  """Returns the shape of a vector."""
  return tf.TensorShape([length])


def matrix(rows: Any, cols: Any) -> Any:
  """Returns the shape of a matrix."""
  return tf.TensorShape([rows, cols])


class RegisterShape:
  """A decorator that does nothing: ops carry their shape functions now."""

  def __init__(self, op_type: str):
    self._op_type = op_type

  def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def register_dense_tensor_like_type(tensor_type: type) -> None:
  """Does nothing: a type is like a tensor if it can be converted to one."""
  del tensor_type
