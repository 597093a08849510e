# SPDX-License-Identifier: Apache-2.0
"""Small pieces of private modules of TensorFlow 1."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
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


def RegisterShape(op_type: str) -> Callable[[Any], Any]:
  """Returns a decorator that does nothing: ops have their shape functions."""
  del op_type
  return lambda function: function


def register_dense_tensor_like_type(tensor_type: type) -> None:
  """Does nothing: a type is like a tensor if it can be converted to one."""
  del tensor_type


def register_op_list(op_list: Any) -> None:
  """Does nothing: TensorFlow registers the ops of a library as it loads it."""
  del op_list


def unknown_shape(op: Any) -> list[Any]:
  """Returns an unknown shape for each output: for `RegisterShape`."""
  return [tf.TensorShape(None) for _ in op.outputs]


class Linear:
  """`concat(args) * kernel + bias`, with variables of the current scope."""

  def __init__(
    self,
    args: Any,
    output_size: int,
    build_bias: bool,
    bias_initializer: Any = None,
    kernel_initializer: Any = None,
  ):
    """Creates the variables `kernel` and, if asked for, `bias`.

    Args:
      args: A tensor [batch, size], or a list of such, whose sizes are known.
      output_size: The last dimension of the result.
      build_bias: Whether to add a bias.
      bias_initializer: The bias's initializer; zeros if None.
      kernel_initializer: The kernel's initializer; the scope's if None.

    Raises:
      ValueError: `args` is empty, or no such tensor.
    """
    tensors = _list_tensors(args)
    scope, dtype = tf.get_variable_scope(), tensors[0].dtype
    sizes = [_find_size(tensor) for tensor in tensors]
    with tf.variable_scope(scope) as outer:
      self._weights = tf.get_variable(
        *("kernel", [sum(sizes), output_size], dtype, kernel_initializer)
      )
      self._biases = None
      if build_bias:
        with tf.variable_scope(outer) as inner:
          inner.set_partitioner(None)
          if bias_initializer is None:
            bias_initializer = tf.constant_initializer(0.0, dtype=dtype)
          self._biases = tf.get_variable(
            *("bias", [output_size], dtype, bias_initializer)
          )

  def __call__(self, args: Any) -> Any:
    """Returns the result [batch, output_size] for tensors of the same sizes."""
    tensors = _list_tensors(args)
    joined = tensors[0] if len(tensors) == 1 else tf.concat(tensors, 1)
    result = tf.matmul(joined, self._weights)
    if self._biases is None:
      return result
    return tf.nn.bias_add(result, self._biases)


def linear(
  args: Any,
  output_size: int,
  bias: bool = True,
  bias_initializer: Any = None,
  kernel_initializer: Any = None,
) -> Any:
  """Returns `Linear` of the same arguments, called with `args`."""
  make = Linear(args, output_size, bias, bias_initializer, kernel_initializer)
  return make(args)


def _list_tensors(args: Any) -> list[Any]:
  """Returns one tensor or several as a list."""
  listed = isinstance(args, Sequence) and not isinstance(args, str)
  tensors = list(args) if listed else [] if args is None else [args]
  if not tensors:
    raise ValueError(f"_Linear got args={args!r}: give a tensor, or a list")
  return tensors


def _find_size(tensor: Any) -> int:
  """Returns the last dimension of a matrix."""
  shape = tensor.shape
  if shape.ndims != 2 or tf.compat.dimension_value(shape[1]) is None:
    raise ValueError(
      f"_Linear got a tensor of shape {shape}: give [batch, size], with a "
      "known size"
    )
  return int(tf.compat.dimension_value(shape[1]))
