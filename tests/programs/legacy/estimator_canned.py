"""Canned estimators, exporters, warm start and TPUEstimator without a TPU."""
from __future__ import print_function

import os
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow.contrib.tpu.python.tpu import tpu_config

tf.logging.set_verbosity(tf.logging.ERROR)
columns = [
    tf.feature_column.numeric_column('x', [2]),
    tf.feature_column.embedding_column(
        tf.feature_column.categorical_column_with_vocabulary_list('c', ['a', 'b']), 2),
]
linear_columns = columns[:1] + [
    tf.feature_column.categorical_column_with_hash_bucket('c', 5)]
x = np.random.RandomState(0).randn(200, 2).astype(np.float32)
c = np.where(x[:, 0] > 0, 'a', 'b')
labels = (x.sum(1) > 0).astype(np.int64)
base = tempfile.mkdtemp()


def config(name):
  return tf.estimator.RunConfig(os.path.join(base, name), tf_random_seed=1,
                                save_checkpoints_steps=1000)


def input_fn(epochs=None):
  data = tf.data.Dataset.from_tensor_slices(({'x': x, 'c': c}, labels))
  return data.repeat(epochs).batch(20)


def serving_fn():
  features = {'x': tf.placeholder(tf.float32, [None, 2], 'x'),
              'c': tf.placeholder(tf.string, [None], 'c')}
  return tf.estimator.export.ServingInputReceiver(features, features)


def report(name, estimator):
  result = estimator.evaluate(lambda: input_fn(1))
  print(name, 'accurate', bool(result['accuracy'] > 0.9), sorted(result))
  print(' '.join(sorted(estimator.get_variable_names())))


dnn = tf.estimator.DNNClassifier(
    [8], columns, config=config('dnn'), optimizer=tf.train.AdagradOptimizer(0.3))
exporters = [
    tf.estimator.LatestExporter('latest', serving_fn),
    tf.estimator.FinalExporter('final', serving_fn),
    tf.estimator.BestExporter(serving_input_receiver_fn=serving_fn),
]
tf.estimator.train_and_evaluate(
    dnn, tf.estimator.TrainSpec(input_fn, max_steps=60),
    tf.estimator.EvalSpec(lambda: input_fn(1), exporters=exporters, throttle_secs=0))
report('dnn', dnn)
print(sorted(os.listdir(os.path.join(dnn.model_dir, 'export'))))

exported = dnn.export_saved_model(os.path.join(base, 'saved'), serving_fn)
with tf.Graph().as_default(), tf.Session() as sess:
  meta = tf.saved_model.loader.load(sess, ['serve'], exported.decode())
  print(sorted(meta.signature_def))
  probabilities = meta.signature_def['predict'].outputs['probabilities'].name
  served = sess.run(probabilities, {'x:0': x, 'c:0': c})
predicted = np.array([p['probabilities'] for p in dnn.predict(lambda: input_fn(1))])
print('served as predicted', np.allclose(served, predicted, atol=1e-6))

warm = tf.estimator.DNNClassifier(
    [8], columns, config=config('warm'),
    warm_start_from=tf.estimator.WarmStartSettings(dnn.model_dir, '.*hiddenlayer.*'))
warm.train(input_fn, steps=1)
kernel = 'dnn/hiddenlayer_0/kernel'
moved = np.abs(warm.get_variable_value(kernel) - dnn.get_variable_value(kernel)).max()
print('warm', bool(moved < 0.06))

both = tf.estimator.DNNLinearCombinedClassifier(
    linear_feature_columns=linear_columns, dnn_feature_columns=columns,
    dnn_hidden_units=[4], config=config('both'),
    dnn_optimizer=tf.train.AdamOptimizer(0.05),
    linear_optimizer=tf.train.FtrlOptimizer(0.3))
both.train(input_fn, steps=60, hooks=[tf.train.StepCounterHook()])
report('both', both)


def model_fn(features, labels, mode, params):
  logits = tf.layers.dense(features['x'], 2, name='out')
  loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
  opt = tf.train.experimental.MixedPrecisionLossScaleOptimizer(
      tf.train.GradientDescentOptimizer(0.5), 'dynamic')
  train_op = opt.minimize(loss, tf.train.get_global_step())
  metric_fn = lambda labels, logits: {
      'accuracy': tf.metrics.accuracy(labels, tf.argmax(logits, 1))}
  return tf.estimator.tpu.TPUEstimatorSpec(
      mode, loss=loss, train_op=train_op, eval_metrics=(metric_fn, [labels, logits]))


tpu = tf.estimator.tpu.TPUEstimator(
    model_fn, use_tpu=False, train_batch_size=20, eval_batch_size=20,
    config=tf.estimator.tpu.RunConfig(
        model_dir=os.path.join(base, 'tpu'), save_checkpoints_steps=1000,
        tpu_config=tpu_config.TPUConfig(iterations_per_loop=5)))
tpu.train(lambda params: input_fn(), max_steps=60)
result = tpu.evaluate(lambda params: input_fn(), steps=10)
print('tpu accurate', bool(result['accuracy'] > 0.9), sorted(result))
print(' '.join(sorted(tpu.get_variable_names())))
