# SPDX-License-Identifier: Apache-2.0
"""Programs whose slots are restored: of TensorFlow 1, and eager ones."""

from __future__ import annotations

import functools
import pathlib
import tempfile

import numpy as np
import tensorflow as tf

from tf1_contrib import opt
import tf_compat_lossscale as tfl

tf1 = tf.compat.v1
train = tf1.train
RATE, STEPS = 0.05, 5
TINY = 1e-30  # As epsilon it is nothing, inside of a root or outside.
SHAPES = {"net/w": (3, 2), "net/embedding": (6, 2)}


def momentum(rate=RATE, name="Momentum"):
  return train.MomentumOptimizer(rate, 0.9, name=name)


# TensorFlow 1's optimizers.
V1 = {
  "plain": lambda: train.GradientDescentOptimizer(RATE),
  "momentum": momentum,
  "nesterov": lambda: train.MomentumOptimizer(RATE, 0.9, use_nesterov=True),
  "rmsprop": lambda: train.RMSPropOptimizer(RATE, 0.8, epsilon=TINY),
  "rmsprop_momentum": lambda: train.RMSPropOptimizer(RATE, 0.8, 0.7, 0.1),
  "centered": lambda: train.RMSPropOptimizer(
    RATE, 0.8, 0.0, TINY, centered=True
  ),
  "centered_momentum": lambda: train.RMSPropOptimizer(
    RATE, 0.8, 0.7, 0.1, centered=True
  ),
  "adagrad": lambda: train.AdagradOptimizer(RATE, 0.3),
  "adadelta": lambda: train.AdadeltaOptimizer(RATE, 0.8, 1e-3),
  "ftrl": lambda: train.FtrlOptimizer(
    RATE, -0.5, 0.2, 0.01, 0.02, l2_shrinkage_regularization_strength=0.1
  ),
  "adam": lambda rate=RATE: train.AdamOptimizer(rate, 0.8, 0.99),
  "adamax": lambda: opt.AdaMaxOptimizer(RATE, 0.8, 0.99),
}


def gradients(step: int) -> list[np.ndarray]:
  random = np.random.RandomState(step)
  return [random.normal(size=s).astype("f") for s in SHAPES.values()]


def initial() -> list[np.ndarray]:
  random = np.random.RandomState(77)
  return [random.normal(size=s).astype("f") for s in SHAPES.values()]


def compute_loss(weights, grads):
  """Returns a loss with some gradients."""
  return tf.add_n([tf.reduce_sum(g * w) for g, w in zip(grads, weights)])


class Program:
  """A program of TensorFlow 1.

  Args:
    optimizer: A function that makes the optimizer.
    steps: Whether there is a global step.
    scope: The variable scope of the updates, if any.
  """

  def __init__(self, optimizer, steps=True, scope=None):
    self.graph = tf.Graph()
    with self.graph.as_default():
      self.weights = [
        tf1.get_variable(name, initializer=value, use_resource=True)
        for name, value in zip(SHAPES, initial())
      ]
      self.grads = [tf1.placeholder(tf.float32, s) for s in SHAPES.values()]
      self.optimizer = optimizer()
      step = train.get_or_create_global_step() if steps else None
      with tf1.variable_scope(scope or tf1.get_variable_scope()):
        loss = compute_loss(self.weights, self.grads)
        self.step = self.optimizer.minimize(loss, step, self.weights)
      self.session = tf1.Session()
      self.session.run(tf1.global_variables_initializer())

  def train(self, begin, end):
    for step in range(begin, end):
      self.session.run(self.step, dict(zip(self.grads, gradients(step))))
    return self.session.run(self.weights)

  def save(self, folder):
    with self.graph.as_default():
      return train.Saver().save(self.session, str(folder / "model"))


class Trained:
  """A program of TensorFlow 1 after `STEPS` steps, and `STEPS` steps later.

  Many tests save the same programs. So each is built and trained once.

  Attributes:
    program: The program. Tests may restore anything into it.
    saved: The weights that it saved.
    wanted: The weights that it had later.
  """

  def __init__(self, optimizer, *args):
    self.program = program = Program(optimizer, *args)
    self.saved = program.train(0, STEPS)
    with tempfile.TemporaryDirectory() as folder:
      program.save(pathlib.Path(folder))
      files = pathlib.Path(folder).iterdir()
      self._files = {path.name: path.read_bytes() for path in files}
    self.wanted = program.train(STEPS, 2 * STEPS)

  def save(self, folder):
    """Writes its checkpoint; returns the path."""
    for name, data in self._files.items():
      (folder / name).write_bytes(data)
    return str(folder / "model")


@functools.cache
def trained(optimizer, *args):
  """Returns `Trained` for arguments of `Program`."""
  return Trained(optimizer, *args)


@functools.cache  # Or a program would be trained for each function.
def scaled(optimizer):
  """Returns a function that makes an optimizer with a loss scale."""
  return lambda: tfl.MixedPrecisionLossScaleOptimizer(
    optimizer(), tfl.DynamicLossScale(2.0**10, 4)
  )


def minimize(optimizer, loss, weights):
  """Takes an eager step of any optimizer."""
  if hasattr(optimizer, "minimize"):
    optimizer.minimize(loss, var_list=weights)
    return
  with tf.GradientTape() as tape:  # Of Keras 3.
    scaled_loss = optimizer.scale_loss(loss())
  grads = tape.gradient(scaled_loss, weights)
  optimizer.apply_gradients(zip(grads, weights))


class EagerProgram:
  """An eager program, with an optimizer of Keras or of TensorFlow 1.

  Args:
    optimizer: A function that makes the optimizer.
    scope: Stands before the weights' names.
  """

  def __init__(self, optimizer, scope=""):
    self.weights = [
      tf.Variable(value, name=scope + name)
      for name, value in zip(SHAPES, initial())
    ]
    self.optimizer = optimizer()
    self.objects = {
      "optimizer": self.optimizer,
      "a": self.weights[0],
      "b": self.weights[1],
    }

  def build(self):
    build(self.optimizer, self.weights)

  def take_steps(self, begin, end):
    for step in range(begin, end):
      loss = functools.partial(compute_loss, self.weights, gradients(step))
      minimize(self.optimizer, loss, self.weights)

  def train(self, begin, end):
    self.take_steps(begin, end)
    return [weight.numpy() for weight in self.weights]

  def save(self, folder):
    saver = tf.train.Checkpoint(**self.objects)
    return saver.save(str(folder / "eager"))


def build(optimizer, weights):
  """Makes an optimizer's slots, as the error about missing slots says."""
  if hasattr(optimizer, "build"):
    optimizer.build(weights)
  else:
    optimizer.apply_gradients([(tf.zeros_like(w), w) for w in weights])


def assert_near(got, wanted):
  for one, other in zip(got, wanted, strict=True):
    np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


def assert_goes_on(new, old):
  """Checks that a program trains on as another, after the same steps."""
  wanted = getattr(old, "wanted", None) or old.train(STEPS, 2 * STEPS)
  assert_near(new.train(STEPS, 2 * STEPS), wanted)
