# SPDX-License-Identifier: Apache-2.0
"""Functions of `tf.contrib.seq2seq`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf


def hardmax(logits: Any, name: str | None = None) -> Any:
  """Returns 1 for the largest logit, and 0 for the others.

  Logits and result are floats [..., classes].
  """
  with tf.name_scope(name, "Hardmax", [logits]):
    logits = tf.convert_to_tensor(logits, name="logits")
    depth = logits.shape[-1] or tf.shape(logits)[-1]
    return tf.one_hot(tf.argmax(logits, -1), depth, dtype=logits.dtype)


def safe_cumprod(x: Any, *args: Any, **kwargs: Any) -> Any:
  """Returns `tf.cumprod` of values in [0, 1], by the sum of logarithms.

  Args:
    x: Floats in any shape, which the result has, too.
    *args: Further arguments of `tf.cumsum`, such as `axis`.
    **kwargs: The same by name.
  """
  with tf.name_scope(None, "SafeCumprod", [x]):
    x = tf.convert_to_tensor(x, name="x")
    tiny = tf.as_dtype(x.dtype).as_numpy_dtype
    smallest = 1.1754944e-38 if tiny().itemsize > 2 else 6.1e-05
    logarithms = tf.log(tf.clip_by_value(x, smallest, 1))
    return tf.exp(tf.cumsum(logarithms, *args, **kwargs))


def sequence_loss(
  logits: Any,
  targets: Any,
  weights: Any,
  average_across_timesteps: bool = True,
  average_across_batch: bool = True,
  sum_over_timesteps: bool = False,
  sum_over_batch: bool = False,
  softmax_loss_function: Callable[..., Any] | None = None,
  name: str | None = None,
) -> Any:
  """Returns the weighted cross entropy of sequences.

  Args:
    logits: Floats [batch, time, classes].
    targets: The classes, integers [batch, time].
    weights: The weights, [batch, time] in the dtype of the logits.
    average_across_timesteps: Whether to sum over time, and divide by the sum of
      the weights.
    average_across_batch: Whether to do so over the batch.
    sum_over_timesteps: Whether to sum over time, and divide by the number of
      weights that are not 0.
    sum_over_batch: Whether to do so over the batch.
    softmax_loss_function: The loss of `labels` and `logits`; by default, the
      sparse softmax cross entropy.
    name: The name scope.

  Returns:
    The loss, without the dimensions that it was summed over: [] by default.
  """
  averages = average_across_timesteps, average_across_batch
  sums = sum_over_timesteps, sum_over_batch
  if any(averages) and any(sums):
    raise ValueError("sequence_loss can average or sum, and not both")
  for value, rank in ((logits, 3), (targets, 2), (weights, 2)):
    if len(value.shape) != rank:
      raise ValueError(f"{value} has the wrong rank: {rank} was expected")
  with tf.name_scope(name, "sequence_loss", [logits, targets, weights]):
    function = softmax_loss_function
    if function is None:
      function = tf.nn.sparse_softmax_cross_entropy_with_logits
    losses = function(
      labels=tf.reshape(targets, [-1]),
      logits=tf.reshape(logits, [-1, tf.shape(logits)[2]]),
    )
    losses = tf.reshape(losses, tf.shape(targets)) * weights
    axes = [
      axis
      for axis, chosen in ((1, 0), (0, 1))
      if averages[chosen] or sums[chosen]
    ]
    if not axes:
      return losses
    total = tf.reduce_sum(weights, axes)
    if any(sums):
      total = tf.cast(tf.math.count_nonzero(weights, axes), losses.dtype)
    return tf.div_no_nan(tf.reduce_sum(losses, axes), total)
