"""Logs the loss scale by a LoggingTensorHook, as reference models did."""
from absl import app
from absl import flags
import numpy as np
import tensorflow as tf

FLAGS = flags.FLAGS
flags.DEFINE_string('model_dir', None, 'Checkpoints, if any are wanted.')


class Recorder(tf.train.SessionRunHook):

  def __init__(self):
    self.scales = []

  def before_run(self, run_context):
    return tf.train.SessionRunArgs('loss_scale:0')

  def after_run(self, run_context, run_values):
    self.scales.append(float(run_values.results))


def main(_):
  tf.logging.set_verbosity(tf.logging.ERROR)
  x = tf.placeholder(tf.float32, [])
  with tf.variable_scope('model'):
    w = tf.get_variable('w', [3], initializer=tf.ones_initializer())
  loss = tf.reduce_sum(w) * x
  loss_scaler = tf.train.experimental.DynamicLossScale(initial_loss_scale=(2 ** 32), increment_period=1000,
                                                       multiplier=2.0)
  optimizer = tf.train.experimental.MixedPrecisionLossScaleOptimizer(tf.train.MomentumOptimizer(0.1, 0.9), loss_scaler)
  loss_scale_value = tf.identity(loss_scaler(), name='loss_scale')
  tf.summary.scalar('loss_scale', loss_scale_value)
  global_step = tf.train.get_or_create_global_step()
  train_op = optimizer.minimize(loss, global_step=global_step)
  recorder = Recorder()
  hooks = [tf.train.LoggingTensorHook({'loss_scale': 'loss_scale:0', 'step': global_step}, every_n_iter=1), recorder]
  scaffold = tf.train.Scaffold(saver=tf.train.Saver(max_to_keep=2))
  with tf.train.MonitoredTrainingSession(
      scaffold=scaffold, hooks=hooks, checkpoint_dir=FLAGS.model_dir, save_checkpoint_steps=2) as session:
    for factor in [1., np.inf, 1e20, np.nan, 1., 1.]:
      session.run(train_op, {x: factor})
    final = session.run_step_fn(lambda step_context: step_context.session.run([w, global_step], {x: 0.}))
  print('scales %s' % recorder.scales)
  print('w %s  step %d' % (final[0], final[1]))


if __name__ == '__main__':
  app.run(main)
