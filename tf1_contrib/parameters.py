# SPDX-License-Identifier: Apache-2.0
"""Names whose parameters `tf.contrib` called or ordered in another way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf


class HashTable(tf.lookup.StaticHashTable):
  """`tf.lookup.StaticHashTable`; tables of one initializer are equal."""

  def __init__(
    self,
    initializer: Any,
    default_value: Any,
    shared_name: str | None = None,
    name: str | None = None,
  ):
    """Creates the table; `shared_name` is not used."""
    del shared_name
    super().__init__(initializer, default_value, name)

  @property
  def init(self) -> Any:
    """The op that initializes the table."""
    return self.initializer


class MutableHashTable(tf.lookup.experimental.MutableHashTable):
  """`tf.lookup.experimental.MutableHashTable`."""

  def lookup(self, keys: Any, name: str | None = None) -> Any:
    """Returns the values of keys."""
    return super().lookup(keys, name=name)


class MutableDenseHashTable(tf.lookup.experimental.DenseHashTable):
  """`tf.lookup.experimental.DenseHashTable`."""

  def __init__(
    self,
    key_dtype: Any,
    value_dtype: Any,
    default_value: Any,
    empty_key: Any,
    deleted_key: Any,
    initial_num_buckets: int | None = None,
    name: str = "MutableDenseHashTable",
    checkpoint: bool = True,
  ):
    """Creates the table, which a `Saver` saves, whatever `checkpoint` is."""
    del checkpoint
    super().__init__(
      *(key_dtype, value_dtype, default_value, empty_key, deleted_key),
      initial_num_buckets=initial_num_buckets,
      name=name,
    )


def function(
  func: Callable[..., Any] | None = None,
  input_signature: Any = None,
  autograph: bool = True,
  experimental_autograph_options: Any = None,
  experimental_relax_shapes: bool = False,
  experimental_compile: bool | None = None,
) -> Any:
  """Returns `tf.function` of a function, or the decorator."""
  return tf.function(
    func,
    input_signature,
    autograph,
    experimental_autograph_options=experimental_autograph_options,
    reduce_retracing=experimental_relax_shapes,
    jit_compile=experimental_compile,
  )


def init_from_checkpoint(checkpoint_dir: str, assignment_map: Any) -> None:
  """Calls `tf.train.init_from_checkpoint`."""
  tf.train.init_from_checkpoint(checkpoint_dir, assignment_map)


def list_variables(checkpoint_dir: str) -> list[tuple[str, list[int]]]:
  """Returns (name, shape) of the tensors in a checkpoint."""
  return list(tf.train.list_variables(checkpoint_dir))


def load_checkpoint(filepattern: str) -> Any:
  """Returns a reader of a checkpoint."""
  return tf.train.load_checkpoint(filepattern)


def load_variable(checkpoint_dir: str, name: str) -> Any:
  """Returns the value of a tensor in a checkpoint."""
  return tf.train.load_variable(checkpoint_dir, name)


def visualize_embeddings(summary_writer: Any, config: Any) -> None:
  """Calls `visualize_embeddings` of TensorBoard's projector."""
  from tensorboard.plugins import projector

  return projector.visualize_embeddings(summary_writer, config)
