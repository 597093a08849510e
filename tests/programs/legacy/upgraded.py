"""What tf_upgrade_v2 made of a TensorFlow 1 program."""
import tensorflow as tf

tf.compat.v1.disable_eager_execution()
tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
x = tf.compat.v1.placeholder(tf.float32, [])
w = tf.compat.v1.get_variable('w', [], initializer=tf.compat.v1.ones_initializer())
opt = tf.compat.v1.train.experimental.MixedPrecisionLossScaleOptimizer(
    tf.compat.v1.train.AdamOptimizer(0.1), tf.compat.v1.train.experimental.DynamicLossScale(8., 2))
train_op = opt.minimize(w * x)
with tf.compat.v1.Session() as sess:
  sess.run(tf.compat.v1.global_variables_initializer())
  for value in (1., float('inf'), 1., 1.):
    sess.run(train_op, {x: value})
  print('w %.4f  scale %g' % (sess.run(w), sess.run(opt._loss_scale())))
