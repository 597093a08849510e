# SPDX-License-Identifier: Apache-2.0
"""Pieces of `tf.contrib.framework`."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def get_placeholders(graph: Any) -> list[Any]:
  """Returns the outputs of all placeholders of a graph."""
  operations = graph.get_operations()
  return [op.outputs[0] for op in operations if op.type == "Placeholder"]


def with_shape(expected_shape: Any, tensor: Any) -> Any:
  """Returns a tensor that is known, or is checked, to have a shape.

  Args:
    expected_shape: A list of integers, or an integer tensor [rank].
    tensor: A tensor of any dtype.
  """
  tensor = tf.convert_to_tensor(tensor)
  static = tf.get_static_value(expected_shape)
  if static is not None:
    return tf.ensure_shape(tensor, [int(size) for size in static])
  check = tf.assert_equal(
    tf.shape(tensor), tf.cast(expected_shape, tf.int32), data=[tensor.name]
  )
  with tf.control_dependencies([check]):
    return tf.identity(tensor)


def with_same_shape(expected_tensor: Any, tensor: Any) -> Any:
  """Returns a tensor that is known, or checked, to have another's shape."""
  shape = expected_tensor.shape
  if shape.is_fully_defined():
    return with_shape(shape.as_list(), tensor)
  return with_shape(tf.shape(expected_tensor), tensor)
