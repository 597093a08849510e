# SPDX-License-Identifier: Apache-2.0
"""Wrappers of cells of `tf.contrib.rnn`.

Inputs and outputs are floats [batch, size] in one dtype.

Variables have the names that TensorFlow 1.15 gave them.
"""

from __future__ import annotations

from collections.abc import Callable
import math
from typing import Any

import tensorflow.compat.v1 as tf

from tf1_contrib.private import linear
from tf1_contrib.rnn_blocks import RNNCell


class _Wrapper(RNNCell):
  """A base class for wrappers of cells."""

  def __init__(self, cell: Any, reuse: bool | None = None):
    super().__init__(_reuse=reuse)
    self._cell = cell

  @property
  def state_size(self) -> Any:
    """The size of the wrapped cell's state."""
    return self._cell.state_size

  @property
  def output_size(self) -> Any:
    """The size of the wrapped cell's output."""
    return self._cell.output_size

  def zero_state(self, batch_size: Any, dtype: Any) -> Any:
    """Returns the wrapped cell's state of zeros."""
    with tf.name_scope(f"{type(self).__name__}ZeroState"):
      return self._cell.zero_state(batch_size, dtype)


class InputProjectionWrapper(_Wrapper):
  """A wrapper that multiplies inputs [batch, depth] by [depth, num_proj]."""

  def __init__(
    self,
    cell: Any,
    num_proj: int,
    activation: Callable[[Any], Any] | None = None,
    input_size: Any = None,
    reuse: bool | None = None,
  ):
    del input_size
    super().__init__(cell, reuse)
    self._projected, self._activate = num_proj, activation or tf.identity

  def call(self, inputs: Any, state: Any) -> Any:
    """Runs a step."""
    inputs = self._activate(linear(inputs, self._projected))
    return self._cell(inputs, state)


class OutputProjectionWrapper(_Wrapper):
  """A wrapper whose outputs [batch, output_size] are the cell's by a matrix."""

  def __init__(
    self,
    cell: Any,
    output_size: int,
    activation: Callable[[Any], Any] | None = None,
    reuse: bool | None = None,
  ):
    super().__init__(cell, reuse)
    self._projected, self._activate = output_size, activation or tf.identity

  @property
  def output_size(self) -> int:
    """The size of the output."""
    return self._projected

  def call(self, inputs: Any, state: Any) -> Any:
    """Runs a step."""
    output, state = self._cell(inputs, state)
    return self._activate(linear(output, self._projected)), state


class EmbeddingWrapper(_Wrapper):
  """A wrapper that replaces ids, integers [batch], by embeddings.

  The variable `embedding` is [embedding_classes, embedding_size].
  """

  def __init__(
    self,
    cell: Any,
    embedding_classes: int,
    embedding_size: int,
    initializer: Any = None,
    reuse: bool | None = None,
  ):
    super().__init__(cell, reuse)
    self._shape = [embedding_classes, embedding_size]
    self._initializer = initializer

  def call(self, inputs: Any, state: Any) -> Any:
    """Runs a step."""
    with tf.device("/cpu:0"):
      limit = math.sqrt(3)  # The variance is 1 then.
      embeddings = tf.get_variable(
        "embedding",
        self._shape,
        tf.nest.flatten(state)[0].dtype,
        self._initializer
        or tf.get_variable_scope().initializer
        or tf.random_uniform_initializer(-limit, limit),
      )
      ids = tf.reshape(inputs, [-1])
      return self._cell(tf.nn.embedding_lookup(embeddings, ids), state)


class HighwayWrapper(_Wrapper):
  """A wrapper that mixes the inputs into the outputs by a gate.

  Inputs and outputs have one shape, [batch, size].
  """

  def __init__(
    self,
    cell: Any,
    couple_carry_transform_gates: bool = True,
    carry_bias_init: float = 1.0,
  ):
    super().__init__(cell)
    self._coupled = couple_carry_transform_gates
    self._bias = carry_bias_init

  def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
    """Runs a step."""
    outputs, state = self._cell(inputs, state, scope=scope)
    return tf.nest.map_structure(self._mix, inputs, outputs), state

  def _mix(self, inputs: Any, outputs: Any) -> Any:
    carry = self._make_gate("carry", inputs, self._bias)
    transform = 1 - carry
    if not self._coupled:
      transform = self._make_gate("transform", inputs, -self._bias)
    return inputs * carry + outputs * transform

  def _make_gate(self, name: str, inputs: Any, bias: float) -> Any:
    """Returns a gate; makes its variables."""
    size, dtype = inputs.shape[-1], inputs.dtype
    kernel = tf.get_variable(f"{name}_w", [size, size], dtype)
    start = tf.constant_initializer(bias)
    biases = tf.get_variable(f"{name}_b", [size], dtype, initializer=start)
    return tf.sigmoid(tf.nn.xw_plus_b(inputs, kernel, biases))


class AttentionCellWrapper(RNNCell):
  """A wrapper that attends to the last `attn_length` outputs.

  The state is a tuple: the cell's state, the attention [batch, attn_size], and
  the last outputs [batch, attn_length * attn_size].
  """

  def __init__(
    self,
    cell: Any,
    attn_length: int,
    attn_size: int | None = None,
    attn_vec_size: int | None = None,
    input_size: int | None = None,
    state_is_tuple: bool = True,
    reuse: bool | None = None,
  ):
    super().__init__(_reuse=reuse)
    if attn_length <= 0:
      raise ValueError(f"attn_length is {attn_length}: it must be positive")
    if not state_is_tuple:
      raise ValueError("state_is_tuple=False went with tf.contrib")
    self._cell = cell
    self._length = attn_length
    self._size = attn_size or cell.output_size
    self._vector = attn_vec_size or self._size
    self._input_size = input_size

  @property
  def state_size(self) -> Any:
    """The sizes of the cell's state, the attention, and the last outputs."""
    return (self._cell.state_size, self._size, self._size * self._length)

  @property
  def output_size(self) -> int:
    """The size of the output."""
    return self._size

  def call(self, inputs: Any, state: Any) -> Any:
    """Runs a step."""
    state, attention, memory = state
    size = self._input_size or inputs.shape[-1]
    inputs = linear([inputs, attention], size)
    output, state = self._cell(inputs, state)
    memory = tf.reshape(memory, [-1, self._length, self._size])
    query = tf.concat(tf.nest.flatten(state), 1)
    attention = self._attend(query, memory)
    with tf.variable_scope("attn_output_projection"):
      output = linear([output, attention], self._size)
    memory = tf.concat([memory[:, 1:], tf.expand_dims(output, 1)], 1)
    memory = tf.reshape(memory, [-1, self._length * self._size])
    return output, (state, attention, memory)

  def _attend(self, query: Any, memory: Any) -> Any:
    """Returns the mean of the last outputs, weighted by a query."""
    with tf.variable_scope("attention"):
      dtype = query.dtype
      shape = [1, 1, self._size, self._vector]
      kernel = tf.get_variable("attn_w", shape, dtype)
      vector = tf.get_variable("attn_v", [self._vector], dtype)
      query = tf.expand_dims(linear(query, self._vector), 1)
      features = tf.tensordot(memory, kernel[0, 0], 1)
      scores = tf.reduce_sum(vector * tf.tanh(features + query), 2)
      weights = tf.expand_dims(tf.nn.softmax(scores), 2)
      return tf.reduce_sum(weights * memory, 1)
