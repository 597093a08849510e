# SPDX-License-Identifier: Apache-2.0
"""Tables of `tf.contrib.lookup` that are made of tensors."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

_KEYS = tf.lookup.KeyValueTensorInitializer


def index_to_string_table_from_tensor(
  mapping: Any, default_value: str = "UNK", name: str | None = None
) -> Any:
  """Returns a table that maps an index to the string at that place.

  Args:
    mapping: The strings, [size]. Indices are int64 in any shape.
    default_value: The string of other indices.
    name: The name scope.
  """
  with tf.name_scope(name, "index_to_string") as scope:
    values = tf.convert_to_tensor(mapping, tf.string)
    keys = tf.cast(tf.range(tf.size(values)), tf.int64)
    return tf.lookup.StaticHashTable(
      _KEYS(keys, values, tf.int64, tf.string, name="table_init"),
      default_value,
      name=scope,
    )


def index_table_from_tensor(
  mapping: Any,
  num_oov_buckets: int = 0,
  default_value: int = -1,
  hasher_spec: Any = None,
  dtype: Any = tf.string,
  name: str | None = None,
) -> Any:
  """Returns a table that maps a key to its index.

  Args:
    mapping: The keys, strings or integers [size]. Indices are int64.
    num_oov_buckets: The number of indices for other keys, after the others.
    default_value: The index of other keys if there are no such buckets.
    hasher_spec: Must be None, or a specification of the fast hash.
    dtype: The type of the keys.
    name: The name scope.
  """
  if hasher_spec is not None and hasher_spec.hasher != "fasthash":
    raise ValueError(
      f"index_table_from_tensor got the hash {hasher_spec.hasher!r}: only the "
      "fast hash is left"
    )
  with tf.name_scope(name, "string_to_index") as scope:
    keys = tf.convert_to_tensor(mapping)
    is_integer = keys.dtype.base_dtype.is_integer
    if is_integer != tf.as_dtype(dtype).is_integer:
      raise TypeError(f"the keys are {keys.dtype}, and dtype={dtype}")
    key_type = tf.int64 if is_integer else dtype
    keys = tf.cast(keys, tf.int64) if is_integer else keys
    values = tf.cast(tf.range(tf.size(keys)), tf.int64)
    initializer = _KEYS(keys, values, key_type, tf.int64, name="table_init")
    if num_oov_buckets:
      return tf.lookup.StaticVocabularyTable(
        initializer, num_oov_buckets, lookup_key_dtype=tf.as_dtype(dtype)
      )
    return tf.lookup.StaticHashTable(initializer, default_value, name=scope)
