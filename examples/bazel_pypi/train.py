# SPDX-License-Identifier: Apache-2.0
"""Fits a line with a dynamic loss scale, and fails unless the loss is small."""

import sys

import tensorflow.compat.v1 as tf

import tf_compat_lossscale as tfl


def main():
  with tf.Graph().as_default(), tf.Session() as session:
    w = tf.get_variable("w", initializer=[1.0, -1.0])
    loss = tf.reduce_sum(tf.square(w - 3.0))
    optimizer = tfl.MixedPrecisionLossScaleOptimizer(
      tf.train.GradientDescentOptimizer(0.1), "dynamic"
    )
    train_op = optimizer.minimize(loss)
    session.run(tf.global_variables_initializer())
    for _ in range(50):
      session.run(train_op)
    value = session.run(loss)
  print(f"loss {value:.2g}")
  return value > 1e-3


if __name__ == "__main__":
  sys.exit(main())
