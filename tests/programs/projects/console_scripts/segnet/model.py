import tensorflow as tf


def segnet(images, training):
    """A tiny encoder and decoder."""
    init = tf.constant_initializer(0.1)
    net = tf.layers.conv2d(images, 2, 3, padding='same', activation=tf.nn.relu,
                           kernel_initializer=init, name='enc')
    net = tf.layers.batch_normalization(net, training=training, name='bn')
    net = tf.layers.conv2d_transpose(net, 1, 3, padding='same',
                                     kernel_initializer=init, name='dec')
    return net
