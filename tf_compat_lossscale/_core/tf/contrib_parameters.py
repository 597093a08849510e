# SPDX-License-Identifier: Apache-2.0
"""Names of TensorFlow 1 whose parameters have other names today."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.framework import op_def_library
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


class OpDefLibrary:
  """A library of ops that are called by name, as generated code did."""

  def add_op_list(self, op_list: Any) -> None:
    """Does nothing: any op that is registered can be called."""

  def apply_op(self, op_type_name: str, name: Any = None, **words: Any) -> Any:
    """Returns the outputs of an op, or the op if it has none."""
    own = getattr(tf.raw_ops, op_type_name, None)
    if own is not None:  # It may have attributes that came since.
      return own(name=name, **words)
    return op_def_library.apply_op(op_type_name, name, **words)
