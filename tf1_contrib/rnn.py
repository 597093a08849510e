# SPDX-License-Identifier: Apache-2.0
"""Pieces of `tf.contrib.rnn`: fused cells made of others, and functions."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

FusedRNNCell = object  # What all fused cells have in common is `__call__`.


class FusedRNNCellAdaptor:
  """A fused cell, which takes whole sequences, made of a cell.

  Args:
    cell: A cell; sequences are floats [time, batch, depth] or lists of [batch,
      depth].
    use_dynamic_rnn: Whether `tf.nn.dynamic_rnn` runs the cell.
  """

  def __init__(self, cell: Any, use_dynamic_rnn: bool = False):
    self._cell, self._dynamic = cell, use_dynamic_rnn

  def __call__(
    self,
    inputs: Any,
    initial_state: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
  ) -> tuple[Any, Any]:
    """Runs all steps; see `LSTMBlockFusedCell`."""
    is_list = isinstance(inputs, list)
    kwargs = {
      "initial_state": initial_state,
      "dtype": dtype,
      "sequence_length": sequence_length,
      "scope": scope,
    }
    if self._dynamic:
      inputs = tf.stack(inputs) if is_list else inputs
      outputs, state = tf.nn.dynamic_rnn(
        self._cell, inputs, time_major=True, **kwargs
      )
      return tf.unstack(outputs) if is_list else outputs, state
    inputs = inputs if is_list else tf.unstack(inputs)
    outputs, state = tf.nn.static_rnn(self._cell, inputs, **kwargs)
    return outputs if is_list else tf.stack(outputs), state


class TimeReversedFusedRNN:
  """A fused cell that goes from the last step to the first.

  Its sequences are floats [time, batch, depth], or lists of [batch, depth].
  """

  def __init__(self, cell: Any):
    self._cell = cell

  def __call__(
    self,
    inputs: Any,
    initial_state: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
  ) -> tuple[Any, Any]:
    """Runs all steps; see `LSTMBlockFusedCell`."""
    outputs, state = self._cell(
      _reverse(inputs, sequence_length),
      initial_state=initial_state,
      dtype=dtype,
      sequence_length=sequence_length,
      scope=scope,
    )
    return _reverse(outputs, sequence_length), state


def _reverse(sequence: Any, lengths: Any) -> Any:
  """Returns sequences [time, batch, ...] in the reverse order."""
  if isinstance(sequence, list):
    return sequence[::-1]
  if lengths is None:
    return tf.reverse(sequence, [0])
  return tf.reverse_sequence(sequence, lengths, 0, 1)


def stack_bidirectional_rnn(
  cells_fw: list[Any],
  cells_bw: list[Any],
  inputs: list[Any],
  initial_states_fw: Any = None,
  initial_states_bw: Any = None,
  dtype: Any = None,
  sequence_length: Any = None,
  scope: Any = None,
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
  """Runs layers of two cells each over a list of inputs.

  Args:
    cells_fw: The cell of each layer that goes forwards.
    cells_bw: The cell of each layer that goes backwards.
    inputs: The inputs of each step, floats [batch, depth].
    initial_states_fw: The first state of each cell; zeros by default.
    initial_states_bw: The same for the cells that go backwards.
    dtype: The dtype of states of zeros.
    sequence_length: The lengths of the sequences, integers [batch].
    scope: The variable scope.

  Returns:
    The outputs of the last layer, floats [batch, both output sizes] for each
    step; and the states of all layers, forwards and backwards.
  """
  layers = _zip_layers(cells_fw, cells_bw, initial_states_fw, initial_states_bw)
  states = []
  with tf.variable_scope(scope or "stack_bidirectional_rnn"):
    for i, (forwards, backwards, state_fw, state_bw) in enumerate(layers):
      with tf.variable_scope(f"cell_{i}") as layer_scope:
        inputs, *after = tf.nn.static_bidirectional_rnn(
          forwards,
          backwards,
          inputs,
          initial_state_fw=state_fw,
          initial_state_bw=state_bw,
          sequence_length=sequence_length,
          dtype=dtype,
          scope=layer_scope,
        )
        states.append(after)
  return inputs, *map(tuple, zip(*states))  # type: ignore[return-value]


def stack_bidirectional_dynamic_rnn(
  cells_fw: list[Any],
  cells_bw: list[Any],
  inputs: Any,
  initial_states_fw: Any = None,
  initial_states_bw: Any = None,
  dtype: Any = None,
  sequence_length: Any = None,
  parallel_iterations: int | None = None,
  time_major: bool = False,
  scope: Any = None,
  swap_memory: bool = False,
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
  """Runs layers of two cells each over a tensor.

  The arguments that are not listed here are those of `stack_bidirectional_rnn`
  and of `tf.while_loop`.

  Args:
    inputs: The inputs, floats [batch, time, depth].
    time_major: Whether inputs and outputs are [time, batch, ...].

  Returns:
    The outputs of the last layer, floats [batch, time, both output sizes]; and
    the states of all layers, forwards and backwards.
  """
  layers = _zip_layers(cells_fw, cells_bw, initial_states_fw, initial_states_bw)
  states = []
  with tf.variable_scope(scope or "stack_bidirectional_rnn"):
    for i, (forwards, backwards, state_fw, state_bw) in enumerate(layers):
      with tf.variable_scope(f"cell_{i}"):
        outputs, after = tf.nn.bidirectional_dynamic_rnn(
          forwards,
          backwards,
          inputs,
          initial_state_fw=state_fw,
          initial_state_bw=state_bw,
          sequence_length=sequence_length,
          parallel_iterations=parallel_iterations,
          dtype=dtype,
          swap_memory=swap_memory,
          time_major=time_major,
        )
        inputs = tf.concat(outputs, 2)
        states.append(after)
  return inputs, *map(tuple, zip(*states))


def _zip_layers(*columns: Any) -> list[tuple[Any, ...]]:
  """Returns (forwards, backwards, state, state) of each layer."""
  forwards = columns[0]
  for cells in columns[:2]:
    if not isinstance(cells, list) or not cells or len(cells) != len(forwards):
      raise ValueError(
        f"got the cells {cells}: two lists of the same length were expected"
      )
  for states in columns[2:]:
    if states is not None and len(states) != len(forwards):
      raise ValueError(f"got {len(states)} states for {len(forwards)} layers")
  filled = [states or [None] * len(forwards) for states in columns]
  return list(zip(*filled))
