# SPDX-License-Identifier: Apache-2.0
"""Reads all tensors of a checkpoint, to compare two checkpoints."""

import tensorflow as tf


def contents(path):
  """Returns key -> (dtype, shape, bytes), as TensorFlow reads a checkpoint."""
  reader = tf.train.load_checkpoint(str(path))
  dtypes = reader.get_variable_to_dtype_map()
  result = {}
  for key, shape in reader.get_variable_to_shape_map().items():
    value = reader.get_tensor(key)
    data = value if isinstance(value, bytes) else value.tobytes()
    result[key] = (dtypes[key], tuple(shape), data)
  return result
