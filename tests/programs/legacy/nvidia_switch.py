"""Mixed precision by NVIDIA's environment variables, which the program sets."""
from __future__ import print_function

import os

import tensorflow as tf

tf.logging.set_verbosity(tf.logging.ERROR)

nan = float('nan')


class Averaged(tf.train.Optimizer):
  """Wraps an optimizer, as libraries for several GPUs do."""

  def __init__(self, optimizer):
    super(Averaged, self).__init__(False, 'Averaged' + type(optimizer).__name__)
    self._optimizer = optimizer

  def compute_gradients(self, *args, **kwargs):
    pairs = self._optimizer.compute_gradients(*args, **kwargs)
    return [(tf.identity(g) if g is not None else g, v) for g, v in pairs]

  def apply_gradients(self, *args, **kwargs):
    return self._optimizer.apply_gradients(*args, **kwargs)


class Decayed(tf.train.Optimizer):
  """Applies gradients on its own, as the optimizer of BERT does."""

  def __init__(self):
    super(Decayed, self).__init__(False, 'Decayed')

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    return tf.group(*[v.assign(v * 0.5 - tf.convert_to_tensor(g) * 0.1)
                      for g, v in grads_and_vars], name=name)


def clipped(opt, loss, step):
  grads, variables = zip(*opt.compute_gradients(loss))
  grads, norm = tf.clip_by_global_norm([g for g in grads if g is not None], 1.0)
  return opt.apply_gradients(zip(grads, variables), global_step=step)


def managed():
  manager = tf.contrib.mixed_precision.ExponentialUpdateLossScaleManager(2. ** 20, 2)
  return tf.contrib.mixed_precision.LossScaleOptimizer(tf.train.AdamOptimizer(0.1), manager)


def train(title, make, minimize=lambda opt, loss, step: opt.minimize(loss, global_step=step)):
  print(title)
  with tf.Graph().as_default():
    w = tf.get_variable('w', initializer=[1., 2.])
    table = tf.get_variable('table', initializer=[[1.], [2.], [3.]])
    factor = tf.placeholder(tf.float32, [])
    with tf.variable_scope('train'):
      opt = make()
    step = tf.train.get_or_create_global_step()
    loss = (tf.reduce_sum(w * w) + tf.reduce_sum(tf.gather(table, [0, 2, 0]))) * factor
    train_op = minimize(opt, loss, step)
    print(sorted(v.op.name for v in tf.global_variables()))
    scales = [v for v in tf.global_variables() if 'scale' in v.op.name or 'steps' in v.op.name]
    with tf.Session() as sess:
      sess.run(tf.global_variables_initializer())
      for value in [1., 2., nan, 1., 1e38, 1.]:
        sess.run(train_op, {factor: value})
        print([int(x) for x in sess.run(scales)], 'step %d' % sess.run(step),
              sess.run(w).round(4), sess.run(table).ravel().round(4))


os.environ['TF_ENABLE_AUTO_MIXED_PRECISION'] = '1'
train('Adam', lambda: tf.train.AdamOptimizer(0.1))
train('Averaged Momentum', lambda: Averaged(tf.train.MomentumOptimizer(0.1, 0.9)))
train('SGD, clipped', lambda: tf.train.GradientDescentOptimizer(0.1), clipped)
train('Decayed', Decayed)
train('LossScaleOptimizer', managed)
train('Adam, wrapped', lambda: tf.train.experimental.MixedPrecisionLossScaleOptimizer(
    tf.train.AdamOptimizer(0.1), 'dynamic'))

os.environ['TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING'] = '0'
train('no loss scale', lambda: tf.train.AdamOptimizer(0.1))
del os.environ['TF_ENABLE_AUTO_MIXED_PRECISION']
os.environ['TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING'] = '1'
train('RMSProp', lambda: tf.train.RMSPropOptimizer(0.1))
