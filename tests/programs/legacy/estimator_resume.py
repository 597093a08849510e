"""Trains an Estimator with a loss scale, is killed, resumes and evaluates."""
from __future__ import print_function

import os
import signal
import tempfile

import numpy as np
import tensorflow as tf

tf.logging.set_verbosity(tf.logging.ERROR)


def wrap_dynamic(opt):
  scale = tf.train.experimental.DynamicLossScale(
      initial_loss_scale=2. ** 126, increment_period=4)
  wrapped = tf.train.experimental.MixedPrecisionLossScaleOptimizer(opt, scale)
  return wrapped, scale


def wrap_contrib(opt):
  manager = tf.contrib.mixed_precision.ExponentialUpdateLossScaleManager(
      init_loss_scale=2. ** 126, incr_every_n_steps=4, decr_every_n_nan_or_inf=1)
  wrapped = tf.contrib.mixed_precision.LossScaleOptimizer(opt, manager)
  return wrapped, manager.get_loss_scale


def model_fn(features, labels, mode, params):
  x = tf.layers.dense(features['x'], 4, tf.nn.relu, name='hidden',
                      kernel_initializer=tf.constant_initializer(0.1))
  y = tf.layers.dense(x, 1, name='out',
                      kernel_initializer=tf.ones_initializer())
  if mode == tf.estimator.ModeKeys.PREDICT:
    return tf.estimator.EstimatorSpec(mode, predictions={'y': y})
  loss = tf.losses.mean_squared_error(labels, y)
  if mode == tf.estimator.ModeKeys.EVAL:
    error = tf.metrics.mean_absolute_error(labels, y)
    return tf.estimator.EstimatorSpec(
        mode, loss=loss, eval_metric_ops={'error': error})
  opt, get_scale = params['wrap'](tf.train.AdamOptimizer(0.01))
  train_op = opt.minimize(loss, tf.train.get_global_step())
  tf.identity(loss, 'shown_loss')
  with tf.control_dependencies([train_op]):
    tf.identity(get_scale(), 'shown_scale')
  return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn():
  x = np.linspace(-1., 1., 60).reshape([20, 3]).astype(np.float32)
  data = tf.data.Dataset.from_tensor_slices(({'x': x}, 8 * x[:, :1] - x[:, 1:2]))
  return data.batch(5).repeat()


class Printer(tf.train.SessionRunHook):

  def __init__(self, die_after):
    self._die_after = die_after

  def before_run(self, run_context):
    graph = run_context.session.graph
    loss = graph.get_tensor_by_name('shown_loss:0')
    scale = graph.get_tensor_by_name('shown_scale:0')
    return tf.train.SessionRunArgs([tf.train.get_global_step(), loss, scale])

  def after_run(self, run_context, run_values):
    step, loss, scale = run_values.results
    print('step %d  loss %.4f  scale 2**%.0f' % (step, loss, np.log2(scale)),
          flush=True)
    if step >= self._die_after:
      os.kill(os.getpid(), signal.SIGKILL)


def train(wrap, folder, steps, die_after):
  config = tf.estimator.RunConfig(
      folder, save_checkpoints_steps=6, save_summary_steps=3)
  estimator = tf.estimator.Estimator(model_fn, config=config, params={'wrap': wrap})
  estimator.train(input_fn, max_steps=steps, hooks=[Printer(die_after)])
  return estimator


def resume(wrap, folder):
  estimator = train(wrap, folder, steps=12, die_after=100)
  result = estimator.evaluate(input_fn, steps=4)
  print('evaluated: loss %.4f  error %.4f  step %d' % (
      result['loss'], result['error'], result['global_step']))
  print('predicted %.4f' % next(estimator.predict(input_fn))['y'][0])
  print(' '.join(sorted(estimator.get_variable_names())), flush=True)


def run_in_child(function, *args):
  """Forks, because TensorFlow does not survive a fork once it runs."""
  child = os.fork()
  if not child:
    function(*args)
    os._exit(0)
  print('ended by', os.waitpid(child, 0)[1], flush=True)


for wrap in wrap_dynamic, wrap_contrib:
  print(wrap.__name__, flush=True)
  folder = tempfile.mkdtemp()
  run_in_child(train, wrap, folder, 20, 9)
  run_in_child(resume, wrap, folder)
