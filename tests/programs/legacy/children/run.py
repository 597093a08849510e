"""Starts workers: by sys.executable, and by multiprocessing."""
from __future__ import print_function

import multiprocessing
import os
import subprocess
import sys

import tensorflow as tf


def work(value):
  scale = tf.train.experimental.DynamicLossScale(value)
  with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    return float(sess.run(scale()))


if __name__ == '__main__':
  worker = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'worker.py')
  print(subprocess.check_output([sys.executable, worker, '8']).decode().strip())
  pool = multiprocessing.get_context('spawn').Pool(1)
  print(pool.map(work, [32, 64]))
  pool.close()
  pool.join()
