# Copyright 2019 The Tinynet Authors.
#
# Licensed under the MIT License.
"""The network."""
from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import numpy as np
import tensorflow as tf


def inference(images, num_classes=3, reuse=False):
  """Builds the logits."""
  with tf.variable_scope('tinynet', reuse=reuse):
    net = images
    for i, width in enumerate([6, num_classes]):
      with tf.variable_scope('layer%d' % i):
        w = tf.get_variable('weights', [int(net.shape[1]), width],
                            initializer=tf.constant_initializer(
                                np.linspace(-1, 1, int(net.shape[1]) * width)))
        b = tf.get_variable('biases', [width], initializer=tf.zeros_initializer())
        net = tf.nn.xw_plus_b(net, w, b)
        if i == 0:
          net = tf.nn.relu(net)
  return net


def loss_fn(logits, labels):
  xent = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
  return tf.reduce_mean(xent)
