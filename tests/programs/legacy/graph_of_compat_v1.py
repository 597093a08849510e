"""A program for TensorFlow 1.15 by way of compat.v1, which stays in graphs."""
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)
x = tf.placeholder(tf.float32, [None, 2])
w = tf.get_variable('w', [2, 1], initializer=tf.ones_initializer())
loss = tf.reduce_mean(tf.matmul(x, w))
scale = tf.train.experimental.DynamicLossScale(8., 2)
opt = tf.train.experimental.MixedPrecisionLossScaleOptimizer(tf.train.MomentumOptimizer(0.1, 0.9), scale)
train_op = opt.minimize(loss, global_step=tf.train.get_or_create_global_step())
print(x.shape[1].value, w.shape.as_list(), tf.executing_eagerly())
with tf.Session() as sess:
  sess.run(tf.global_variables_initializer())
  for value in (1., 2., float('inf'), 1.):
    sess.run(train_op, {x: [[value, 1.]]})
  print('w %s scale %g step %d' % (['%.4f' % v for v in sess.run(w).ravel()], sess.run(scale()), sess.run(tf.train.get_global_step())))
