try:
  import tensorflow.compat.v1 as tf
except ImportError:
  import tensorflow as tf
try:
  from tensorflow.compat.v1.train.experimental import DynamicLossScale, MixedPrecisionLossScaleOptimizer
except ImportError:  # TensorFlow before 1.14
  DynamicLossScale = MixedPrecisionLossScaleOptimizer = None


def minimize(loss):
  opt = tf.train.GradientDescentOptimizer(1.)
  if MixedPrecisionLossScaleOptimizer is None:
    return opt.minimize(loss), tf.constant(1.)
  loss_scale = DynamicLossScale(initial_loss_scale=4., increment_period=2)
  opt = MixedPrecisionLossScaleOptimizer(opt, loss_scale)
  return opt.minimize(loss), loss_scale()
