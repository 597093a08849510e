# SPDX-License-Identifier: Apache-2.0
"""Pieces of `tf.contrib.framework`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf
import tensorflow.compat.v2 as tf2


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


def py_func(
  func: Callable[..., Any],
  args: Any = (),
  kwargs: Any = None,
  output_types: Any = None,
  output_shapes: Any = None,
  stateful: bool = True,
  name: str | None = None,
) -> Any:
  """Returns what a Python function returns for nests of tensors.

  Args:
    func: A function of NumPy arrays.
    args: The positional arguments, a list or tuple of nests of tensors.
    kwargs: The keyword arguments, a dict of nests of tensors.
    output_types: The dtypes of the nest that `func` returns; or a function of
      the arguments that returns them.
    output_shapes: The shapes, in the same form; None if they are unknown.
    stateful: Whether two calls may return different values.
    name: The op's name.
  """
  kwargs = {} if kwargs is None else kwargs
  if not isinstance(args, list | tuple) or not isinstance(kwargs, dict):
    raise TypeError(
      f"args must be a list or tuple and kwargs a dict, but got args={args!r} "
      f"and kwargs={kwargs!r}"
    )
  types, shapes = (
    each(*args, **kwargs) if callable(each) else each
    for each in (output_types, output_shapes)
  )
  given = tuple(args), kwargs

  def call(*flat: Any) -> list[Any]:
    positional, named = tf.nest.pack_sequence_as(given, flat)
    returned = func(*positional, **named)
    tf.nest.assert_same_structure(types, returned)
    return list(tf.nest.flatten(returned))

  values = tf.py_func(
    call, tf.nest.flatten(given), tf.nest.flatten(types), stateful, name
  )
  packed = tf.nest.pack_sequence_as(types, values)
  if shapes is not None:
    flat_shapes = tf2.__internal__.nest.flatten_up_to(
      types, shapes, check_types=False
    )
    for value, shape in zip(values, flat_shapes):
      value.set_shape(tf.TensorShape(shape))
  return packed
