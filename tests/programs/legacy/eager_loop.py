"""TensorFlow 1.15 with eager execution, the optimizer given a function."""
import tensorflow as tf

tf.enable_eager_execution()
tf.logging.set_verbosity(tf.logging.ERROR)

w = tf.Variable([1., 2.])
scale = tf.train.experimental.DynamicLossScale(2. ** 120, increment_period=2)
opt = tf.train.experimental.MixedPrecisionLossScaleOptimizer(tf.train.AdamOptimizer(0.1), scale)
checkpoint = tf.train.Checkpoint(optimizer=opt, w=w)
step = tf.train.get_or_create_global_step()
for i in range(5):
  opt.minimize(lambda: tf.reduce_sum(w * w * 512.), var_list=[w], global_step=step)
  print('scale %g  step %d  w %s' % (scale().numpy(), step.numpy(), w.numpy().round(3)))
