import tensorflow as tf


class Centralized(tf.keras.optimizers.SGD):
    """Takes half of the mean off each gradient."""

    def _resource_apply_dense(self, grad, var, apply_state=None):
        grad -= 0.5 * tf.reduce_mean(grad)
        return super()._resource_apply_dense(grad, var, apply_state)
