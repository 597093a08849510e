"""Fits a sine with tf.layers, flags and a plain Session."""
from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import numpy as np
import tensorflow as tf

flags = tf.app.flags
flags.DEFINE_integer('steps', 30, 'How many steps to train for.')
flags.DEFINE_float('learning_rate', 0.01, 'Learning rate.')
FLAGS = flags.FLAGS


def main(unused_argv):
  tf.logging.set_verbosity(tf.logging.ERROR)
  tf.set_random_seed(1)
  x = tf.placeholder(tf.float32, [None, 1])
  y = tf.placeholder(tf.float32, [None, 1])
  init = tf.constant_initializer(np.linspace(-1., 1., 16).reshape(1, 16))
  hidden = tf.layers.dense(x, 16, tf.nn.tanh, kernel_initializer=init, name='hidden')
  out = tf.layers.dense(hidden, 1, kernel_initializer=tf.ones_initializer(), name='out')
  loss = tf.losses.mean_squared_error(y, out)
  scale = tf.train.experimental.DynamicLossScale(initial_loss_scale=2 ** 10, increment_period=10)
  optimizer = tf.train.experimental.MixedPrecisionLossScaleOptimizer(
      tf.train.AdamOptimizer(FLAGS.learning_rate), scale)
  train_op = optimizer.minimize(loss)
  xs = np.linspace(-3., 3., 64).reshape(64, 1)
  with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as sess:
    sess.run(tf.global_variables_initializer())
    first = sess.run(loss, {x: xs, y: np.sin(xs)})
    for _ in range(FLAGS.steps):
      sess.run(train_op, {x: xs, y: np.sin(xs)})
    last, final_scale = sess.run([loss, scale()], {x: xs, y: np.sin(xs)})
  print('loss scale %g' % final_scale)
  print('better %s' % (last < first))
  print('variables %s' % sorted(v.op.name for v in tf.global_variables()))


if __name__ == '__main__':
  tf.app.run()
