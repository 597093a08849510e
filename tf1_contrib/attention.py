# SPDX-License-Identifier: Apache-2.0
"""The attention of `tf.contrib.seq2seq`.

Variables have the names that TensorFlow 1.15 gave them.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
import math
from typing import Any

import tensorflow.compat.v1 as tf

from tf1_contrib.decoder import make_zeros
from tf1_contrib.rnn_blocks import RNNCell


class AttentionMechanism:
  """A base class for all that attends to a memory [batch, steps, ...].

  An object of it is called with a query [batch, depth] and a state. It returns
  the alignments, floats [batch, steps], and the next state.
  """

  @property
  def alignments_size(self) -> Any:
    """The number of steps in the memory."""
    raise NotImplementedError

  @property
  def state_size(self) -> Any:
    """The size of the state."""
    raise NotImplementedError


class _BaseAttentionMechanism(AttentionMechanism):
  """Attention over a memory; subclasses of programs read its attributes.

  Args:
    query_layer: The layer for queries [batch, depth]; None for none.
    memory: A tensor of floats [batch, steps, ...].
    probability_fn: A function of scores [batch, steps] and the state, which
      returns the alignments [batch, steps].
    memory_sequence_length: Integers [batch]: how many steps of the memory each
      sequence has; None if it has all.
    memory_layer: The layer that makes keys of the memory; None for none.
    check_inner_dims_defined: Whether the memory's dimensions after the second
      must be known.
    score_mask_value: The score of steps after the lengths; minus infinity by
      default.
    custom_key_value_fn: A function of keys and values that returns both anew.
    name: The name scope.
  """

  def __init__(
    self,
    query_layer: Any,
    memory: Any,
    probability_fn: Callable[[Any, Any], Any],
    memory_sequence_length: Any = None,
    memory_layer: Any = None,
    check_inner_dims_defined: bool = True,
    score_mask_value: Any = None,
    custom_key_value_fn: Any = None,
    name: str | None = None,
  ):
    self._query_layer, self._memory_layer = query_layer, memory_layer
    self.dtype = getattr(memory_layer, "dtype", None)
    self._probability = probability_fn
    self._lengths = memory_sequence_length
    self._masked = -math.inf if score_mask_value is None else score_mask_value
    with tf.name_scope(name, "BaseAttentionMechanismInit"):
      self._values = _mask_memory(
        tf.convert_to_tensor(memory, name="memory"),
        memory_sequence_length,
        check_inner_dims_defined,
      )
      values = self._values
      self._keys = memory_layer(values) if memory_layer else values
      if custom_key_value_fn is not None:
        self._keys, self._values = custom_key_value_fn(self._keys, values)
      shape = tf.shape(self._keys)
      self._batch_size = self._keys.shape[0] or shape[0]
      self._alignments_size = self._keys.shape[1] or shape[1]

  @property
  def memory_layer(self) -> Any:
    """The layer that makes keys of the memory."""
    return self._memory_layer

  @property
  def query_layer(self) -> Any:
    """The layer for queries; None for none."""
    return self._query_layer

  @property
  def values(self) -> Any:
    """The memory [batch, steps, ...], with zeros after the lengths."""
    return self._values

  @property
  def keys(self) -> Any:
    """The keys [batch, steps, units]."""
    return self._keys

  @property
  def batch_size(self) -> Any:
    """The batch size of the memory."""
    return self._batch_size

  @property
  def alignments_size(self) -> Any:
    return self._alignments_size

  @property
  def state_size(self) -> Any:
    """The size of the state, which is the alignments."""
    return self.alignments_size

  def initial_alignments(self, batch_size: Any, dtype: Any) -> Any:
    """Returns alignments of zeros, [batch, steps]."""
    return make_zeros(self.alignments_size, batch_size, dtype)

  def initial_state(self, batch_size: Any, dtype: Any) -> Any:
    """Returns the state before the first step."""
    return self.initial_alignments(batch_size, dtype)

  def _compute_score(self, query: Any) -> Any:
    """Returns the score of each step of the memory, [batch, steps]."""
    raise NotImplementedError

  def __call__(self, query: Any, state: Any) -> tuple[Any, Any]:
    """Returns the alignments for a query, and the next state."""
    alignments = self._probability_fn(self._compute_score(query), state)
    return alignments, alignments

  def _probability_fn(self, score: Any, previous: Any) -> Any:
    """Returns the alignments of a score; 0 after the lengths."""
    if self._lengths is not None:
      message = "All values in memory_sequence_length must be positive."
      check = tf.assert_positive(self._lengths, message=message)
      with tf.control_dependencies([check]):
        mask = tf.sequence_mask(self._lengths, tf.shape(score)[1])
      score = tf.where(mask, score, self._masked * tf.ones_like(score))
    return self._probability(score, previous)


def _mask_memory(memory: Any, lengths: Any, check: bool) -> Any:
  """Returns a memory with zeros after the lengths."""
  if check and not memory.shape[2:].is_fully_defined():
    raise ValueError(
      f"the memory {memory} has unknown dimensions after the second"
    )
  if lengths is None:
    return memory
  mask = tf.sequence_mask(lengths, tf.shape(memory)[1], memory.dtype)
  for _ in range(memory.shape.rank - 2):
    mask = tf.expand_dims(mask, -1)
  return memory * mask


def _make_layer(units: int, name: str, dtype: Any) -> Any:
  """Returns a dense layer without a bias."""
  return tf.layers.Dense(units, name=name, use_bias=False, dtype=dtype)


def _ignore_state(function: Any) -> Callable[[Any, Any], Any]:
  """Returns a probability function that also takes a state."""
  function = function or tf.nn.softmax
  return lambda score, state: function(score)


class LuongAttention(_BaseAttentionMechanism):
  """Attention by the products of queries and keys.

  Args:
    num_units: The size of keys; queries [batch, num_units] have it, too.
    memory: A tensor of floats [batch, steps, ...].
    memory_sequence_length: Integers [batch]; see the base class.
    scale: Whether a variable of shape [] multiplies the scores.
    probability_fn: A function of scores [batch, steps]; softmax by default.
    score_mask_value: The score of steps after the lengths.
    dtype: The dtype of the memory and of the layer; float32 by default.
    custom_key_value_fn: A function of keys and values that returns both anew.
    name: The name scope.
  """

  def __init__(
    self,
    num_units: int,
    memory: Any,
    memory_sequence_length: Any = None,
    scale: bool = False,
    probability_fn: Any = None,
    score_mask_value: Any = None,
    dtype: Any = None,
    custom_key_value_fn: Any = None,
    name: str = "LuongAttention",
  ):
    super().__init__(
      None,
      memory,
      _ignore_state(probability_fn),
      memory_sequence_length,
      _make_layer(num_units, "memory_layer", dtype or tf.float32),
      score_mask_value=score_mask_value,
      custom_key_value_fn=custom_key_value_fn,
      name=name,
    )
    self._num_units, self._scale, self._name = num_units, scale, name

  def _compute_score(self, query: Any) -> Any:
    with tf.variable_scope(None, "luong_attention", [query]):
      score = tf.matmul(tf.expand_dims(query, 1), self.keys, transpose_b=True)
      score = tf.squeeze(score, [1])
      if self._scale:
        score *= tf.get_variable(
          "attention_g",
          dtype=query.dtype,
          initializer=tf.ones_initializer,
          shape=(),
        )
      return score


class BahdanauAttention(_BaseAttentionMechanism):
  """Attention by a layer of the sums of queries and keys.

  Args:
    num_units: The size of keys; a layer brings queries [batch, depth] to it.
    memory: A tensor of floats [batch, steps, ...].
    memory_sequence_length: Integers [batch]; see the base class.
    normalize: Whether the layer's weights are normalized.
    probability_fn: A function of scores [batch, steps]; softmax by default.
    score_mask_value: The score of steps after the lengths.
    dtype: The dtype of memory, queries and layers; float32 by default.
    custom_key_value_fn: A function of keys and values that returns both anew.
    name: The name scope.
  """

  def __init__(
    self,
    num_units: int,
    memory: Any,
    memory_sequence_length: Any = None,
    normalize: bool = False,
    probability_fn: Any = None,
    score_mask_value: Any = None,
    dtype: Any = None,
    custom_key_value_fn: Any = None,
    name: str = "BahdanauAttention",
  ):
    super().__init__(
      _make_layer(num_units, "query_layer", dtype or tf.float32),
      memory,
      _ignore_state(probability_fn),
      memory_sequence_length,
      _make_layer(num_units, "memory_layer", dtype or tf.float32),
      score_mask_value=score_mask_value,
      custom_key_value_fn=custom_key_value_fn,
      name=name,
    )
    self._num_units, self._normalize = num_units, normalize
    self._name = name

  def _compute_score(self, query: Any) -> Any:
    with tf.variable_scope(None, "bahdanau_attention", [query]):
      dtype = query.dtype
      total = self.keys + tf.expand_dims(self.query_layer(query), 1)
      vector = tf.get_variable("attention_v", [self._num_units], dtype)
      if self._normalize:
        scale = tf.get_variable(
          "attention_g",
          dtype=dtype,
          initializer=tf.constant_initializer(math.sqrt(1 / self._num_units)),
          shape=(),
        )
        total += tf.get_variable(
          "attention_b",
          [self._num_units],
          dtype,
          initializer=tf.zeros_initializer(),
        )
        squares = tf.reduce_sum(tf.square(vector))
        vector = scale * vector * tf.rsqrt(squares)
      return tf.reduce_sum(vector * tf.tanh(total), [2])


class AttentionWrapperState(
  collections.namedtuple(
    "AttentionWrapperState",
    (
      "cell_state",
      "attention",
      "time",
      "alignments",
      "alignment_history",
      "attention_state",
    ),
  )
):
  """The state of `AttentionWrapper`.

  With several mechanisms, alignments, alignment_history and attention_state are
  tuples with one entry each.

  Attributes:
    cell_state: The state of the cell, floats [batch, ...].
    attention: The attention, floats [batch, attention size].
    time: The number of steps so far, an int32 of shape [].
    alignments: The alignments of the last step, floats [batch, steps].
    alignment_history: A TensorArray of all alignments; () if it is not kept.
    attention_state: The mechanism's state.
  """

  __slots__ = ()

  def clone(self, **kwargs: Any) -> AttentionWrapperState:
    """Returns the state with some parts replaced by others of their shape."""

    def keep_shape(old: Any, new: Any) -> Any:
      if isinstance(old, tf.Tensor) and isinstance(new, tf.Tensor):
        return tf.ensure_shape(new, old.shape)
      return new

    return tf.nest.map_structure(keep_shape, self, self._replace(**kwargs))


class AttentionWrapper(RNNCell):
  """A cell whose inputs and outputs have the attention to a memory.

  Args:
    cell: The cell; its inputs are floats [batch, inputs + attention].
    attention_mechanism: One or a list of several.
    attention_layer_size: The size of the attention, or a list of sizes, for
      layers of cell output and context; None to have the context itself.
    alignment_history: Whether the state has all alignments, [time, batch,
      steps].
    cell_input_fn: A function that joins inputs and attention; `tf.concat` by
      default.
    output_attention: Whether the output is the attention, not the cell's
      output [batch, cell.output_size].
    initial_cell_state: The cell's first state; zeros by default.
    name: The cell's name.
    attention_layer: A layer or a list of layers in place of
      `attention_layer_size`.
    attention_fn: A function of mechanism, cell output, state and layer, which
      returns attention, alignments and state.
    dtype: The dtype of the variables.
  """

  def __init__(
    self,
    cell: Any,
    attention_mechanism: Any,
    attention_layer_size: Any = None,
    alignment_history: bool = False,
    cell_input_fn: Any = None,
    output_attention: bool = True,
    initial_cell_state: Any = None,
    name: str | None = None,
    attention_layer: Any = None,
    attention_fn: Any = None,
    dtype: Any = None,
  ):
    super().__init__(name=name, dtype=dtype)
    self._is_multi = isinstance(attention_mechanism, list | tuple)
    self._mechanisms = _as_tuple(attention_mechanism)
    self._cell, self._initial_state = cell, initial_cell_state
    self._join = cell_input_fn or (
      lambda inputs, attention: tf.concat([inputs, attention], -1)
    )
    self._output_attention = output_attention
    self._keeps_history = alignment_history
    self._attend = attention_fn or _compute_attention
    if attention_layer_size is not None:
      attention_layer = [
        _make_layer(size, "attention_layer", mechanism.dtype)
        for size, mechanism in zip(
          _as_tuple(attention_layer_size), self._mechanisms
        )
      ]
      self._size = sum(_as_tuple(attention_layer_size))
    elif attention_layer is None:
      self._size = sum(m.values.shape[-1] for m in self._mechanisms)
    else:
      self._size = sum(
        layer.compute_output_shape(
          [None, cell.output_size + mechanism.values.shape[-1]]
        )[-1]
        for layer, mechanism in zip(
          _as_tuple(attention_layer), self._mechanisms
        )
      )
    self._layers = _as_tuple(attention_layer)
    if len(self._layers) not in (0, len(self._mechanisms)):
      raise ValueError(
        f"got {len(self._layers)} attention layers for "
        f"{len(self._mechanisms)} attention mechanisms"
      )

  def _pack(self, values: Any) -> Any:
    """Returns a tuple, or its only value if there is one mechanism."""
    values = tuple(values)
    return values if self._is_multi else values[0]

  @property
  def output_size(self) -> Any:
    """The size of the output."""
    return self._size if self._output_attention else self._cell.output_size

  @property
  def state_size(self) -> Any:
    """The sizes of the state."""
    return AttentionWrapperState(
      cell_state=self._cell.state_size,
      time=tf.TensorShape([]),
      attention=self._size,
      alignments=self._pack(m.alignments_size for m in self._mechanisms),
      attention_state=self._pack(m.state_size for m in self._mechanisms),
      alignment_history=self._pack(
        m.alignments_size if self._keeps_history else ()
        for m in self._mechanisms
      ),
    )

  def zero_state(self, batch_size: Any, dtype: Any) -> Any:
    """Returns the state before the first step."""
    with tf.name_scope(f"{type(self).__name__}ZeroState"):
      state = self._initial_state
      if state is None:
        state = self._cell.zero_state(batch_size, dtype)
      with tf.control_dependencies(self._check_batch(batch_size)):
        state = tf.nest.map_structure(tf.identity, state)
      alignments = [
        m.initial_alignments(batch_size, dtype) for m in self._mechanisms
      ]
      return AttentionWrapperState(
        cell_state=state,
        time=tf.zeros([], tf.int32),
        attention=make_zeros(self._size, batch_size, dtype),
        alignments=self._pack(alignments),
        attention_state=self._pack(
          m.initial_state(batch_size, dtype) for m in self._mechanisms
        ),
        alignment_history=self._pack(
          tf.TensorArray(
            dtype, size=0, dynamic_size=True, element_shape=value.shape
          )
          if self._keeps_history
          else ()
          for value in alignments
        ),
      )

  def _check_batch(self, batch_size: Any) -> list[Any]:
    """Returns ops that check that memories have the batch size."""
    message = (
      "The batch sizes of memory and state differ: with BeamSearchDecoder, "
      "use tile_batch on the memory and on the initial state"
    )
    return [
      tf.assert_equal(batch_size, mechanism.batch_size, message=message)
      for mechanism in self._mechanisms
    ]

  def call(self, inputs: Any, state: Any) -> Any:
    """Runs a step."""
    joined = self._join(inputs, state.attention)
    output, cell_state = self._cell(joined, state.cell_state)
    batch = output.shape[0] or tf.shape(output)[0]
    with tf.control_dependencies(self._check_batch(batch)):
      output = tf.identity(output, name="checked_cell_output")
    states, histories = state.attention_state, state.alignment_history
    if not self._is_multi:
      states, histories = [states], [histories]
    results = []
    for i, mechanism in enumerate(self._mechanisms):
      layer = self._layers[i] if self._layers else None
      found = self._attend(mechanism, output, states[i], layer)
      history = ()
      if self._keeps_history:
        history = histories[i].write(state.time, found[1])
      results.append((*found, history))
    attentions, alignments, states, histories = zip(*results)
    attention = tf.concat(attentions, 1)
    return attention if self._output_attention else output, (
      AttentionWrapperState(
        time=state.time + 1,
        cell_state=cell_state,
        attention=attention,
        attention_state=self._pack(states),
        alignments=self._pack(alignments),
        alignment_history=self._pack(histories),
      )
    )


def _as_tuple(value: Any) -> tuple[Any, ...]:
  """Returns a list as a tuple, None as an empty one, else a tuple of one."""
  if value is None:
    return ()
  return tuple(value) if isinstance(value, list | tuple) else (value,)


def _compute_attention(
  mechanism: Any, output: Any, state: Any, layer: Any
) -> tuple[Any, Any, Any]:
  """Returns attention, alignments and the next state of a mechanism."""
  alignments, state = mechanism(output, state=state)
  weights = tf.expand_dims(alignments, 1)
  context = tf.squeeze(tf.matmul(weights, mechanism.values), [1])
  if layer is not None:
    context = layer(tf.concat([output, context], 1))
  return context, alignments, state
