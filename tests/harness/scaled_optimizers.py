# SPDX-License-Identifier: Apache-2.0
"""Makes functions that return optimizers and loss scales."""

import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1


def wrap(loss_scale, inner=lambda: tf1.train.GradientDescentOptimizer(0.5)):
  """Returns a function that returns an optimizer with a loss scale."""
  return lambda: tfl.MixedPrecisionLossScaleOptimizer(
    inner(), loss_scale() if callable(loss_scale) else loss_scale
  )


def dynamic(scale=8.0, period=2, multiplier=2.0):
  """Returns a function that returns a dynamic loss scale."""
  return lambda: tfl.DynamicLossScale(scale, period, multiplier)
