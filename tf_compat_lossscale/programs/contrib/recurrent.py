# SPDX-License-Identifier: Apache-2.0
"""Functions of `tf.contrib.recurrent`, by `tf.nn.dynamic_rnn`."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def functional_rnn(
  cell: Any,
  inputs: Any,
  sequence_length: Any = None,
  initial_state: Any = None,
  dtype: Any = None,
  time_major: bool = False,
  scope: Any = None,
  use_tpu: bool = False,
  reverse: bool = False,
) -> tuple[Any, Any]:
  """Runs a cell over sequences.

  Args:
    cell: The RNN cell.
    inputs: A tensor [batch, time, ...], or [time, batch, ...] if `time_major`.
    sequence_length: The lengths; outputs after them are zeros.
    initial_state: The state before the first step.
    dtype: The dtype of the initial state, if there is none.
    time_major: Whether time is the first dimension of inputs and outputs.
    scope: The variable scope; "rnn" by default.
    use_tpu: Not used.
    reverse: Whether to go from the last step of all sequences to the first.

  Returns:
    The outputs, and the state after the last step.
  """
  del use_tpu
  if not reverse:
    return tf.nn.dynamic_rnn(
      cell,
      inputs,
      sequence_length,
      initial_state,
      dtype,
      time_major=time_major,
      scope=scope,
    )
  time_axis = 0 if time_major else 1
  outputs, state = tf.nn.dynamic_rnn(
    cell,
    tf.reverse(inputs, [time_axis]),
    None,
    initial_state,
    dtype,
    time_major=time_major,
    scope=scope,
  )
  outputs = tf.reverse(outputs, [time_axis])
  if sequence_length is not None:
    mask = tf.sequence_mask(
      sequence_length, tf.shape(outputs)[time_axis], outputs.dtype
    )
    mask = tf.transpose(mask) if time_major else mask
    outputs *= tf.expand_dims(mask, -1)
  return outputs, state


def bidirectional_functional_rnn(
  cell_fw: Any,
  cell_bw: Any,
  inputs: Any,
  initial_state_fw: Any = None,
  initial_state_bw: Any = None,
  dtype: Any = None,
  sequence_length: Any = None,
  time_major: bool = False,
  use_tpu: bool = False,
  fast_reverse: bool = False,
  scope: Any = None,
) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
  """Runs one cell forwards and one cell backwards over sequences.

  Returns:
    The outputs of both cells, and the states of both.
  """
  del use_tpu
  if not fast_reverse:
    return tf.nn.bidirectional_dynamic_rnn(
      cell_fw,
      cell_bw,
      inputs,
      sequence_length,
      initial_state_fw,
      initial_state_bw,
      dtype,
      time_major=time_major,
      scope=scope,
    )
  with tf.variable_scope(scope or "bidirectional_rnn"):
    forwards = functional_rnn(
      cell_fw,
      inputs,
      sequence_length,
      initial_state_fw,
      dtype,
      time_major,
      scope="fw",
    )
    backwards = functional_rnn(
      cell_bw,
      inputs,
      sequence_length,
      initial_state_bw,
      dtype,
      time_major,
      scope="bw",
      reverse=True,
    )
  return (forwards[0], backwards[0]), (forwards[1], backwards[1])
