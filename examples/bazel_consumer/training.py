# SPDX-License-Identifier: Apache-2.0
"""A line fitted in a session, with a dynamic loss scale."""

import tensorflow.compat.v1 as tf

import tf_compat_lossscale as tfl


def train(steps, checkpoint=None):
  """Trains; returns the last loss and the loss scale."""
  with tf.Graph().as_default(), tf.Session() as session:
    w = tf.get_variable("w", initializer=[1.0, -1.0])
    loss = tf.reduce_sum(tf.square(w - 3.0))
    loss_scale = tfl.DynamicLossScale(2.0**4, increment_period=10)
    optimizer = tfl.MixedPrecisionLossScaleOptimizer(
      tf.train.GradientDescentOptimizer(0.1), loss_scale
    )
    train_op = optimizer.minimize(loss)
    scale = loss_scale()
    saver = tf.train.Saver()
    session.run(tf.global_variables_initializer())
    for _ in range(steps):
      session.run(train_op)
    if checkpoint:
      saver.save(session, checkpoint)
    return session.run([loss, scale])
