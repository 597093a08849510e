"""A GAN in the compat.v1 dialect: two scopes, two loss scales, one Saver."""
import os
import tempfile

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)


def part(name, factor):
  with tf.variable_scope(name):
    w = tf.get_variable('w', [2], initializer=tf.ones_initializer())
    scale = tf.train.experimental.DynamicLossScale(2. ** 8, 2)
    opt = tf.train.experimental.MixedPrecisionLossScaleOptimizer(tf.train.AdamOptimizer(0.1), scale)
    return w, scale, opt.minimize(tf.reduce_sum(w * factor), var_list=[w])


factor = tf.placeholder(tf.float32, [])
d_w, d_scale, d_step = part('discriminator', factor)
g_w, g_scale, g_step = part('generator', -factor)
saver = tf.train.Saver()
path = os.path.join(tempfile.mkdtemp(), 'model.ckpt')
with tf.Session() as sess:
  sess.run(tf.global_variables_initializer())
  for f in (1., 2., float('nan')):
    sess.run(d_step, {factor: f})
  sess.run(g_step, {factor: 1.})
  before = sess.run([d_w, d_scale(), g_w, g_scale()])
  saver.save(sess, path)
with tf.Session() as sess:
  saver.restore(sess, path)
  after = sess.run([d_w, d_scale(), g_w, g_scale()])
print('same %s' % (str(before) == str(after)))
print('scales %g %g' % (after[1], after[3]))
print('\n'.join(sorted(name for name, _ in tf.train.list_variables(path))))
