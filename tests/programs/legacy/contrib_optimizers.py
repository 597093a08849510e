"""Trains with optimizers of tf.contrib.opt; prints weights and variables."""

import numpy as np
import tensorflow as tf

experimental = tf.train.experimental
mixed_precision = tf.contrib.mixed_precision
opt = tf.contrib.opt
START = np.arange(8).reshape(4, 2) / 4.0


def train(name, make, use_resource, rows=True):
    with tf.Graph().as_default():
        w = tf.get_variable("w", initializer=[1.0, -2.0, 3.0, 0.5],
                            use_resource=use_resource)
        e = tf.get_variable("e", [4, 2], use_resource=use_resource,
                            initializer=tf.constant_initializer(START))
        if rows:
            loss = tf.reduce_sum(tf.gather(e, [1, 3, 1]) *
                                 [[1.0, 2.0], [3.0, -1.0], [0.5, 0.25]])
        else:
            loss = tf.reduce_sum(e * e)
        loss += 0.5 * tf.reduce_sum(w * w)
        optimizer = make(w, e)
        step = optimizer.minimize(loss)
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            for _ in range(3):
                sess.run(step)
            values = np.concatenate([v.ravel() for v in sess.run([w, e])])
            print(name, " ".join("%.4f" % v for v in values))
            print(" ", *sorted(v.op.name for v in tf.global_variables()))


train("LazyAdam", lambda w, e: opt.LazyAdamOptimizer(0.1), False)
train("LARS", lambda w, e: opt.LARSOptimizer(
    1.0, weight_decay=0.01, eeta=0.1, skip_list=["e"]), True)


def scaled(make):
    """Wraps an optimizer."""
    return lambda w, e: experimental.MixedPrecisionLossScaleOptimizer(
        make(0.1, 0.8), experimental.DynamicLossScale(256.0, 2))


def managed(make):
    return lambda w, e: mixed_precision.LossScaleOptimizer(
        make(0.1, 0.8),
        mixed_precision.ExponentialUpdateLossScaleManager(256.0, 2))


for make in (opt.NadamOptimizer, opt.AdaMaxOptimizer):
    for resource in (False, True):
        train(make.__name__, scaled(make), resource)
        # contrib's made rows dense.
        train(make.__name__, managed(make), resource, rows=False)
