"""Optimizers."""
from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import tensorflow as tf

from tinynet import network


def create_train_op(images, labels, learning_rate=0.1):
  loss = network.loss_fn(network.inference(images), labels)
  step = tf.train.get_or_create_global_step()
  opt = tf.train.MomentumOptimizer(learning_rate, 0.9)
  opt = tf.train.experimental.MixedPrecisionLossScaleOptimizer(
      opt, tf.train.experimental.DynamicLossScale(initial_loss_scale=2 ** 14,
                                                  increment_period=3,
                                                  multiplier=4))
  grads = opt.compute_gradients(loss)
  return loss, opt.apply_gradients(grads, global_step=step)


def find_scale():
  return [v for v in tf.global_variables() if 'current_loss_scale' in v.op.name][0]
