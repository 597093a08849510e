"""Switches between two datasets by a feedable iterator."""
import tensorflow as tf
from tensorflow.train.experimental import DynamicLossScale
from tensorflow.train.experimental import MixedPrecisionLossScaleOptimizer

tf.logging.set_verbosity(tf.logging.ERROR)
train_data = tf.data.Dataset.from_tensor_slices([1., 2., 3., 4.]).repeat()
test_data = tf.data.Dataset.from_tensor_slices([10., 20.])
handle = tf.placeholder(tf.string, shape=[])
iterator = tf.data.Iterator.from_string_handle(
    handle, tf.data.get_output_types(train_data), tf.data.get_output_shapes(train_data))
x = iterator.get_next()
train_iterator = tf.data.make_one_shot_iterator(train_data)
test_iterator = tf.data.make_initializable_iterator(test_data)

w = tf.Variable(2., name='w')
loss = tf.square(w * x)
opt = MixedPrecisionLossScaleOptimizer(tf.train.GradientDescentOptimizer(0.01), DynamicLossScale(2. ** 4, 3))
grads_and_vars = opt.compute_gradients(loss)
grads, variables = zip(*grads_and_vars)
clipped, norm = tf.clip_by_global_norm(grads, 2.)
train_op = opt.apply_gradients(zip(clipped, variables))

with tf.Session() as sess:
  sess.run(tf.global_variables_initializer())
  train_handle, test_handle = sess.run([train_iterator.string_handle(), test_iterator.string_handle()])
  for _ in range(2):
    for _ in range(4):
      _, n = sess.run([train_op, norm], {handle: train_handle})
      print('norm %.4f' % n)
    sess.run(test_iterator.initializer)
    total = 0.
    while True:
      try:
        total += sess.run(loss, {handle: test_handle})
      except tf.errors.OutOfRangeError:
        break
    print('test %.3f  scale %g' % (total, sess.run(opt._loss_scale())))
