from collections import namedtuple

import tensorflow as tf
from tensorflow.keras import layers

Model = namedtuple('Model', 'inputs labels logits loss')


def build(features=5, classes=2):
    inputs = tf.placeholder(tf.float32, [None, features], name='inputs')
    labels = tf.placeholder(tf.int32, [None], name='labels')
    net = tf.expand_dims(inputs, -1)
    net = layers.GRU(3, kernel_initializer='ones', recurrent_initializer='ones', name='gru')(net)
    net = layers.BatchNormalization(name='norm')(net, training=True)
    net = layers.Dense(2, activation='tanh', kernel_initializer='ones', name='hidden')(net)
    logits = layers.Dense(classes, kernel_initializer='zeros', name='logits')(net)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    return Model(inputs, labels, logits, loss)
