import tensorflow as tf
from tensorflow.contrib import layers as contrib_layers
from tensorflow.contrib.framework.python.ops import arg_scope


def vgg_arg_scope(weight_decay=0.01):
  with arg_scope([contrib_layers.conv2d, contrib_layers.fully_connected],
                 weights_initializer=tf.constant_initializer(0.1),
                 weights_regularizer=contrib_layers.l2_regularizer(weight_decay)) as sc:
    return sc


def vgg_tiny(inputs, num_classes, scope='vgg'):
  end_points = {}
  with tf.variable_scope(scope, 'vgg', [inputs]):
    net = contrib_layers.conv2d(inputs, 2, [3, 3], scope='conv1')
    end_points['conv1'] = net
    net = contrib_layers.max_pool2d(net, [2, 2], scope='pool1')
    net = contrib_layers.flatten(net)
    net = tf.layers.dense(net, 3, kernel_initializer=tf.constant_initializer(0.2), name='fc2')
    net = contrib_layers.fully_connected(net, num_classes, activation_fn=None, scope='logits')
    end_points['logits'] = net
  return net, end_points
