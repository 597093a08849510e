# SPDX-License-Identifier: Apache-2.0
"""Trains a float16 network with planted faults, and watches its loss scale.

  python examples/watch_digits.py --output=build/watch
  tf-lossscale plot build/watch
  tf-lossscale doctor build/watch

A small convolutional network learns handwritten digits. In one step the
gradient of one kernel becomes NaN. From a later step on, the gradient of
another kernel overflows in every step.
"""

import pathlib

from absl import app
from absl import flags
from absl import logging
import numpy as np
import tensorflow.compat.v1 as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import monitoring

FLAGS = flags.FLAGS
flags.DEFINE_string(
  "output", "build/watch", "Where the log goes; training goes on from there."
)
flags.DEFINE_integer("steps", 800, "How many steps to attempt.", lower_bound=1)
flags.DEFINE_integer(
  "nan_at", 300, "The step in which the gradient of conv_2/kernel is NaN."
)
flags.DEFINE_integer(
  "overflow_from", 500, "The step from which that of dense/kernel overflows."
)
flags.DEFINE_integer("batch_size", 64, "Images of a step.", lower_bound=1)
flags.DEFINE_integer("increment_period", 100, "As DynamicLossScale takes it.")
flags.DEFINE_enum(
  "on_stuck", "warn", ["warn", "stop", "raise"], "As LossScaleHook takes it."
)

_DATA = pathlib.Path(__file__).parent / "legacy" / "digits.npz"


def weigh_gradient(value, weight):
  """Returns `value`, whose gradient is multiplied by `weight`."""

  @tf.custom_gradient
  def pass_on(value):
    return tf.identity(value), lambda grad: grad * tf.cast(weight, grad.dtype)

  return pass_on(value)


def classify(images, weights):
  """Returns the logits of images, computed in float16."""

  def get(name, shape):
    value = tf.cast(tf.get_variable(name, shape), tf.float16)
    return weigh_gradient(value, weights[name]) if name in weights else value

  found = tf.cast(tf.reshape(images, [-1, 8, 8, 1]), tf.float16)
  for i, channels in enumerate((16, 32), 1):
    shape = [3, 3, found.shape[-1], channels]
    found = tf.nn.conv2d(found, get(f"conv_{i}/kernel", shape), 1, "SAME")
    found = tf.nn.relu(found + get(f"conv_{i}/bias", [channels]))
    found = tf.nn.max_pool2d(found, 2, 2, "SAME")
  found = tf.reshape(found, [-1, 2 * 2 * 32])
  found = tf.matmul(found, get("dense/kernel", [2 * 2 * 32, 10]))
  return tf.cast(found + get("dense/bias", [10]), tf.float32)


def main(argv):
  del argv
  with np.load(_DATA) as data:
    images, labels = data["images"] / np.float32(16), data["labels"]
  tf.set_random_seed(1)
  x = tf.placeholder(tf.float32, [None, 64], "images")
  y = tf.placeholder(tf.int64, [None], "labels")
  weights = {
    name: tf.placeholder_with_default(1.0, [], name.replace("/", "_"))
    for name in ("conv_2/kernel", "dense/kernel")
  }
  logits = classify(x, weights)
  loss = tf.losses.sparse_softmax_cross_entropy(y, logits)
  loss_scale = tfl.DynamicLossScale(2**15, FLAGS.increment_period)
  opt = tfl.MixedPrecisionLossScaleOptimizer(
    tf.train.AdamOptimizer(0.002), loss_scale
  )
  train_op = opt.minimize(loss, tf.train.get_or_create_global_step())

  hook = monitoring.LossScaleHook(
    opt, FLAGS.output, 20, on_stuck=FLAGS.on_stuck, patience=100
  )
  with tf.train.MonitoredTrainingSession(
    checkpoint_dir=FLAGS.output, hooks=[hook], log_step_count_steps=None
  ) as session:
    for step in range(1, FLAGS.steps + 1):
      random = np.random.RandomState(step)
      rows = random.randint(len(images), size=FLAGS.batch_size)
      feed = {x: images[rows], y: labels[rows]}
      if step == FLAGS.nan_at:
        feed[weights["conv_2/kernel"]] = np.nan
      if step >= FLAGS.overflow_from:
        feed[weights["dense/kernel"]] = np.inf
      session.run(train_op, feed)
      if session.should_stop():
        break


if __name__ == "__main__":
  tf.disable_v2_behavior()
  logging.set_verbosity(logging.INFO)
  app.run(main)
