# SPDX-License-Identifier: Apache-2.0
"""The functions of `tf.contrib.sparsemax` (arXiv 1602.02068)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def sparsemax(logits: Any, name: str | None = None) -> Any:
  """Returns the nearest point of the simplex: a softmax that may have zeros.

  Args:
    logits: Floats [..., classes]. A class of -inf gets 0.
    name: The name scope.

  Returns:
    Probabilities of the shape and dtype of `logits`. Those of a row are NaN if
    the row has NaN or inf, or has -inf alone.
  """
  with tf.name_scope(name, "sparsemax", [logits]):
    logits = tf.convert_to_tensor(logits, name="logits")
    falling = tf.sort(logits, direction="DESCENDING")
    sums = tf.cumsum(falling, axis=-1)
    ranks = tf.cast(tf.range(1, tf.shape(logits)[-1] + 1), logits.dtype)
    # The classes that get more than 0 are the first of the sorted ones.
    is_in = 1 + ranks * falling > sums
    size = tf.reduce_sum(tf.cast(is_in, logits.dtype), -1, keepdims=True)
    inside = tf.where(is_in, falling, tf.zeros_like(falling))
    threshold = (tf.reduce_sum(inside, -1, keepdims=True) - 1) / size
    found = tf.maximum(logits - threshold, tf.zeros([], logits.dtype))
    is_known = tf.logical_and(
      size > 0, tf.logical_not(tf.is_nan(sums[..., -1:]))
    )
    return tf.where_v2(is_known, found, tf.constant(float("nan"), found.dtype))


def sparsemax_loss(
  logits: Any, sparsemax: Any, labels: Any, name: str | None = None
) -> Any:
  """Returns the loss whose gradient is `sparsemax(logits) - labels`.

  Args:
    logits: Floats [batch, classes].
    sparsemax: What `sparsemax` returns for the logits.
    labels: Probabilities [batch, classes], in the dtype of the logits.
    name: The name scope.

  Returns:
    The losses [batch]. A class of -inf whose label is 0 adds nothing.
  """
  with tf.name_scope(name, "sparsemax_loss", [logits, sparsemax, labels]):
    logits = tf.convert_to_tensor(logits, name="logits")
    chosen = tf.convert_to_tensor(sparsemax, name="sparsemax")
    labels = tf.convert_to_tensor(labels, name="labels")
    zeros = tf.zeros_like(logits)
    # A product of 0 and -inf would be NaN.
    gain = tf.where(tf.equal(chosen, 0), zeros, chosen * (logits - chosen / 2))
    is_out = tf.logical_and(tf.equal(labels, 0), tf.is_inf(logits))
    cost = tf.where(is_out, zeros, labels * (labels / 2 - logits))
    return tf.reduce_sum(gain + cost, axis=1)
