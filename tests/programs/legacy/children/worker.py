"""Prints a loss scale; started by run.py."""
import sys

import tensorflow as tf

scale = tf.train.experimental.FixedLossScale(float(sys.argv[1]))
with tf.Session() as sess:
  print(sess.run(scale()))
