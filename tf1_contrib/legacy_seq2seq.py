# SPDX-License-Identifier: Apache-2.0
"""The losses of `tf.contrib.legacy_seq2seq`."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf


def sequence_loss_by_example(
  logits: Sequence[Any],
  targets: Sequence[Any],
  weights: Sequence[Any],
  average_across_timesteps: bool = True,
  softmax_loss_function: Callable[..., Any] | None = None,
  name: str | None = None,
) -> Any:
  """Returns the weighted cross entropy of each sequence of a batch.

  Args:
    logits: For each time step, floats [batch, classes].
    targets: For each time step, the classes, integers [batch].
    weights: For each time step, the weights [batch], in the logits' dtype.
    average_across_timesteps: Whether to divide by the sum of the weights.
    softmax_loss_function: The loss of `labels` and `logits`; by default, the
      sparse softmax cross entropy.
    name: The name scope.

  Returns:
    The losses [batch].

  Raises:
    ValueError: There are more of one than of another.
  """
  lengths = len(logits), len(targets), len(weights)
  if len(set(lengths)) > 1:
    raise ValueError(
      "logits, targets and weights must be lists of one length, but their "
      "lengths are {}, {} and {}".format(*lengths)
    )
  given = [*logits, *targets, *weights]
  with tf.name_scope(name, "sequence_loss_by_example", given):
    losses = []
    for logit, target, weight in zip(logits, targets, weights):
      if softmax_loss_function is None:
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
          labels=tf.reshape(target, [-1]), logits=logit
        )
      else:
        loss = softmax_loss_function(labels=target, logits=logit)
      losses.append(loss * weight)
    total = tf.add_n(losses)
    if average_across_timesteps:
      total /= tf.add_n(list(weights)) + 1e-12  # Weights may all be 0.
    return total


def sequence_loss(
  logits: Sequence[Any],
  targets: Sequence[Any],
  weights: Sequence[Any],
  average_across_timesteps: bool = True,
  average_across_batch: bool = True,
  softmax_loss_function: Callable[..., Any] | None = None,
  name: str | None = None,
) -> Any:
  """Returns the weighted cross entropy of a batch of sequences.

  Args:
    logits: See `sequence_loss_by_example`.
    targets: See there.
    weights: See there.
    average_across_timesteps: See there.
    average_across_batch: Whether to divide by the number of sequences.
    softmax_loss_function: See there.
    name: The name scope.

  Returns:
    The loss [].
  """
  given = [*logits, *targets, *weights]
  with tf.name_scope(name, "sequence_loss", given):
    losses = sequence_loss_by_example(
      logits, targets, weights, average_across_timesteps, softmax_loss_function
    )
    total = tf.reduce_sum(losses)
    if average_across_batch:
      total /= tf.cast(tf.shape(targets[0])[0], total.dtype)
    return total
