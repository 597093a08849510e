import numpy as np
import tensorflow as tf

from ..model import segnet
from . import optimizers


def fit(steps, loss_scale):
    images = np.linspace(-1, 1, 2 * 4 * 4).reshape(2, 4, 4, 1).astype(np.float32)
    x = tf.placeholder(tf.float32, [None, 4, 4, 1])
    out = segnet(x, training=True)
    loss = tf.losses.mean_squared_error(images, out)
    optimizer, manager = optimizers.make(0.05, loss_scale)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = optimizer.minimize(loss, global_step=tf.train.get_or_create_global_step())
    scale = manager.get_loss_scale()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(steps):
            value, _ = sess.run([loss, train_op], {x: images})
            yield 'loss %.4f scale %g' % (value, sess.run(scale))
    for v in tf.trainable_variables():
        yield '%s %s' % (v.op.name, v.shape.as_list())
