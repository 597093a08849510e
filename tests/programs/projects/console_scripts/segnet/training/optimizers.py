import tensorflow as tf
from tensorflow.contrib.mixed_precision import ExponentialUpdateLossScaleManager
from tensorflow.contrib.mixed_precision import FixedLossScaleManager, LossScaleOptimizer


def make(learning_rate, loss_scale):
    optimizer = tf.train.AdamOptimizer(learning_rate, epsilon=1e-4)
    if loss_scale:
        manager = FixedLossScaleManager(loss_scale)
    else:
        manager = ExponentialUpdateLossScaleManager(
            init_loss_scale=2 ** 8, incr_every_n_steps=2, decr_every_n_nan_or_inf=1)
    return LossScaleOptimizer(optimizer, manager), manager
