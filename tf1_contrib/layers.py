# SPDX-License-Identifier: Apache-2.0
"""Pieces of `tf.contrib.layers` that tf_slim lacks."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def embed_sequence(
  ids: Any,
  vocab_size: int | None = None,
  embed_dim: int | None = None,
  unique: bool = False,
  initializer: Any = None,
  regularizer: Any = None,
  trainable: bool = True,
  scope: Any = None,
  reuse: bool | None = None,
) -> Any:
  """Returns the embeddings of sequences of ids.

  The embeddings are the variable `EmbedSequence/embeddings`.

  Args:
    ids: Integers [batch, length].
    vocab_size: The number of ids.
    embed_dim: The size of an embedding.
    unique: Not used: the result is the same if each id is looked up once.
    initializer: The initializer of the embeddings.
    regularizer: The regularizer of the embeddings.
    trainable: Whether the embeddings are trained.
    scope: The variable scope.
    reuse: Whether the variable scope is reused.

  Returns:
    Floats [batch, length, embed_dim].
  """
  del unique
  if not (reuse or (vocab_size and embed_dim)):
    raise ValueError(
      f"embed_sequence got vocab_size={vocab_size} and embed_dim={embed_dim}: "
      "both are needed unless reuse is True"
    )
  shape = [vocab_size, embed_dim] if vocab_size and embed_dim else None
  with tf.variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
    embeddings = tf.get_variable(
      "embeddings",
      shape,
      initializer=initializer,
      regularizer=regularizer,
      trainable=trainable,
      collections=[tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.MODEL_VARIABLES],
    )
    return tf.nn.embedding_lookup(embeddings, ids)
