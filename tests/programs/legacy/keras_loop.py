"""A custom Keras loop with get_scaled_loss, as of TensorFlow 2.3."""
import tensorflow as tf

mp = tf.keras.mixed_precision.experimental
optimizer = tf.keras.optimizers.Adam(0.1)
optimizer = mp.LossScaleOptimizer(optimizer, loss_scale='dynamic')
model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, kernel_initializer='ones', input_shape=(2,))])


@tf.function
def train_step(x, factor):
  with tf.GradientTape() as tape:
    loss = tf.reduce_mean(model(x) ** 2) * factor
    scaled_loss = optimizer.get_scaled_loss(loss)
  scaled_gradients = tape.gradient(scaled_loss, model.trainable_variables)
  gradients = optimizer.get_unscaled_gradients(scaled_gradients)
  optimizer.apply_gradients(zip(gradients, model.trainable_variables))
  return loss


for factor in (1., float('inf'), 1., float('nan'), 1.):
  train_step(tf.constant([[1., 2.], [3., 4.]]), tf.constant(factor))
  scale = optimizer.loss_scale
  print('scale %g  step %d  kernel %s' % (float(scale() if callable(scale) else scale), optimizer.iterations.numpy(),
                                         model.layers[0].kernel.numpy().round(3).ravel()))
config = mp.LossScaleOptimizer(tf.keras.optimizers.SGD(), 128).get_config()
print(isinstance(mp.LossScaleOptimizer.from_config(config), mp.LossScaleOptimizer))
