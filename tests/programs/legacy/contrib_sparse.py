"""Embeddings under tf.contrib.mixed_precision: their gradients were dense."""
from __future__ import print_function

import tensorflow as tf

tf.logging.set_verbosity(tf.logging.ERROR)


def train(title, opt, clip=False, dtype=tf.float32):
  print(title)
  with tf.Graph().as_default():
    w = tf.get_variable('w', initializer=tf.constant([1., 2.], dtype))
    table = tf.get_variable('table', initializer=tf.constant([[1., 1.]] * 4, dtype))
    rows = tf.placeholder(tf.int32, [None])
    manager = tf.contrib.mixed_precision.ExponentialUpdateLossScaleManager(256., 2)
    opt = tf.contrib.mixed_precision.LossScaleOptimizer(opt(), manager)
    taken = tf.nn.embedding_lookup(table, rows)
    loss = tf.reduce_sum(taken * taken) + tf.reduce_sum(w * w)
    pairs = opt.compute_gradients(loss)
    print([isinstance(grad, tf.Tensor) for grad, _ in pairs], [grad.shape.as_list() for grad, _ in pairs])
    if clip:
      grads, norm = tf.clip_by_global_norm([grad for grad, _ in pairs], 1.)
      pairs = [(grad, var) for grad, (_, var) in zip(grads, pairs)]
    else:
      norm = tf.linalg.global_norm([grad for grad, _ in pairs])
    train_op = opt.apply_gradients(pairs)
    with tf.Session() as sess:
      sess.run(tf.global_variables_initializer())
      for ids in [0, 0, 1], [2], [0, 0, 3]:
        print(sess.run([norm, train_op], {rows: ids})[0].round(3), sess.run(table)[:, 0].round(4))


train('Momentum', lambda: tf.train.MomentumOptimizer(0.1, 0.9))
train('Momentum, clipped', lambda: tf.train.MomentumOptimizer(0.1, 0.9), clip=True)
train('Adam', lambda: tf.train.AdamOptimizer(0.1))
train('Adagrad in float64', lambda: tf.train.AdagradOptimizer(0.1), dtype=tf.float64)
