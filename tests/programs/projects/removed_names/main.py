from __future__ import print_function
try:
  import cPickle as pickle
except ImportError:
  import pickle
import collections
import sys
sys.path.append('common')

import numpy as np
try:
  import tensorflow.compat.v1 as tf
  tf.disable_v2_behavior()
except ImportError:
  import tensorflow as tf
import optimizers
from common.batching import flatten

samples = pickle.loads(pickle.dumps([[1, 0], [0, 1], [1, 1]]))
assert isinstance(samples, collections.Sequence)
x = np.array(samples, dtype=np.float)
labels = np.array(flatten([[0], [1, 1]]), dtype=np.int)

logits = tf.matmul(tf.constant(x, tf.float32), tf.get_variable('w', [2, 2], initializer=tf.zeros_initializer()))
loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
train_op, scale = optimizers.minimize(loss)
with tf.Session() as sess:
  sess.run(tf.global_variables_initializer())
  for i in range(5):
    sess.run(train_op)
    print('%d %.4f %g' % (i, sess.run(loss), sess.run(scale)))
print(bool(np.bool(1)), labels.tolist())
