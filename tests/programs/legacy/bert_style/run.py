"""Fine-tunes, in the manner of BERT: flags, modules of its own, fp16."""
from __future__ import absolute_import
from __future__ import print_function

import modeling
import numpy as np
import optimization
import tensorflow as tf

flags = tf.flags
FLAGS = flags.FLAGS
flags.DEFINE_bool('use_fp16', True, 'Whether to scale the loss.')
flags.DEFINE_integer('num_train_steps', 24, 'How many.')


def main(_):
  tf.logging.set_verbosity(tf.logging.ERROR)
  x = tf.placeholder(tf.float32, [None, 4])
  loss = tf.reduce_mean(tf.square(modeling.model(x) - 1.))
  train_op = optimization.create_optimizer(loss, 1e-2, FLAGS.num_train_steps, 2, FLAGS.use_fp16)
  rng = np.random.RandomState(0)
  scales = []
  with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for _ in range(FLAGS.num_train_steps):
      scales.append(float(sess.run('loss_scale:0')))
      sess.run(train_op, {x: np.abs(rng.randn(8, 4))})
    step = sess.run(tf.train.get_global_step())
  print('scales %s' % scales)
  print('step %d' % step)
  print('\n'.join(sorted(v.op.name for v in tf.global_variables())))


if __name__ == '__main__':
  tf.app.run()
