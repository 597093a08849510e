"""A TensorFlow 2 program: Estimators beside eager code, Keras and tf.function."""
import os
import tempfile

import numpy as np
import tensorflow as tf

tf.get_logger().setLevel('ERROR')
assert tf.executing_eagerly()
x = np.random.RandomState(0).randn(200, 2).astype(np.float32)
labels = (x.sum(1, keepdims=True) > 0).astype(np.int64)
base = tempfile.mkdtemp()


def input_fn(repeats=None):
  return tf.data.Dataset.from_tensor_slices(({'x': x}, labels)).repeat(repeats).batch(20)


def model_fn(features, labels, mode):
  tf1 = tf.compat.v1
  w = tf1.get_variable('w', [2, 1], initializer=tf1.zeros_initializer())
  logits = tf.matmul(features['x'], w)
  labels = tf.cast(labels, tf.float32)
  loss = tf1.losses.sigmoid_cross_entropy(labels, logits)
  opt = tf1.mixed_precision.MixedPrecisionLossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(0.5),
      tf1.mixed_precision.DynamicLossScale(2. ** 100, increment_period=4))
  train_op = opt.minimize(loss, tf1.train.get_or_create_global_step())
  return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


estimator = tf.estimator.Estimator(model_fn, os.path.join(base, 'own'))
estimator.train(input_fn, max_steps=5)
estimator.train(input_fn, max_steps=10)
print('own %.4f' % estimator.evaluate(lambda: input_fn(1))['loss'])
print(estimator.get_variable_value('w').ravel().round(4),
      np.log2(estimator.get_variable_value('current_loss_scale')))

columns = [tf.feature_column.numeric_column('x', [2])]
linear = tf.estimator.LinearClassifier(
    columns, os.path.join(base, 'linear'), optimizer='Ftrl')
linear.train(input_fn, max_steps=60)
print('linear', bool(linear.evaluate(lambda: input_fn(1))['accuracy'] > 0.9))
dnn = tf.estimator.DNNClassifier(
    [4], columns, os.path.join(base, 'dnn'),
    optimizer=lambda: tf.keras.optimizers.legacy.Adam(0.05))
dnn.train(input_fn, max_steps=60)
print('dnn', bool(dnn.evaluate(lambda: input_fn(1))['accuracy'] > 0.9))

model = tf.keras.Sequential([
    tf.keras.layers.Dense(1, 'sigmoid', input_shape=(2,), name='out')])
model.compile(tf.keras.optimizers.legacy.SGD(0.5), 'binary_crossentropy', ['accuracy'])
keras = tf.keras.estimator.model_to_estimator(model, model_dir=os.path.join(base, 'keras'))
keras.train(lambda: input_fn().map(lambda f, y: (f['x'], y)), max_steps=60)
result = keras.evaluate(lambda: input_fn(1).map(lambda f, y: (f['x'], y)))
print('keras', bool(result['accuracy'] > 0.9), result['global_step'])
