"""Builds the graph when it is imported."""
import config
import tensorflow as tf

x = tf.placeholder(tf.float32, [config.BATCH, 3], name='x')
with tf.variable_scope('fc', initializer=tf.constant_initializer(0.5)):
    w = tf.get_variable('w', [3, 1])
    b = tf.get_variable('b', [1])
out = tf.matmul(x, w) + b
loss = tf.reduce_sum(out * out)
