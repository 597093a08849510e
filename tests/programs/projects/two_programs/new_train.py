"""The second version, for TensorFlow 2."""
import tensorflow as tf
from tensorflow.keras.mixed_precision import experimental as mixed_precision

import data

w = tf.Variable(tf.zeros([2]), name='w')
opt = mixed_precision.LossScaleOptimizer(
    tf.keras.optimizers.SGD(0.25), tf.mixed_precision.experimental.FixedLossScale(64.))


@tf.function
def train_step(x, y):
  with tf.GradientTape() as tape:
    loss = tf.reduce_mean(tf.square(tf.linalg.matvec(x, w) - y))
    scaled = opt.get_scaled_loss(loss)
  grads = opt.get_unscaled_gradients(tape.gradient(scaled, [w]))
  opt.apply_gradients(zip(grads, [w]))
  return loss


for i in range(4):
  print('loss %.4f' % train_step(data.x, data.y).numpy())
print('w %.3f %.3f' % tuple(w.numpy()), 'iterations', opt.iterations.numpy())
