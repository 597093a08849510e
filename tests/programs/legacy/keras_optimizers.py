"""Optimizers of Keras as of TensorFlow 2.3: subclasses, slots, attributes."""
import os
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow.keras.mixed_precision import experimental as mixed_precision
from tensorflow.keras.optimizers import Adam


class Clipped(tf.keras.optimizers.SGD):
  """Clips each gradient, and counts its calls."""
  calls = 0

  def _resource_apply_dense(self, grad, var, apply_state=None):
    Clipped.calls += 1
    return super()._resource_apply_dense(tf.clip_by_value(grad, -1., 1.), var, apply_state)

  def get_config(self):
    return dict(super().get_config(), clipped=True)


def names(optimizer):
  return ' '.join(sorted(v.name.split(':')[0] for v in optimizer.variables()))


def train(optimizer, w, steps):
  for _ in range(steps):
    with tf.GradientTape() as tape:
      loss = tf.reduce_sum(w ** 2)
    optimizer.apply_gradients([(tape.gradient(loss, w), w)])
  return [round(float(x), 5) for x in w.numpy()]


adam = Adam(lr=0.1, decay=0.01, beta_1=0.8)
print('adam %s %s %g %g' % (isinstance(adam, tf.keras.optimizers.Optimizer), isinstance(adam, tf.optimizers.Adam), adam.beta_1, adam.decay))
w = tf.Variable([1., -2.], name='w')
print(train(adam, w, 3))
print(int(adam.iterations), adam.get_slot_names(), [round(float(x), 5) for x in adam.get_slot(w, 'm').numpy()])
print(len(adam.get_weights()), names(adam))
prefix = tf.train.Checkpoint(optimizer=adam, w=w).save(os.path.join(tempfile.mkdtemp(), 'ckpt'))
print('\n'.join(name for name, _ in tf.train.list_variables(prefix) if 'OPTIMIZER_SLOT' in name))
other = tf.keras.optimizers.Adam(0.1, decay=0.01, beta_1=0.8)
v = tf.Variable([0., 0.], name='w')
tf.train.Checkpoint(optimizer=other, w=v).restore(prefix)
print(train(w=v, optimizer=other, steps=1) == train(adam, w, 1))

clipped = Clipped(0.5, momentum=0.9)
u = tf.Variable([3., 0.1], name='u')
print(train(clipped, u, 2), Clipped.calls, clipped.get_config()['clipped'])
for name in ('sgd', 'Adam', 'rmsprop', 'adagrad', 'adadelta', 'adamax', 'nadam', 'ftrl'):
  found = tf.keras.optimizers.get(name)
  made = tf.keras.optimizers.deserialize(tf.keras.optimizers.serialize(found))
  print(name, type(found) is type(made), isinstance(found, tf.keras.optimizers.Optimizer), isinstance(found, getattr(tf.keras.optimizers, type(found).__name__)))

mixed_precision.set_policy('mixed_float16')
model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer='ones', input_shape=(2,), dtype='float32')])
model.compile('adam', 'mse')
print(hasattr(model.optimizer, 'loss_scale'), isinstance(model.optimizer, tf.keras.optimizers.Optimizer))
mixed_precision.set_policy('float32')
model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer='ones', input_shape=(2,))])
model.compile('adam', 'mse')
model.fit(np.ones((4, 2)), np.zeros((4, 1)), batch_size=2, verbose=0)
print(type(model.optimizer) is Adam, int(model.optimizer.iterations), len(model.optimizer.get_weights()))
