"""Uses tf.contrib's layers and data, and private modules."""

import numpy as np
import tensorflow as tf

from tensorflow.contrib import slim
from tensorflow.contrib.framework.python.ops.arg_scope import arg_scope
from tensorflow.python.framework import ops
from tensorflow.python.layers import base
from tensorflow.python.ops import control_flow_ops
from tensorflow.python.training import training_ops

layers = tf.contrib.layers
images = tf.constant(np.sin(np.arange(2 * 6 * 6 * 4)).reshape(2, 6, 6, 4),
                     tf.float32)
rows = tf.constant(np.cos(np.arange(12)).reshape(3, 4), tf.float32)
fill = tf.constant_initializer(0.1)
with tf.variable_scope("net"):
    outputs = [
        layers.layer_norm(rows),
        layers.instance_norm(images),
        layers.group_norm(images, groups=2),
        layers.batch_norm(images, fused=True, scale=True),
        layers.batch_norm(rows, is_training=False),
        layers.fully_connected(rows, 3, weights_initializer=fill,
                               weights_regularizer=layers.l2_regularizer(.1)),
        layers.embed_sequence([[1, 2]], 5, 2, initializer=fill),
    ]
    with arg_scope([slim.conv2d], weights_initializer=fill,
                   normalizer_fn=slim.batch_norm):
        outputs.append(slim.conv2d(images, 2, 3, stride=2))
    outputs.append(slim.flatten(slim.max_pool2d(outputs[-1], 2)))
regularization = tf.losses.get_regularization_losses()
updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
dataset = tf.data.Dataset.range(20).apply(
    tf.contrib.data.map_and_batch(lambda x: x * x, 6, drop_remainder=True))
dataset = dataset.apply(tf.contrib.data.unbatch())
windows = dataset.window(4, shift=3, drop_remainder=True)
dataset = windows.flat_map(lambda window: window.batch(4))
batch = dataset.make_one_shot_iterator().get_next()
condition = control_flow_ops.cond(
    tf.constant(True), lambda: tf.constant(1), lambda: tf.constant(2))
weight = tf.get_variable("weight", initializer=[1.0, 2.0], use_resource=True)
step = training_ops.resource_apply_gradient_descent(weight.handle, .5, [1., 1])

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for value in sess.run(outputs + regularization):
        print(np.shape(value), "%.4f" % np.abs(value).sum())
    sess.run([updates, step])
    print(len(updates), sess.run(weight), sess.run(condition))
    print(sess.run(batch).tolist(), sess.run(batch).tolist())
    for v in tf.contrib.framework.get_variables():
        print(v.op.name, v.shape.as_list(), "%.4f" % sess.run(v).sum())
print(isinstance(rows, ops.Tensor), base.InputSpec(ndim=2).ndim)
print(tf.contrib.util.constant_value(tf.constant(3)),
      tf.contrib.framework.nest.flatten([1, [2, (3,)]]))
