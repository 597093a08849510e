# SPDX-License-Identifier: Apache-2.0
"""Makes functions that return optimizers and loss scales."""

import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1


def wrap(loss_scale, inner=lambda: tf1.train.GradientDescentOptimizer(0.5)):
  """Returns a function that returns an optimizer with a loss scale.

  Args:
    loss_scale: What the optimizer takes, or a function that returns it.
    inner: A function that returns the optimizer to wrap.
  """

  def make():
    made = not callable(loss_scale) or isinstance(loss_scale, tfl.LossScale)
    scale = loss_scale if made else loss_scale()
    return tfl.MixedPrecisionLossScaleOptimizer(inner(), scale)

  return make


def dynamic(scale=8.0, period=2, multiplier=2.0):
  """Returns a function that returns a dynamic loss scale."""
  return lambda: tfl.DynamicLossScale(scale, period, multiplier)
