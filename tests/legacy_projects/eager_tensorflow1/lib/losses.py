import tensorflow as tf


def mean(out, target):
    return tf.reduce_mean(tf.squared_difference(out, target))
