# SPDX-License-Identifier: Apache-2.0
"""`tf.contrib.sparsemax`: a softmax that can be 0."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def sparsemax(logits: Any, name: str | None = None) -> Any:
  """Returns the nearest points of the probability simplex, row by row.

  Logits and result are floats [..., classes] of the same dtype.

  With logits z in descending order, k is the largest number for which
  `1 + k * z[k] > sum(z[:k])`, and the result is
  `max(0, z - (sum(z[:k]) - 1) / k)`.
  """
  with tf.name_scope(name, "sparsemax", [logits]):
    logits = tf.convert_to_tensor(logits, name="logits")
    z = logits - tf.reduce_mean(logits, -1, keepdims=True)
    ordered = tf.sort(z, direction="DESCENDING")
    sums = tf.cumsum(ordered, -1)
    numbers = tf.cast(tf.range(1, tf.shape(z)[-1] + 1), z.dtype)
    count = tf.reduce_sum(
      tf.cast(1 + numbers * ordered > sums, z.dtype), -1, keepdims=True
    )
    last = tf.equal(numbers, count)
    total = tf.reduce_sum(tf.where(last, sums, tf.zeros_like(sums)), -1, True)
    return tf.maximum(tf.zeros([], z.dtype), z - (total - 1) / count)


def sparsemax_loss(
  logits: Any, sparsemax: Any, labels: Any, name: str | None = None
) -> Any:
  """Returns the loss of rows whose sparsemax is given.

  Args:
    logits: Floats [batch, classes].
    sparsemax: What `sparsemax` returns for them, [batch, classes].
    labels: The probabilities that are right, [batch, classes].
    name: The name scope.

  Returns:
    The losses, floats [batch].
  """
  with tf.name_scope(name, "sparsemax_loss", [logits, sparsemax, labels]):
    z = logits - tf.reduce_mean(logits, -1, keepdims=True)
    by_support = tf.where(
      sparsemax > 0, sparsemax * (z - 0.5 * sparsemax), tf.zeros_like(z)
    )
    return tf.reduce_sum(by_support + labels * (0.5 * labels - z), -1)
