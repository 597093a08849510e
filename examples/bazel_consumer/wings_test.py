# SPDX-License-Identifier: Apache-2.0
"""Each public module of the package works with its own target alone.

BUILD has a test for each module, and one for all of the API. Each finds in the
sandbox nothing but what its target depends on.
"""

import importlib
import os
import sys
import tempfile
import unittest

# Keras 2 is the package tf_keras from TensorFlow 2.16 on.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import tensorflow.compat.v1 as tf


def load(name):
  """Returns a module of the package, all of whose names are there."""
  module = importlib.import_module(f"tf_compat_lossscale.{name}")
  for public in dir(module):
    getattr(module, public)
  # A name that does not exist is an AttributeError, whatever targets there are.
  assert not hasattr(module, "no_such_name")
  assert not hasattr(sys.modules["tf_compat_lossscale"], "no_such_name")
  return module


def scaled(loss_scale):
  """Returns an optimizer that scales the loss."""
  from tf_compat_lossscale import loss_scale_optimizer

  inner = tf.train.GradientDescentOptimizer(0.125)
  return loss_scale_optimizer.MixedPrecisionLossScaleOptimizer(
    inner, loss_scale
  )


def train(optimizer, steps, hooks=()):
  """Minimizes the square of a variable that starts at 1; returns its value."""
  w = tf.get_variable("w", initializer=1.0)
  step = tf.train.get_or_create_global_step()
  train_op = optimizer.minimize(tf.square(w), global_step=step)
  with tf.train.MonitoredSession(hooks=list(hooks)) as session:
    for _ in range(steps):
      session.run(train_op)
    return session.run(w)


class WingsTest(unittest.TestCase):
  def setUp(self):
    self.folder = tempfile.TemporaryDirectory()
    self.addCleanup(self.folder.cleanup)
    graph = tf.Graph().as_default()
    graph.__enter__()
    self.addCleanup(graph.__exit__, None, None, None)

  def evaluate(self, value):
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      return session.run(value)

  def test_accumulation(self):
    optimizer = load("accumulation").accumulate(scaled(8.0), 2)
    self.assertEqual(train(optimizer, 2), 0.75)

  def test_checkpoint(self):
    v = tf.get_variable("v", initializer=1.0)
    with tf.Session() as session:
      session.run(v.initializer)
      path = tf.train.Saver().save(session, f"{self.folder.name}/model")
    self.assertEqual(list(load("checkpoint").describe(path).keys), ["v"])

  def test_contrib(self):
    contrib = load("contrib")
    optimizer = contrib.LossScaleOptimizer(
      tf.train.GradientDescentOptimizer(0.125),
      contrib.FixedLossScaleManager(8.0),
    )
    self.assertEqual(train(optimizer, 1), 0.75)

  def test_distributed(self):
    optimizer = load("distributed").agree(scaled(8.0), lambda value: value)
    self.assertEqual(train(optimizer, 1), 0.75)

  def test_environment(self):
    environment = load("environment")
    os.environ["TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING"] = "1"
    self.addCleanup(
      os.environ.pop, "TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING"
    )
    self.assertTrue(environment.asks_for_loss_scale())
    environment.honor_environment(quiet=True)
    self.addCleanup(environment.ignore_environment)
    self.assertEqual(train(tf.train.GradientDescentOptimizer(0.125), 1), 0.75)
    names = [v.name for v in tf.global_variables()]
    self.assertTrue([n for n in names if "loss_scale" in n], names)

  def test_gradients(self):
    (grad,) = load("gradients").unscale([tf.constant(8.0)], tf.constant(8.0))
    self.assertEqual(self.evaluate(grad), 1.0)

  def test_graph_rewrite(self):
    graph_rewrite = load("graph_rewrite")
    optimizer = graph_rewrite.enable_mixed_precision_graph_rewrite(
      tf.train.GradientDescentOptimizer(0.125), 8.0
    )
    self.addCleanup(graph_rewrite.disable_mixed_precision_graph_rewrite)
    self.assertEqual(train(optimizer, 1), 0.75)

  def test_keras(self):
    policy = load("keras").Policy("mixed_float16", loss_scale=8.0)
    self.assertEqual(self.evaluate(policy.loss_scale()), 8.0)

  def test_loss_scale(self):
    loss_scale = load("loss_scale").get("dynamic")
    self.assertEqual(self.evaluate(loss_scale()), 2.0**15)

  def test_loss_scale_optimizer(self):
    load("loss_scale_optimizer")
    self.assertEqual(train(scaled(8.0), 1), 0.75)

  def test_monitoring(self):
    monitoring = load("monitoring")
    optimizer = scaled("dynamic")
    hook = monitoring.LossScaleHook(optimizer, self.folder.name)
    self.assertEqual(train(optimizer, 1, [hook]), 0.75)
    self.assertEqual(len(os.listdir(self.folder.name)), 1)

  def test_policies(self):
    loss_scale = load("policies").GrowthBackoff(2.0**16)
    self.assertEqual(self.evaluate(loss_scale()), 2.0**16)


class ApiTest(unittest.TestCase):
  def test_every_name(self):
    import tf_compat_lossscale as tfl

    for name in dir(tfl):
      self.assertIsNotNone(getattr(tfl, name))
      if os.path.exists(f"{os.path.dirname(tfl.__file__)}/{name}"):
        load(name)

  def test_install(self):
    import tf_compat_lossscale as tfl

    with tfl.installed():
      from tensorflow.contrib import mixed_precision

      manager = mixed_precision.FixedLossScaleManager(8.0)
    self.assertEqual(type(manager).__module__, "tf_compat_lossscale.contrib")


if __name__ == "__main__":
  unittest.main()
