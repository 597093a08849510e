# SPDX-License-Identifier: Apache-2.0
"""The beam search of `tf.contrib.seq2seq`."""

from __future__ import annotations

from typing import Any
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from tf1_contrib.attention import AttentionWrapperState
from tf1_contrib.decoder import compute_output_size
from tf1_contrib.decoder import Decoder
from tf1_contrib.helpers import make_embedding_function


def tile_batch(t: Any, multiplier: int, name: str | None = None) -> Any:
  """Returns tensors with each entry of the batch repeated in place.

  Args:
    t: A nest of tensors [batch, ...] of any dtype.
    multiplier: How often an entry is there: the result is [batch * multiplier,
      ...].
    name: The name scope.
  """
  with tf.name_scope(name, "tile_batch"):
    return tf.nest.map_structure(lambda value: _tile(value, multiplier), t)


def _tile(value: Any, multiplier: int) -> Any:
  """Returns a tensor with each entry of the batch repeated in place."""
  value = tf.convert_to_tensor(value, name="t")
  if not value.shape.rank:
    raise ValueError(f"tile_batch got {value}: a batch dimension is needed")
  tiled = tf.repeat(value, multiplier, axis=0)
  batch = None if value.shape[0] is None else value.shape[0] * multiplier
  tiled.set_shape(tf.TensorShape([batch]).concatenate(value.shape[1:]))
  return tiled


def gather_tree(
  step_ids: Any,
  parent_ids: Any,
  max_sequence_lengths: Any,
  end_token: Any,
  name: str | None = None,
) -> Any:
  """Returns the sequences of beams, from the steps and parents of a search.

  Args:
    step_ids: The ids of each step, int32 [time, batch, beam].
    parent_ids: The beam of the step before, int32 [time, batch, beam].
    max_sequence_lengths: The largest length of each batch entry, int32 [batch].
    end_token: The id that ends a sequence and fills its rest, of shape [].
    name: The name scope.

  Returns:
    The ids of the sequences, int32 [time, batch, beam].
  """
  with tf.name_scope(name, "GatherTree"):
    step_ids = tf.convert_to_tensor(step_ids)
    parent_ids = tf.convert_to_tensor(parent_ids)
    end_token = tf.cast(end_token, step_ids.dtype)
    ids = _follow_parents(step_ids, parent_ids, max_sequence_lengths, end_token)
    is_end = tf.cast(tf.equal(ids, end_token), tf.int32)
    after_end = tf.cumsum(is_end, axis=0, exclusive=True) > 0
    return tf.where(after_end, tf.fill(tf.shape(ids), end_token), ids)


def _follow_parents(
  step_ids: Any, parent_ids: Any, lengths: Any, filler: Any
) -> Any:
  """Returns the ids of each beam's ancestors; `filler` after the lengths."""
  shape = tf.shape(step_ids)
  beams = tf.zeros(shape[1:], tf.int32) + tf.range(shape[2])
  lengths = tf.cast(tf.expand_dims(lengths, 1), tf.int32)

  def step(carry: Any, values: Any) -> Any:
    beam, _ = carry
    ids, parents, time = values
    inside = tf.logical_and(time < lengths, tf.ones_like(beam, tf.bool))
    found = tf.gather(ids, beam, batch_dims=1)
    before = tf.gather(parents, beam, batch_dims=1)
    return (
      tf.where(inside, before, beam),
      tf.where(inside, found, tf.fill(tf.shape(found), filler)),
    )

  _, found = tf.scan(
    step,
    (step_ids, tf.cast(parent_ids, tf.int32), tf.range(shape[0])),
    (beams, tf.zeros(shape[1:], step_ids.dtype)),
    reverse=True,
    back_prop=False,
  )
  found.set_shape(step_ids.shape)
  return found


def gather_tree_from_array(
  t: Any, parent_ids: Any, sequence_length: Any
) -> Any:
  """Returns the values of each beam's ancestors.

  Args:
    t: The values of each step, [time, batch, beam, ...], of any dtype.
    parent_ids: The beam of the step before, int32 [time, batch, beam].
    sequence_length: The lengths of the beams, integers [batch, beam].

  Returns:
    Values in the shape of `t`.
  """
  shape = tf.shape(parent_ids)
  time, batch, beam = shape[0], shape[1], shape[2]
  own = tf.zeros(shape, tf.int32) + tf.range(beam)
  lengths = tf.reduce_max(sequence_length, axis=1)
  found = _follow_parents(own, parent_ids, lengths, beam + 1)
  inside = tf.transpose(tf.sequence_mask(sequence_length, time), [2, 0, 1])
  found = tf.where(inside, found, own)
  values = tf.reshape(t, [time, batch, beam, -1])
  return tf.reshape(tf.gather(values, found, batch_dims=2), tf.shape(t))


class BeamSearchDecoderState(NamedTuple):
  """The state of `BeamSearchDecoder`.

  Attributes:
    cell_state: The cell's state, [batch, beam, ...].
    log_probs: The logarithms of the beams' probabilities, [batch, beam].
    finished: Which beams are finished, bools [batch, beam].
    lengths: The lengths of the beams, int64 [batch, beam].
    accumulated_attention_probs: The sums of alignments, [batch, beam, steps];
      () if they are not needed.
  """

  cell_state: Any
  log_probs: Any
  finished: Any
  lengths: Any
  accumulated_attention_probs: Any


class BeamSearchDecoderOutput(NamedTuple):
  """The outputs of a step; all are [batch, beam].

  Attributes:
    scores: The scores of the beams, floats.
    predicted_ids: The ids of the step, int32.
    parent_ids: The beams of the step before that the beams go on from, int32.
  """

  scores: Any
  predicted_ids: Any
  parent_ids: Any


class FinalBeamSearchDecoderOutput(NamedTuple):
  """The outputs of a search.

  Attributes:
    predicted_ids: The sequences, int32 [batch, time, beam], the best beam
      first; or time first, as `dynamic_decode` is asked.
    beam_search_decoder_output: The outputs of all steps.
  """

  predicted_ids: Any
  beam_search_decoder_output: Any


class BeamSearchDecoder(Decoder):
  """A decoder that keeps the best sequences.

  The score of a sequence is its log probability, divided by
  `((5 + length) / 6) ** length_penalty_weight`, plus `coverage_penalty_weight`
  times a penalty for steps of the memory without attention.

  Args:
    cell: The cell, which sees beams as a batch: [batch * beam, ...].
    embedding: A matrix [classes, depth], or a function of ids, int32 [batch,
      beam].
    start_tokens: The first ids, int32 [batch].
    end_token: The id that ends a sequence, an int32 of shape [].
    initial_state: The cell's state [batch * beam, ...]; see `tile_batch`.
    beam_width: The number of beams.
    output_layer: A layer of the cell's outputs [batch * beam, size]; None for
      none.
    length_penalty_weight: A weight of the score.
    coverage_penalty_weight: A weight of the score.
    reorder_tensor_arrays: Whether TensorArrays of the state, such as the
      history of alignments, are sorted by sequences at the end.
  """

  def __init__(
    self,
    cell: Any,
    embedding: Any,
    start_tokens: Any,
    end_token: Any,
    initial_state: Any,
    beam_width: int,
    output_layer: Any = None,
    length_penalty_weight: float = 0.0,
    coverage_penalty_weight: float = 0.0,
    reorder_tensor_arrays: bool = True,
  ):
    self._cell, self._output_layer = cell, output_layer
    self._embed = make_embedding_function(embedding)
    self._width = beam_width
    self._length_weight = length_penalty_weight
    self._coverage_weight = coverage_penalty_weight
    self._reorders = reorder_tensor_arrays
    start = tf.convert_to_tensor(start_tokens, tf.int32, name="start_tokens")
    self._end = tf.convert_to_tensor(end_token, tf.int32, name="end_token")
    start.shape.assert_has_rank(1)
    self._end.shape.assert_has_rank(0)
    self._batch = tf.size(start)
    self._cell_state = self._split(initial_state)
    self._start_inputs = self._embed(
      tf.tile(tf.expand_dims(start, 1), [1, beam_width])
    )

  @property
  def batch_size(self) -> Any:
    return self._batch

  @property
  def tracks_own_finished(self) -> bool:
    return True

  @property
  def output_size(self) -> Any:
    return BeamSearchDecoderOutput(*[tf.TensorShape([self._width])] * 3)

  @property
  def output_dtype(self) -> Any:
    dtype = tf.nest.flatten(self._cell_state)[0].dtype
    compute_output_size(self._cell, self._output_layer)  # Checks the layer.
    return BeamSearchDecoderOutput(dtype, tf.int32, tf.int32)

  def _split(self, values: Any) -> Any:
    """Returns [batch * beam, ...] as [batch, beam, ...]."""
    return self._reshape(values, [self._batch, self._width], 1)

  def _merge(self, values: Any) -> Any:
    """Returns [batch, beam, ...] as [batch * beam, ...]."""
    return self._reshape(values, [self._batch * self._width], 2)

  def _reshape(self, values: Any, first: list[Any], count: int) -> Any:
    """Returns tensors with other first dimensions.

    Args:
      values: Tensors; arrays, and tensors of a lower rank, stay as they are.
      first: The new dimensions.
      count: The number of dimensions that they replace.
    """
    static = [tf.get_static_value(tf.convert_to_tensor(d)) for d in first]

    def reshape(value: Any) -> Any:
      if isinstance(value, tf.TensorArray) or value.shape.rank < count:
        return value
      rest = value.shape[count:]
      shape = tf.concat([first, tf.shape(value)[count:]], 0)
      result = tf.reshape(value, shape)
      result.set_shape(tf.TensorShape(static).concatenate(rest))
      return result

    return tf.nest.map_structure(reshape, values)

  def _choose(self, values: Any, beams: Any) -> Any:
    """Returns tensors [batch, beam, ...] of chosen beams."""

    def choose(value: Any) -> Any:
      if isinstance(value, tf.TensorArray) or value.shape.rank < 2:
        return value
      chosen = tf.gather(value, beams, batch_dims=1)
      chosen.set_shape(value.shape)
      return chosen

    return tf.nest.map_structure(choose, values)

  def initialize(self, name: str | None = None) -> tuple[Any, Any, Any]:
    dtype = tf.nest.flatten(self._cell_state)[0].dtype
    first = tf.zeros([self._batch], tf.int32)
    finished = tf.one_hot(first, self._width, False, True, dtype=tf.bool)
    worst = tf.cast(float("-inf"), dtype)
    log_probs = tf.one_hot(
      first, self._width, tf.cast(0, dtype), worst, dtype=dtype
    )
    attention = self._get_alignments(self._cell_state)
    state = BeamSearchDecoderState(
      self._cell_state,
      log_probs,
      finished,
      tf.zeros([self._batch, self._width], tf.int64),
      () if attention is None else attention,
    )
    return finished, self._start_inputs, state

  def _get_alignments(self, state: Any) -> Any:
    """Returns the mean alignments of a cell's state; None if not needed."""
    if not self._coverage_weight:
      return None
    states = state if type(state) is tuple else [state]
    found = []
    for part in states:
      if isinstance(part, AttentionWrapperState):
        alignments = part.alignments
        is_many = isinstance(alignments, tuple)
        found += (
          [tf.add_n(alignments) / len(alignments)] if is_many else [alignments]
        )
    if not found:
      raise ValueError(
        "coverage_penalty_weight needs a cell that is an AttentionWrapper"
      )
    return tf.add_n(found) / len(found)

  def step(
    self, time: Any, inputs: Any, state: Any, name: str | None = None
  ) -> tuple[Any, Any, Any, Any]:
    with tf.name_scope(name, "BeamSearchDecoderStep"):
      outputs, cell_state = self._cell(
        self._merge(inputs), self._merge(state.cell_state)
      )
      logits, cell_state = self._split(outputs), self._split(cell_state)
      if self._output_layer is not None:
        logits = self._output_layer(logits)
      output, state = self._search(logits, cell_state, state)
      inputs = tf.cond(
        tf.reduce_all(state.finished),
        lambda: self._start_inputs,
        lambda: self._embed(output.predicted_ids),
      )
    return output, state, inputs, state.finished

  def _search(
    self, logits: Any, cell_state: Any, state: Any
  ) -> tuple[BeamSearchDecoderOutput, BeamSearchDecoderState]:
    """Returns the best continuations, and the state with them."""
    size = logits.shape[-1] or tf.shape(logits)[-1]
    steps = tf.nn.log_softmax(logits)
    only_end = tf.one_hot(
      self._end,
      size,
      tf.cast(0, steps.dtype),
      steps.dtype.min,
      dtype=steps.dtype,
    )
    is_finished = tf.expand_dims(state.finished, 2)
    zeros = tf.zeros_like(steps)
    steps = tf.where(
      tf.logical_or(is_finished, zeros > 0), only_end + zeros, steps
    )
    totals = tf.expand_dims(state.log_probs, 2) + steps
    longer = tf.one_hot(self._end, size, 0, 1, dtype=tf.int64)
    going_on = tf.cast(tf.logical_not(state.finished), tf.int64)
    lengths = tf.expand_dims(state.lengths, 2) + longer * tf.expand_dims(
      going_on, 2
    )
    scores, attention = self._score(totals, lengths, cell_state, state)
    flat = [self._batch, self._width * size]
    best, words = tf.nn.top_k(tf.reshape(scores, flat), k=self._width)
    best.set_shape([tf.get_static_value(self._batch), self._width])
    words.set_shape(best.shape)
    beams, ids = words // size, words % size
    was_finished = self._choose(state.finished, beams)
    log_probs = tf.gather(tf.reshape(totals, flat), words, batch_dims=1)
    log_probs.set_shape(best.shape)
    new_state = BeamSearchDecoderState(
      self._choose(cell_state, beams),
      log_probs,
      tf.logical_or(was_finished, tf.equal(ids, self._end)),
      self._choose(state.lengths, beams)
      + tf.cast(tf.logical_not(was_finished), tf.int64),
      () if attention is None else self._choose(attention, beams),
    )
    return BeamSearchDecoderOutput(best, ids, beams), new_state

  def _score(
    self, totals: Any, lengths: Any, cell_state: Any, state: Any
  ) -> tuple[Any, Any]:
    """Returns the scores of all continuations, and the sums of alignments."""
    scores = totals
    if self._length_weight:
      penalty = ((5.0 + tf.cast(lengths, tf.float32)) / 6.0) ** (
        self._length_weight
      )
      scores = totals / tf.cast(penalty, totals.dtype)
    attention = self._get_alignments(cell_state)
    if attention is None:
      return scores, None
    going_on = tf.cast(tf.logical_not(state.finished), attention.dtype)
    attention = state.accumulated_attention_probs + attention * tf.expand_dims(
      going_on, 2
    )
    known = tf.where(tf.equal(attention, 0), tf.ones_like(attention), attention)
    coverage = tf.reduce_sum(tf.log(tf.minimum(known, 1)), 2)
    coverage *= tf.cast(state.finished, coverage.dtype)
    weighted = tf.expand_dims(coverage * self._coverage_weight, 2)
    return scores + tf.cast(weighted, scores.dtype), attention

  def _can_reorder(self, array: Any) -> bool:
    """Returns whether an array's elements begin with batch and beam.

    As in TensorFlow 1.15, an array of elements [batch * beam, size] stays as it
    is if the size is known.
    """
    shape = array.element_shape
    batch = tf.get_static_value(self._batch)
    if not shape.rank or batch is None or shape[0] is None:
      return bool(shape.rank)
    fits = shape[0] == batch * self._width
    return fits and (shape.rank < 2 or shape[1] is None)

  def finalize(
    self, outputs: Any, final_state: Any, sequence_lengths: Any
  ) -> tuple[Any, Any]:
    lengths = tf.reduce_max(final_state.lengths, axis=1)
    ids = gather_tree(
      outputs.predicted_ids, outputs.parent_ids, lengths, self._end
    )
    if self._reorders:

      def reorder(value: Any) -> Any:
        if not isinstance(value, tf.TensorArray) or not self._can_reorder(
          value
        ):
          return value
        return gather_tree_from_array(
          value.stack(), outputs.parent_ids, final_state.lengths
        )

      final_state = final_state._replace(
        cell_state=tf.nest.map_structure(reorder, final_state.cell_state)
      )
    return FinalBeamSearchDecoderOutput(ids, outputs), final_state
