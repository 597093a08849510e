"""Adds up gradients over steps, and applies them inside a tf.cond."""
import numpy as np
import tensorflow as tf

tf.logging.set_verbosity(tf.logging.ERROR)
ACCUMULATE = 3


def main(_):
  x = tf.placeholder(tf.float32, [2], name='x')
  w = tf.get_variable('w', initializer=tf.constant([1., 2.]))
  loss = tf.reduce_sum(w * x)
  global_step = tf.train.get_or_create_global_step()
  loss_scaler = tf.train.experimental.FixedLossScale(64)
  opt = tf.train.experimental.MixedPrecisionLossScaleOptimizer(tf.train.AdamOptimizer(0.1), loss_scaler)
  grads_and_vars = [(g, v) for g, v in opt.compute_gradients(loss, tf.trainable_variables()) if g is not None]
  local_step = tf.get_variable('local_step', shape=[], dtype=tf.int32, trainable=False,
                               initializer=tf.zeros_initializer())
  accumulators = [tf.get_variable(v.op.name + '/accum', shape=v.shape, trainable=False,
                                  initializer=tf.zeros_initializer()) for _, v in grads_and_vars]
  reset = tf.equal(local_step % ACCUMULATE, 0)
  accumulate = [tf.cond(reset, lambda a=a, g=g: a.assign(g), lambda a=a, g=g: a.assign_add(g))
                for a, (g, _) in zip(accumulators, grads_and_vars)]
  with tf.control_dependencies(accumulate):
    count = local_step.assign_add(1)

  def apply():
    with tf.control_dependencies([opt.apply_gradients(
        [(a.read_value() / ACCUMULATE if hasattr(a, 'read_value') else a, v)
         for a, (_, v) in zip(accumulators, grads_and_vars)])]):
      return tf.no_op()

  train_op = tf.cond(tf.equal(count % ACCUMULATE, 0), apply, tf.no_op)
  train_op = tf.group(train_op, tf.assign_add(global_step, 1))
  with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(9):
      sess.run(train_op, {x: np.array([i, -i], np.float32)})
    print('w %s  step %d' % (np.round(sess.run(w), 4), sess.run(global_step)))


if __name__ == '__main__':
  tf.app.run()
