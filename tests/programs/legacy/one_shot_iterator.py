"""Feeds itself from a one-shot iterator, in a MonitoredTrainingSession."""
import tensorflow as tf

tf.logging.set_verbosity(tf.logging.ERROR)


def input_fn():
  # The fourth and the fifth overflow.
  factors = [1., 1., 1., 1e38, 1e38, 1., 1., 1.]
  dataset = tf.data.Dataset.from_tensor_slices(factors)
  return dataset.repeat().make_one_shot_iterator().get_next()


def train():
  global_step = tf.train.get_or_create_global_step()
  w = tf.get_variable('w', [], initializer=tf.zeros_initializer())
  loss = tf.square(w - 1.) * input_fn()
  optimizer = tf.train.MomentumOptimizer(0.5, 0.9)
  optimizer = tf.train.experimental.MixedPrecisionLossScaleOptimizer(optimizer, 'dynamic')
  train_op = optimizer.minimize(loss, global_step=global_step)
  scale = [v for v in tf.global_variables() if v.op.name == 'current_loss_scale'][0]
  with tf.train.MonitoredTrainingSession(hooks=[tf.train.StopAtStepHook(last_step=12)]) as session:
    while not session.should_stop():
      session.run(train_op)
      value = session.run_step_fn(lambda step_context: step_context.session.run([w, scale, global_step]))
  print('w %.4f  loss scale %g  step %d' % tuple(value))


if __name__ == '__main__':
  train()
