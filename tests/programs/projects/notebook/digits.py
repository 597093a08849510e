import numpy as np
import tensorflow as tf


def batches(count):
  for i in range(count):
    yield np.roll(np.eye(3, 4), i % 2, axis=1), np.arange(3)


def ramp(size):
  return tf.constant_initializer(np.linspace(-1., 1., size))


def mlp(x, classes=3):
  net = tf.layers.dense(x, 4, tf.nn.relu, kernel_initializer=ramp(16), name='fc1')
  return tf.layers.dense(net, classes, kernel_initializer=ramp(4 * classes), name='fc2')
