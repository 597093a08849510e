"""The first version, for TensorFlow 1."""
import tensorflow as tf

import data

x = tf.placeholder(tf.float32, [None, 2])
w = tf.get_variable('w', [2], initializer=tf.zeros_initializer())
loss = tf.reduce_mean(tf.square(tf.reduce_sum(x * w, 1) - data.y))
opt = tf.train.experimental.MixedPrecisionLossScaleOptimizer(
    tf.train.GradientDescentOptimizer(0.25), 'dynamic')
train_op = opt.minimize(loss)

with tf.Session() as sess:
  sess.run(tf.global_variables_initializer())
  for i in range(4):
    print('loss %.4f' % sess.run([loss, train_op], {x: data.x})[0])
  print('w %.3f %.3f' % tuple(sess.run(w)))
