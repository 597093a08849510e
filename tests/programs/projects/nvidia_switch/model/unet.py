import tensorflow.compat.v1 as tf


def unet(features):
    net = tf.layers.dense(features, 2, kernel_initializer=tf.constant_initializer(0.1), name='down')
    net = tf.layers.dense(tf.nn.relu(net), 1, kernel_initializer=tf.constant_initializer(0.1), name='up')
    return tf.reduce_mean(tf.abs(net - 1.))
