# SPDX-License-Identifier: Apache-2.0
"""Reads tensors by TensorFlow, several times as fast as this package."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.files.entries import encode_name


class TensorReader:
  """A reader of a checkpoint's tensors, by the op that Savers restore with.

  `tf.train.load_checkpoint` ends the process with a segmentation fault if
  another process overwrites the checkpoint meanwhile. The op is in a graph,
  since eager execution may be disabled. In a graph, checking a tensor does not
  copy its value to Python, and other threads run meanwhile.
  """

  def __init__(self, prefix: str) -> None:
    self._prefix = prefix
    self._graph = tf.Graph()
    self._session = tf.compat.v1.Session(graph=self._graph)
    with self._graph.as_default():
      self._name = tf.compat.v1.placeholder(tf.string, [1])
    self._ops: dict[str, Any] = {}

  def run(self, name: str, dtype: str, fetches_value: bool = False) -> Any:
    """Compares a tensor with its checksum; returns the value if it is fetched.

    Of a partitioned variable, that is the whole value.

    Raises:
      CheckpointError: The tensor fails its checksum, or is missing.
    """
    if dtype not in self._ops:
      with self._graph.as_default():
        (tensor,) = tf.raw_ops.RestoreV2(
          prefix=self._prefix,
          tensor_names=self._name,
          shape_and_slices=[""],
          dtypes=[tf.as_dtype(dtype)],
        )
      self._ops[dtype] = tensor.op
    try:
      op = self._ops[dtype]
      fetch = op.outputs[0] if fetches_value else op
      return self._session.run(fetch, {self._name: [encode_name(name)]})
    except tf.errors.OpError as error:
      message = error.message.splitlines()[0]
      raise CheckpointError(f"{self._prefix}: {name}: {message}") from None
