"""Trains with tf.function and a loss scale of our own choice."""
import tensorflow as tf

from export import save_weights
from model import Linear, squared_error

STEPS = 7


class Trainer:

    def __init__(self, model):
        self.model = model
        self.loss_scale = tf.mixed_precision.experimental.DynamicLossScale(
            initial_loss_scale=2. ** 126, increment_period=2)

    @tf.function
    def step(self, x, y):
        with tf.GradientTape() as tape:
            loss = squared_error(self.model(x), y)
            scaled = loss * self.loss_scale()
        variables = self.model.trainable_variables
        inverse = 1. / self.loss_scale()
        grads = [g * inverse for g in tape.gradient(scaled, variables)]
        _, finite = self.loss_scale.update(grads)
        if finite:
            for g, v in zip(grads, variables):
                v.assign_sub(0.1 * g)
        return loss, finite


def main():
    assert tf.executing_eagerly()
    trainer = Trainer(Linear())
    x = tf.constant([[1., 0.], [0., 2.], [1., 1.]])
    y = tf.constant([3., 1., 2.])
    for i in range(STEPS):
        loss, finite = trainer.step(x, y)
        print('step %d loss %.4f applied %s scale 2**%d' % (
            i, loss, bool(finite), round(float(tf.math.log(trainer.loss_scale()) / tf.math.log(2.)))))
    save_weights(trainer.model)


if __name__ == '__main__':
    main()
