from __future__ import print_function

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))

import numpy as np
import tensorflow as tf

from tinynet import train_utils

FLAGS = tf.app.flags.FLAGS
tf.app.flags.DEFINE_string('model_dir', 'out', 'Where checkpoints go.')
tf.app.flags.DEFINE_integer('steps', 8, 'How many steps to train.')


def main(_):
  tf.logging.set_verbosity(tf.logging.ERROR)
  images = tf.placeholder(tf.float32, [None, 4])
  labels = tf.placeholder(tf.int64, [None])
  loss, train_op = train_utils.create_train_op(images, labels)
  scale = train_utils.find_scale()
  saver = tf.train.Saver()
  batch = {images: np.eye(4)[:3], labels: [0, 1, 2]}
  with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(FLAGS.steps):
      _, value = sess.run([train_op, loss], batch)
      print('step %d loss %.4f scale %g' % (i, value, sess.run(scale)))
    path = saver.save(sess, os.path.join(FLAGS.model_dir, 'model.ckpt'), global_step=FLAGS.steps)
  print('saved', os.path.basename(path))


if __name__ == '__main__':
  tf.app.run()
