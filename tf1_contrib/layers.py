# SPDX-License-Identifier: Apache-2.0
"""Pieces of `tf.contrib.layers` that tf_slim lacks: embeddings."""

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
    unique: Whether to look up each id once.
    initializer: The initializer of the embeddings.
    regularizer: The regularizer of the embeddings.
    trainable: Whether the embeddings are trained.
    scope: The variable scope.
    reuse: Whether the variable scope is reused.

  Returns:
    Floats [batch, length, embed_dim].
  """
  if not (reuse or (vocab_size and embed_dim)):
    raise ValueError(
      f"embed_sequence got vocab_size={vocab_size} and embed_dim={embed_dim}: "
      "both are needed unless reuse is True"
    )
  shape = [vocab_size, embed_dim] if vocab_size and embed_dim else None
  with tf.variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
    embeddings = _get_embeddings(shape, initializer, regularizer, trainable)
    if unique:
      return embedding_lookup_unique(embeddings, ids)
    return tf.nn.embedding_lookup(embeddings, ids)


def bow_encoder(
  ids: Any,
  vocab_size: int,
  embed_dim: int,
  sparse_lookup: bool = True,
  initializer: Any = None,
  regularizer: Any = None,
  trainable: bool = True,
  scope: Any = None,
  reuse: bool | None = None,
) -> Any:
  """Returns the mean embedding of each row of ids.

  The embeddings are the variable `bow_encoder/embeddings`.

  Args:
    ids: Integers [batch, length], dense or sparse.
    vocab_size: The number of ids.
    embed_dim: The size of an embedding.
    sparse_lookup: Whether the id 0 is padding, which does not count. A row
      without other ids gets the embedding of 0.
    initializer: The initializer of the embeddings.
    regularizer: The regularizer of the embeddings.
    trainable: Whether the embeddings are trained.
    scope: The variable scope.
    reuse: Whether the variable scope is reused.

  Returns:
    Floats [batch, embed_dim].
  """
  if not vocab_size or not embed_dim:
    raise ValueError(
      f"bow_encoder got vocab_size={vocab_size} and embed_dim={embed_dim}: "
      "both are needed"
    )
  is_sparse = isinstance(ids, tf.SparseTensor)
  if is_sparse and not sparse_lookup:
    raise TypeError(
      f"bow_encoder got sparse ids {ids} with sparse_lookup=False"
    )
  with tf.variable_scope(scope, "bow_encoder", [ids], reuse=reuse):
    embeddings = _get_embeddings(
      [vocab_size, embed_dim], initializer, regularizer, trainable
    )
    if not sparse_lookup:
      return tf.reduce_mean(tf.nn.embedding_lookup(embeddings, ids), axis=1)
    return tf.nn.safe_embedding_lookup_sparse(
      [embeddings],
      ids if is_sparse else tf.sparse.from_dense(ids),
      combiner="mean",
      default_id=0,
    )


def _get_embeddings(
  shape: Any, initializer: Any, regularizer: Any, trainable: bool
) -> Any:
  """Returns the variable `embeddings` of the current variable scope."""
  return tf.get_variable(
    "embeddings",
    shape,
    initializer=initializer,
    regularizer=regularizer,
    trainable=trainable,
    collections=[tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.MODEL_VARIABLES],
  )


def embedding_lookup_unique(
  params: Any, ids: Any, partition_strategy: str = "mod", name: Any = None
) -> Any:
  """Returns embeddings of ids; looks up each id once.

  Args:
    params: The embeddings [size, ...], or a list of their partitions.
    ids: Integers in any shape.
    partition_strategy: An argument of `tf.nn.embedding_lookup`.
    name: The name scope.

  Returns:
    The embeddings, in the shape of `ids` and of an embedding after that.
  """
  with tf.name_scope(name, "EmbeddingLookupUnique", [params, ids]):
    ids = tf.convert_to_tensor(ids)
    shape = tf.shape(ids)
    unique_ids, places = tf.unique(tf.reshape(ids, [-1]))
    found = tf.nn.embedding_lookup(params, unique_ids, partition_strategy)
    result = tf.reshape(
      tf.gather(found, places), tf.concat([shape, tf.shape(found)[1:]], 0)
    )
    result.set_shape(ids.shape.concatenate(found.shape[1:]))
    return result
