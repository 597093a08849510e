"""Private modules of Keras beside tf.keras, as of TensorFlow 2.3."""
import tensorflow as tf
from tensorflow.python.keras import backend
from tensorflow.python.keras import initializers
from tensorflow.python.keras import layers as private_layers
from tensorflow.python.keras import models
from tensorflow.python.keras import regularizers
from tensorflow.python.keras.engine import base_layer
from tensorflow.python.keras.engine.input_spec import InputSpec
from tensorflow.python.keras.layers import Dense
from tensorflow.python.keras.optimizer_v2 import gradient_descent as gradient_descent_v2
from tensorflow.python.keras.optimizer_v2 import optimizer_v2
from tensorflow.python.keras.utils import tf_utils

layers = tf.keras.layers


class Shift(base_layer.Layer):

  def build(self, shape):
    self.input_spec = InputSpec(ndim=2)
    self.shift = self.add_weight('shift', shape=shape[1:], initializer='zeros')
    super(Shift, self).build(shape)

  def call(self, inputs):
    return inputs + tf.cast(self.shift, inputs.dtype)


class Descent(optimizer_v2.OptimizerV2):
  """Gradient descent with a slot for the last gradient."""

  def __init__(self, learning_rate, name='Descent', **kwargs):
    super(Descent, self).__init__(name, **kwargs)
    self._set_hyper('learning_rate', learning_rate)

  def _create_slots(self, var_list):
    for var in var_list:
      self.add_slot(var, 'last')

  def _resource_apply_dense(self, grad, var, apply_state=None):
    rate = self._get_hyper('learning_rate', var.dtype.base_dtype)
    last = self.get_slot(var, 'last')
    return tf.group(var.assign_sub(rate * grad), last.assign(grad))

  def get_config(self):
    config = super(Descent, self).get_config()
    config['learning_rate'] = self._serialize_hyperparameter('learning_rate')
    return config


def build():
  image = layers.Input(shape=(2,))
  axis = -1 if backend.image_data_format() == 'channels_last' else 1
  x = Dense(2, kernel_initializer=initializers.Constant(0.5), kernel_regularizer=regularizers.l2(0.01))(image)
  x = layers.BatchNormalization(axis=axis, epsilon=0.5)(x)
  x = Shift()(private_layers.Activation('relu')(x))
  return models.Model(image, layers.Dense(1, kernel_initializer='ones')(x), name='small')


model = build()
print(isinstance(model, tf.keras.Model), isinstance(model.layers[1], layers.Layer), base_layer.Layer is layers.Layer)
print(issubclass(gradient_descent_v2.SGD, tf.keras.optimizers.Optimizer), callable(tf_utils.smart_cond))
optimizer = Descent(0.25)
scaled = tf.train.experimental.enable_mixed_precision_graph_rewrite(optimizer, loss_scale='dynamic')


@tf.function
def train_step(x, factor):
  with tf.GradientTape() as tape:
    loss = tf.reduce_mean(model(x, training=True) ** 2) * factor + sum(model.losses)
    scaled_loss = scaled.get_scaled_loss(loss)
  grads = tape.gradient(scaled_loss, model.trainable_variables)
  scaled.apply_gradients(zip(scaled.get_unscaled_gradients(grads), model.trainable_variables))
  return loss


for factor in (1., float('inf'), 1., 1.):
  loss = train_step(tf.constant([[1., 2.], [3., 5.]]), tf.constant(factor))
  print('loss %.5f  scale %g  kernel %s  last %s' % (
      loss, scaled.get_scaled_loss(tf.constant(1.)), model.layers[1].kernel.numpy().round(4).ravel(),
      optimizer.get_slot(model.layers[1].kernel, 'last').numpy().round(4).ravel()))
print(Descent.from_config(optimizer.get_config()).learning_rate.numpy())
