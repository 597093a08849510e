# SPDX-License-Identifier: Apache-2.0
"""Models of the size of those that people train, on random data."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

tf1 = tf.compat.v1


def _variable(shape: tuple[int, ...]) -> tf.Variable:
  name = f"v{len(tf1.global_variables())}"
  spread = tf1.initializers.variance_scaling()
  return tf1.get_variable(name, shape, initializer=spread, use_resource=True)


def resnet(batch: int, size: int) -> tf.Tensor:
  """Returns the loss of ResNet-50, for images of `size` x `size`."""

  def convolve(x: tf.Tensor, kernel: int, width: int, stride: int) -> tf.Tensor:
    weights = _variable((kernel, kernel, int(x.shape[-1]), width))
    x = tf.nn.conv2d(x, weights, stride, "SAME")
    return tf1.nn.fused_batch_norm(x, tf.ones([width]), tf.zeros([width]))[0]

  x = tf.random.uniform([batch, size, size, 3])
  x = tf.nn.max_pool2d(tf.nn.relu(convolve(x, 7, 64, 2)), 3, 2, "SAME")
  for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
    for block in range(blocks):
      stride = 2 if width > 64 and not block else 1
      kept = convolve(x, 1, 4 * width, stride) if not block else x
      for kernel, out, step in ((1, width, 1), (3, width, stride)):
        x = tf.nn.relu(convolve(x, kernel, out, step))
      x = tf.nn.relu(convolve(x, 1, 4 * width, 1) + kept)
  logits = tf.matmul(tf.reduce_mean(x, [1, 2]), _variable((2048, 1000)))
  labels = tf.zeros([batch], tf.int32)
  return tf.reduce_mean(
    tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
  )


def bert(batch: int, size: int) -> tf.Tensor:
  """Returns the loss of four layers of BERT-base, for 128 tokens."""
  del size
  tokens, width, heads = 128, 768, 12

  def norm(x: tf.Tensor) -> tf.Tensor:
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-6)

  x = tf.random.normal([batch * tokens, width])
  for _ in range(4):
    parts = [tf.matmul(x, _variable((width, width))) for _ in range(3)]
    shape = [batch, tokens, heads, width // heads]
    q, k, v = (
      tf.transpose(tf.reshape(part, shape), [0, 2, 1, 3]) for part in parts
    )
    weights = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / 8.0)
    seen = tf.transpose(tf.matmul(weights, v), [0, 2, 1, 3])
    seen = tf.matmul(tf.reshape(seen, x.shape), _variable((width, width)))
    x = norm(x + seen)
    inner = tf.nn.gelu(tf.matmul(x, _variable((width, 4 * width))))
    x = norm(x + tf.matmul(inner, _variable((4 * width, width))))
  return tf.reduce_mean(tf.square(x - 1.0))


MODELS: dict[str, Callable[[int, int], tf.Tensor]] = {
  "ResNet-50": resnet,
  "4 layers of BERT": bert,
}
