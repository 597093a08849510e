import numpy as np
import tensorflow as tf


def wrap(optimizer):
    """Turns on automatic mixed precision, as `TF_AMP=1` does."""
    experimental = tf.train.experimental
    return experimental.enable_mixed_precision_graph_rewrite(
        optimizer, loss_scale=experimental.FixedLossScale(128.))


def train(model, steps):
    optimizer = wrap(tf.train.RMSPropOptimizer(0.01))
    train_op = optimizer.minimize(model.loss)
    x = np.linspace(-1, 1, 20).reshape(4, 5)
    feed = {model.inputs: x, model.labels: [0, 1, 1, 1]}
    config = tf.ConfigProto(allow_soft_placement=True)
    config.gpu_options.allow_growth = True
    with tf.Session(config=config) as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(steps):
            sess.run(train_op, feed)
            print('loss %.4f' % sess.run(model.loss, feed))
    print(type(optimizer).__name__)
    for v in tf.trainable_variables():
        print(v.op.name.split('/')[0], v.op.name.split('/')[-1], v.shape.as_list())
