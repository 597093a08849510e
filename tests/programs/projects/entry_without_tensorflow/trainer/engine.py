"""Imports TensorFlow late, so that `run.py --help` is quick."""


def _set_policy(loss_scale):
    from tensorflow.keras.mixed_precision.experimental import Policy, set_policy
    policy = Policy('mixed_float16', loss_scale=loss_scale)
    set_policy(policy)
    return policy


def run(config):
    import numpy as np
    import tensorflow as tf
    from . import nets, optimizers

    policy = _set_policy(config['loss_scale'])
    model = nets.build(config['width'])
    optimizer = optimizers.Centralized(0.125, momentum=0.5)
    optimizer = tf.keras.mixed_precision.experimental.LossScaleOptimizer(
        optimizer, policy.loss_scale)
    x = np.eye(3, dtype='float32')
    y = np.array([[1.], [2.], [4.]], dtype='float32')
    losses = []
    for _ in range(config['steps']):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.cast(model(x), tf.float32) - y))
            scaled = optimizer.get_scaled_loss(loss)
        grads = tape.gradient(scaled, model.trainable_variables)
        optimizer.apply_gradients(zip(
            optimizer.get_unscaled_gradients(grads), model.trainable_variables))
        losses.append(round(float(loss), 2))
    return {'losses': losses, 'policy': policy.name,
            'weights': [w.name for w in model.trainable_variables],
            'iterations': int(optimizer.iterations),
            'slots': sorted(optimizer.get_slot_names())}
