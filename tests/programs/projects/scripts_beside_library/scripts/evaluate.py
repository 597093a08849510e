from __future__ import print_function

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))

import numpy as np
import tensorflow as tf

from tinynet import network

FLAGS = tf.app.flags.FLAGS
tf.app.flags.DEFINE_string('model_dir', 'out', 'Where checkpoints are.')


def main(_):
  tf.logging.set_verbosity(tf.logging.ERROR)
  path = tf.train.latest_checkpoint(FLAGS.model_dir)
  for name, shape in tf.train.list_variables(path):
    print(name, shape)
  images = tf.placeholder(tf.float32, [None, 4])
  logits = network.inference(images)
  saver = tf.train.Saver(tf.trainable_variables())
  with tf.Session() as sess:
    saver.restore(sess, path)
    for row in sess.run(logits, {images: np.eye(4)[:2]}):
      print(' '.join('%.3f' % x for x in row))


if __name__ == '__main__':
  tf.app.run()
