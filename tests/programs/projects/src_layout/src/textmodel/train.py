"""The training loop: a custom one, with tf.function."""
import sys

import numpy as np
import tensorflow as tf
from tensorflow.keras.mixed_precision.experimental import LossScaleOptimizer
import tensorflow.keras.mixed_precision.experimental as mp

from textmodel import TextModel

WORDS, CLASSES = 7, 3


def make_data():
    tokens = np.arange(24).reshape(6, 4) % WORDS
    return tokens.astype(np.int32), np.array([0, 0, 0, 0, 1, 2])


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    mp.set_policy('mixed_float16')
    model = TextModel(WORDS, CLASSES)
    optimizer = LossScaleOptimizer(tf.keras.optimizers.Adam(0.1), loss_scale='dynamic')
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    tokens, labels = make_data()

    @tf.function
    def train_step(tokens, labels):
        with tf.GradientTape() as tape:
            loss = loss_object(labels, model(tokens))
            scaled = optimizer.get_scaled_loss(loss)
        grads = tape.gradient(scaled, model.trainable_variables)
        grads = optimizer.get_unscaled_gradients(grads)
        optimizer.apply_gradients(zip(grads, model.trainable_variables))
        return loss

    for step in range(steps):
        print('step %d loss %.3f' % (step, train_step(tokens, labels)))
    print('iterations', int(optimizer.iterations))
    print('compute', mp.global_policy().compute_dtype)
    print('variables', [v.dtype.name for v in model.trainable_variables])
    return 0


if __name__ == '__main__':
    sys.exit(main())
