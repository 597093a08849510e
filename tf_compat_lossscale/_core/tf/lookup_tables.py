# SPDX-License-Identifier: Apache-2.0
"""Tables of `tf.contrib.lookup`, whose `mapping` has another name today."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import lookup_ops


def index_table_from_tensor(
  mapping: Any,
  num_oov_buckets: int = 0,
  default_value: int = -1,
  hasher_spec: Any = lookup_ops.FastHashSpec,
  dtype: Any = tf.string,
  name: str | None = None,
) -> Any:
  """Returns a table from each of `mapping` to its index."""
  return lookup_ops.index_table_from_tensor(
    mapping, num_oov_buckets, default_value, hasher_spec, dtype, name
  )


def index_to_string_table_from_tensor(
  mapping: Any, default_value: str = "UNK", name: str | None = None
) -> Any:
  """Returns a table from an index to the string in `mapping`."""
  return lookup_ops.index_to_string_table_from_tensor(
    mapping, default_value, name
  )
