# SPDX-License-Identifier: Apache-2.0
"""`tf.contrib.memory_stats`, by `tf.config.experimental.get_memory_info`."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf


def BytesInUse() -> Any:
  """Returns the bytes that tensors take on the device, as `_measure` does."""
  return _measure("current")


def MaxBytesInUse() -> Any:
  """Returns the most bytes that tensors took, as `_measure` does."""
  return _measure("peak")


def BytesLimit() -> Any:
  """Raises an error: TensorFlow 2 tells no limit.

  Raises:
    NotImplementedError: Always.
  """
  raise NotImplementedError(
    "tf.contrib.memory_stats.BytesLimit: TensorFlow 2 does not tell how much "
    "memory a GPU has. nvidia-smi does"
  )


def _measure(kind: str) -> Any:
  """Returns a number of bytes, int64 [], that is measured at each run.

  The GPU is that of the scope of `tf.device`; GPU 0 in no such scope.

  Args:
    kind: A key of what `get_memory_info` returns.

  Raises:
    tf.errors.NotFoundError: There is no GPU, as in TensorFlow 1.
  """
  if not tf.config.list_physical_devices("GPU"):
    message = "There is no GPU, and memory is measured on GPUs alone"
    raise tf.errors.NotFoundError(None, None, message)
  device = ["GPU:0"]

  def read() -> Any:
    info = tf.config.experimental.get_memory_info(device[0])
    return np.int64(info[kind])

  result = tf.py_func(read, [], tf.int64, name="BytesInUse")
  if not tf.executing_eagerly():
    index = tf.DeviceSpec.from_string(result.device).device_index or 0
    device[0] = f"GPU:{index}"
    result.op._set_device("/device:CPU:0")  # Where Python runs.
    result.set_shape([])
  return result
