"""Keras under an experimental policy: compile and fit, as of TensorFlow 2.3."""
import numpy as np
import tensorflow as tf
from tensorflow.keras import layers
from tensorflow.keras.mixed_precision import experimental as mixed_precision

policy = mixed_precision.Policy('mixed_float16', loss_scale=tf.mixed_precision.experimental.DynamicLossScale(
    initial_loss_scale=2. ** 6, increment_period=4))
mixed_precision.set_policy(policy)
print('compute %s, variables %s' % (policy.compute_dtype, policy.variable_dtype))

inputs = tf.keras.Input(shape=(4,), name='x')
hidden = layers.Dense(8, activation='relu', kernel_initializer='ones', name='hidden')(inputs)
outputs = layers.Activation('linear', dtype='float32', name='out')(layers.Dense(1, kernel_initializer='ones')(hidden))
model = tf.keras.Model(inputs, outputs)
model.compile(loss='mse', optimizer=tf.keras.optimizers.SGD(1e-4))
print(isinstance(model.optimizer, mixed_precision.LossScaleOptimizer))
print(mixed_precision.get_layer_policy(model.layers[1]).name)
x = np.linspace(0., 1., 64).reshape(16, 4).astype(np.float32)
history = model.fit(x, x.sum(1), batch_size=2, epochs=2, shuffle=False, verbose=0)
print(history.history['loss'][1] < history.history['loss'][0])
scale = model.optimizer.loss_scale
print('scale %g' % float(scale() if callable(scale) else scale))
mixed_precision.set_policy('float32')
print(mixed_precision.global_policy().name)
