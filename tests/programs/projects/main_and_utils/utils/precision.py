"""Mixed precision settings."""
import tensorflow as tf
from tensorflow.keras import mixed_precision as mp


def set_precision(amp):
    if not amp:
        return mp.experimental.global_policy()
    loss_scale = tf.mixed_precision.experimental.DynamicLossScale(
        initial_loss_scale=2 ** 10, increment_period=5)
    policy = mp.experimental.Policy('mixed_float16', loss_scale=loss_scale)
    mp.experimental.set_policy(policy)
    return policy
