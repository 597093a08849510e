"""tf.contrib.mixed_precision, as the OpenSeq2Seq of its day used it."""
from __future__ import print_function

import tensorflow as tf
from tensorflow.contrib.mixed_precision import FixedLossScaleManager

tf.logging.set_verbosity(tf.logging.ERROR)


def train(manager, factors):
  with tf.Graph().as_default():
    w = tf.get_variable('w', initializer=[1., 2.])
    factor = tf.placeholder(tf.float32, [])
    opt = tf.contrib.mixed_precision.LossScaleOptimizer(tf.train.AdamOptimizer(0.1), manager())
    step = tf.train.get_or_create_global_step()
    train_op = opt.minimize(tf.reduce_sum(w * w) * factor, global_step=step)
    scale = tf.identity(opt._loss_scale_manager.get_loss_scale())
    with tf.Session() as sess:
      sess.run(tf.global_variables_initializer())
      for value in factors:
        sess.run(train_op, {factor: value})
        print('scale %g  step %d  w %s' % (sess.run(scale), sess.run(step), sess.run(w).round(4)))
    print(sorted(v.op.name for v in tf.global_variables()))


nan = float('nan')
train(lambda: FixedLossScaleManager(128.), [1., nan, 1.])
train(lambda: tf.contrib.mixed_precision.ExponentialUpdateLossScaleManager(
    init_loss_scale=2. ** 32, incr_every_n_steps=2, decr_every_n_nan_or_inf=2), [1., 1., nan, 1., nan, 1., 1.])
