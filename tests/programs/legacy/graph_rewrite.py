"""Turns on the automatic mixed precision of TensorFlow 1.14."""
import numpy as np
import tensorflow as tf

tf.logging.set_verbosity(tf.logging.FATAL)
x = tf.placeholder(tf.float32, [None, 8])
kernel = tf.get_variable('kernel', initializer=np.eye(8, dtype=np.float32))
loss = tf.reduce_sum(tf.matmul(x, kernel) ** 2)
opt = tf.train.GradientDescentOptimizer(0.125)
opt = tf.train.experimental.enable_mixed_precision_graph_rewrite(opt, loss_scale=128.)
step = opt.minimize(loss)
with tf.Session() as sess:
  sess.run(tf.global_variables_initializer())
  for _ in range(3):
    sess.run(step, {x: np.eye(8)})
  print(np.round(np.diag(sess.run(kernel)), 4))
tf.train.experimental.disable_mixed_precision_graph_rewrite()
try:
  tf.train.experimental.enable_mixed_precision_graph_rewrite(opt)
except ValueError as e:
  print('wrapped already: %s' % ('must not already be' in str(e)))
