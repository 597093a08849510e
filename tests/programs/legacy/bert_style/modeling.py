"""A model of two layers, with a float16 body."""
import tensorflow as tf


def fp32_storage(getter, name, shape=None, dtype=None, initializer=None, trainable=True, *args, **kwargs):
  variable = getter(name, shape, dtype=tf.float32 if trainable else dtype, initializer=initializer,
                    trainable=trainable, *args, **kwargs)
  return tf.cast(variable, dtype) if trainable and dtype != tf.float32 else variable


def model(x):
  with tf.variable_scope('bert', custom_getter=fp32_storage):
    with tf.variable_scope('layer_0'):
      w = tf.get_variable('kernel', [4, 4], tf.float16, initializer=tf.initializers.identity())
      b = tf.get_variable('bias', [4], tf.float16, initializer=tf.zeros_initializer())
      h = tf.nn.relu(tf.matmul(tf.cast(x, tf.float16), w) + b)
  return tf.cast(tf.reduce_sum(h, axis=-1), tf.float32)
