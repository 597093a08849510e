# SPDX-License-Identifier: Apache-2.0
"""`tf.contrib.crf`: linear-chain conditional random fields.

A sequence of tags has a score: the sum of its tags' scores at each time, and of
the scores of each tag after the one before. `inputs`, floats [batch, time,
tags], has the former. `transition_params`, floats [tags, tags], has the latter,
by the earlier tag and the later tag. `sequence_lengths`, integers [batch], says
how many times of each sequence count.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf


def crf_unary_score(
  tag_indices: Any, sequence_lengths: Any, inputs: Any
) -> Any:
  """Returns the sums of the tags' own scores, floats [batch].

  Args:
    tag_indices: Integers [batch, time].
    sequence_lengths: Integers [batch].
    inputs: Floats [batch, time, tags].
  """
  tags = tf.cast(tag_indices, tf.int32)
  scores = tf.gather(inputs, tags, batch_dims=2)
  mask = tf.sequence_mask(sequence_lengths, tf.shape(tags)[1], scores.dtype)
  return tf.reduce_sum(scores * mask, 1)


def crf_binary_score(
  tag_indices: Any, sequence_lengths: Any, transition_params: Any
) -> Any:
  """Returns the sums of the scores of transitions, floats [batch].

  Args:
    tag_indices: Integers [batch, time].
    sequence_lengths: Integers [batch].
    transition_params: Floats [tags, tags].
  """
  transitions = tf.convert_to_tensor(transition_params)
  tags = tf.cast(tag_indices, tf.int32)
  pairs = tags[:, :-1] * tf.shape(transitions)[0] + tags[:, 1:]
  scores = tf.gather(tf.reshape(transitions, [-1]), pairs)
  lengths = tf.cast(sequence_lengths, tf.int32) - 1
  mask = tf.sequence_mask(lengths, tf.shape(pairs)[1], scores.dtype)
  return tf.reduce_sum(scores * mask, 1)


def crf_sequence_score(
  inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any
) -> Any:
  """Returns the scores of sequences of tags, floats [batch].

  Args:
    inputs: Floats [batch, time, tags].
    tag_indices: Integers [batch, time].
    sequence_lengths: Integers [batch]. The score of an empty sequence is 0.
    transition_params: Floats [tags, tags].
  """
  return crf_unary_score(
    tag_indices, sequence_lengths, inputs
  ) + crf_binary_score(tag_indices, sequence_lengths, transition_params)


def crf_log_norm(
  inputs: Any, sequence_lengths: Any, transition_params: Any
) -> Any:
  """Returns the logarithm of the sum of exp(score) over all sequences of tags.

  Args:
    inputs: Floats [batch, time, tags].
    sequence_lengths: Integers [batch]. The result for an empty sequence is 0.
    transition_params: Floats [tags, tags].

  Returns:
    Floats [batch].
  """
  inputs = tf.convert_to_tensor(inputs)
  lengths = tf.cast(sequence_lengths, tf.int32)

  def step(time: Any, sums: Any) -> tuple[Any, Any]:
    further = tf.reduce_logsumexp(sums[:, :, None] + transition_params, 1)
    new = inputs[:, time] + further
    return time + 1, tf.where(time < lengths, new, sums)

  _, sums = tf.while_loop(
    lambda time, _: time < tf.shape(inputs)[1], step, [1, inputs[:, 0]]
  )
  norm = tf.reduce_logsumexp(sums, 1)
  return tf.where(lengths > 0, norm, tf.zeros_like(norm))


def crf_log_likelihood(
  inputs: Any,
  tag_indices: Any,
  sequence_lengths: Any,
  transition_params: Any = None,
) -> tuple[Any, Any]:
  """Returns the logarithm of the probability of sequences of tags.

  Args:
    inputs: Floats [batch, time, tags], with a known number of tags.
    tag_indices: Integers [batch, time].
    sequence_lengths: Integers [batch].
    transition_params: Floats [tags, tags]; None for a new variable
      `transitions`.

  Returns:
    Floats [batch], and the scores of transitions.
  """
  inputs = tf.convert_to_tensor(inputs)
  if transition_params is None:
    tags = inputs.shape.as_list()[2]
    transition_params = tf.get_variable("transitions", [tags, tags])
  score = crf_sequence_score(
    inputs, tag_indices, sequence_lengths, transition_params
  )
  norm = crf_log_norm(inputs, sequence_lengths, transition_params)
  return score - norm, transition_params


def crf_decode(
  potentials: Any, transition_params: Any, sequence_length: Any
) -> tuple[Any, Any]:
  """Finds the sequences of tags with the highest scores, in the graph.

  Args:
    potentials: The `inputs`, floats [batch, time, tags].
    transition_params: Floats [tags, tags].
    sequence_length: Integers [batch].

  Returns:
    The tags, int32 [batch, time], which are 0 after a sequence's end, and the
    scores, floats [batch]. An empty sequence counts as one of one tag.
  """
  potentials = tf.convert_to_tensor(potentials)
  lengths = tf.cast(sequence_length, tf.int32)
  shape = tf.shape(potentials)
  batch, times, tags = shape[0], shape[1], shape[2]
  same = tf.tile(tf.range(tags)[None], [batch, 1])

  def go_on(time: Any, best: Any, before: Any) -> tuple[Any, Any, Any]:
    """Takes each sequence one time further, to each tag."""
    scores = best[:, :, None] + transition_params
    new = potentials[:, time] + tf.reduce_max(scores, 1)
    goes_on = time < lengths
    from_tag = tf.argmax(scores, 1, output_type=tf.int32)
    before = before.write(time, tf.where(goes_on, from_tag, same))
    return time + 1, tf.where(goes_on, new, best), before

  before = tf.TensorArray(tf.int32, times).write(0, same)
  _, best, before = tf.while_loop(
    lambda time, *_: time < times, go_on, [1, potentials[:, 0], before]
  )

  def go_back(time: Any, tag: Any, path: Any) -> tuple[Any, Any, Any]:
    path = path.write(time, tag)
    earlier = tf.gather(before.read(time), tag, batch_dims=1)
    return time - 1, earlier, path

  last = tf.argmax(best, 1, output_type=tf.int32)
  _, _, path = tf.while_loop(
    lambda time, *_: time >= 0,
    go_back,
    [times - 1, last, tf.TensorArray(tf.int32, times)],
  )
  found = tf.transpose(path.stack())
  found *= tf.sequence_mask(tf.maximum(lengths, 1), times, tf.int32)
  found.set_shape(potentials.shape[:2])
  return found, tf.reduce_max(best, 1)


def viterbi_decode(score: Any, transition_params: Any) -> tuple[list[Any], Any]:
  """Finds the sequence of tags with the highest score, by NumPy.

  Args:
    score: The scores of one sequence, floats [time, tags].
    transition_params: Floats [tags, tags].

  Returns:
    The tags, a list of `time` integers, and their score.
  """
  best = np.array(score[0])
  before = []
  for row in score[1:]:
    scores = np.expand_dims(best, 1) + transition_params
    best[:] = row + np.max(scores, 0)
    before.append(np.argmax(scores, 0))
  path = [np.argmax(best)]
  for row in reversed(before):
    path.append(row[path[-1]])
  return path[::-1], np.max(best)
