# SPDX-License-Identifier: Apache-2.0
"""A small convolutional network's whole step: forward, backward, optimizer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from benchmarks import shapes

SHAPES: list[shapes.Shape] = [
  (3, 3, 3, 32),
  (32,),
  (3, 3, 32, 64),
  (64,),
  (3, 3, 64, 64),
  (64,),
  (8 * 8 * 64, 128),
  (128,),
  (128, 10),
  (10,),
]
_IMAGES = np.random.default_rng(0).random((64, 32, 32, 3), np.float32)
_LABELS = np.arange(64) % 10


def loss(variables: Sequence[tf.Variable]) -> tf.Tensor:
  """Returns the loss on 64 images of 32 x 32 x 3 values and 10 classes."""
  values = [tf.convert_to_tensor(variable) for variable in variables]
  found = tf.constant(_IMAGES)
  for i in (0, 2, 4):
    found = tf.nn.conv2d(found, values[i], 1, "SAME")
    found = tf.nn.relu(tf.nn.bias_add(found, values[i + 1]))
    if i < 4:
      found = tf.nn.max_pool2d(found, 2, 2, "SAME")
  found = tf.reshape(found, [len(_IMAGES), -1])
  found = tf.nn.relu(tf.matmul(found, values[6]) + values[7])
  logits = tf.matmul(found, values[8]) + values[9]
  return tf.reduce_mean(
    tf.nn.sparse_softmax_cross_entropy_with_logits(_LABELS, logits)
  )
