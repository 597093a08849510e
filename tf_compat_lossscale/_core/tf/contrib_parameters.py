# SPDX-License-Identifier: Apache-2.0
"""Names of `tf.contrib` whose parameters have other names today."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import confusion_matrix
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


def remove_squeezable_dimensions(
  predictions: Any, labels: Any, name: str | None = None
) -> Any:
  """Returns both, without a last dimension 1 that only one of them has."""
  return confusion_matrix.remove_squeezable_dimensions(
    predictions, labels, name=name
  )
