# SPDX-License-Identifier: Apache-2.0
"""Tests slots of TensorFlow 1 in Keras and back: training goes on as it did."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
from typing import Any

import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.keras import _keras2
from tf_compat_lossscale.programs.contrib import opt_rules as contrib

tf1 = tf.compat.v1
train = tf1.train
k2 = _keras2.keras
legacy = k2.optimizers.legacy
_RATE, _STEPS = 0.05, 5
_TINY = 1e-30  # As epsilon it is nothing, inside of a root or outside.
_SHAPES = {"net/w": (3, 2), "net/embedding": (6, 2)}


@dataclasses.dataclass(frozen=True)
class Pair:
  """An optimizer of TensorFlow 1 and Keras's with the same rule.

  Attributes:
    v1: Makes TensorFlow 1's.
    keras: Makes Keras's.
    lazy: Whether both leave rows without a gradient alone, or both do not.
  """

  v1: Callable[..., Any]
  keras: Callable[[], Any]
  lazy: bool = True


PAIRS = {
  "momentum": Pair(
    lambda: train.MomentumOptimizer(_RATE, 0.9),
    lambda: legacy.SGD(_RATE, 0.9),
  ),
  "nesterov": Pair(
    lambda: train.MomentumOptimizer(_RATE, 0.9, use_nesterov=True),
    lambda: legacy.SGD(_RATE, 0.9, nesterov=True),
  ),
  "rmsprop": Pair(
    lambda: train.RMSPropOptimizer(_RATE, 0.8, epsilon=_TINY),
    lambda: legacy.RMSprop(_RATE, 0.8, epsilon=_TINY),
    lazy=False,
  ),
  "rmsprop_momentum": Pair(
    lambda: train.RMSPropOptimizer(_RATE, 0.8, 0.7, 0.1),
    lambda: legacy.RMSprop(_RATE, 0.8, 0.7, 0.1),
  ),
  "centered": Pair(
    lambda: train.RMSPropOptimizer(_RATE, 0.8, 0.0, _TINY, centered=True),
    lambda: legacy.RMSprop(_RATE, 0.8, 0.0, _TINY, centered=True),
    lazy=False,
  ),
  "centered_momentum": Pair(
    lambda: train.RMSPropOptimizer(_RATE, 0.8, 0.7, 0.1, centered=True),
    lambda: legacy.RMSprop(_RATE, 0.8, 0.7, 0.1, centered=True),
  ),
  "adagrad": Pair(
    lambda: train.AdagradOptimizer(_RATE, 0.3),
    lambda: legacy.Adagrad(_RATE, 0.3, epsilon=_TINY),
  ),
  "adadelta": Pair(
    lambda: train.AdadeltaOptimizer(_RATE, 0.8, 1e-3),
    lambda: legacy.Adadelta(_RATE, 0.8, 1e-3),
  ),
  "ftrl": Pair(
    lambda: train.FtrlOptimizer(
      _RATE, -0.5, 0.2, 0.01, 0.02, l2_shrinkage_regularization_strength=0.1
    ),
    lambda: legacy.Ftrl(
      _RATE, -0.5, 0.2, 0.01, 0.02, l2_shrinkage_regularization_strength=0.1
    ),
  ),
  "adam": Pair(
    lambda: train.AdamOptimizer(_RATE, 0.8, 0.99),
    lambda: legacy.Adam(_RATE, 0.8, 0.99, epsilon=1e-8),
  ),
  "adamax": Pair(
    lambda: contrib.AdaMaxOptimizer(_RATE, 0.8, 0.99),
    lambda: legacy.Adamax(_RATE, 0.8, 0.99, epsilon=1e-8),
  ),
}
pairs = pytest.mark.parametrize("name", list(PAIRS))


def gradients(step: int) -> list[np.ndarray]:
  """Returns the gradients of a step; the second is of three rows."""
  random = np.random.RandomState(step)
  return [random.normal(size=shape).astype("f") for shape in ((3, 2), (3, 2))]


def rows(step: int) -> list[int]:
  """Returns the rows of a step; one occurs twice."""
  return [step % 6, (step + 2) % 6, step % 6]


def initial() -> list[np.ndarray]:
  random = np.random.RandomState(77)
  return [random.normal(size=s).astype("f") for s in _SHAPES.values()]


def compute_loss(weights, grads, rows, sparse):
  """Returns a loss with some gradients, the second sparse or not."""
  found = (
    tf.gather(weights[1], rows)
    if sparse
    else tf.matmul(tf.one_hot(rows, 6), weights[1])
  )
  return tf.reduce_sum(grads[0] * weights[0]) + tf.reduce_sum(grads[1] * found)


class Program:
  """A program of TensorFlow 1."""

  def __init__(self, optimizer, sparse=True, steps=True):
    self.graph = tf.Graph()
    with self.graph.as_default():
      self.weights = [
        tf1.get_variable(name, initializer=value, use_resource=True)
        for name, value in zip(_SHAPES, initial())
      ]
      self.grads = [tf1.placeholder(tf.float32, [3, 2]) for _ in _SHAPES]
      self.rows = tf1.placeholder(tf.int32, [3])
      self.optimizer = optimizer()
      self.step = self.optimizer.minimize(
        compute_loss(self.weights, self.grads, self.rows, sparse),
        tf1.train.get_or_create_global_step() if steps else None,
      )
      self.session = tf1.Session()
      self.session.run(tf1.global_variables_initializer())

  def train(self, begin, end):
    for step in range(begin, end):
      feed = dict(zip(self.grads, gradients(step)))
      self.session.run(self.step, feed | {self.rows: rows(step)})
    return self.session.run(self.weights)

  def save(self, folder):
    with self.graph.as_default():
      return train.Saver().save(self.session, str(folder / "model"))


class KerasProgram:
  """A program of Keras 2, or of a later Keras."""

  def __init__(self, optimizer, sparse=True):
    self.weights = [
      tf.Variable(value, name=name) for name, value in zip(_SHAPES, initial())
    ]
    self.sparse = sparse
    self.optimizer = optimizer()
    self.objects = {
      "optimizer": self.optimizer,
      "a": self.weights[0],
      "b": self.weights[1],
    }

  def train(self, begin, end):
    for step in range(begin, end):

      def loss(step=step):
        return compute_loss(
          self.weights, gradients(step), rows(step), self.sparse
        )

      self.optimizer.minimize(loss, self.weights)
    return [weight.numpy() for weight in self.weights]

  def save(self, folder):
    saver = tf.train.Checkpoint(**self.objects)
    return saver.save(str(folder / "keras"))

  def restore(self, path):
    """Restores a checkpoint as TensorFlow does; all must be there."""
    status = tf.train.Checkpoint(**self.objects).restore(str(path))
    status.assert_existing_objects_matched()


def make_template(optimizer, folder):
  program = KerasProgram(optimizer)
  program.train(90, 91)
  return program.save(folder)


def assert_near(got, wanted):
  for one, other in zip(got, wanted, strict=True):
    np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "scaled"])
@pairs
def test_keras_goes_on(name, wrapped, tmp_path):
  pair = PAIRS[name]

  def make_v1():
    return tfl.MixedPrecisionLossScaleOptimizer(pair.v1(), "dynamic")

  def make_keras():
    return k2.mixed_precision.LossScaleOptimizer(pair.keras())

  old = Program(make_v1 if wrapped else pair.v1, pair.lazy)
  old.train(0, _STEPS)
  path = old.save(tmp_path)
  make = make_keras if wrapped else pair.keras
  template = make_template(make, tmp_path)
  done = checkpoint.convert(path, tmp_path / "new", "keras2", template=template)
  assert ("-0.05" in "".join(done.notes)) == (name in ("momentum", "nesterov"))
  new = KerasProgram(make, pair.lazy)
  new.restore(tmp_path / "new")
  wanted = old.train(_STEPS, 2 * _STEPS)
  assert_near(new.train(_STEPS, 2 * _STEPS), wanted)
  assert int(new.optimizer.iterations) == 2 * _STEPS


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "scaled"])
@pairs
def test_tensorflow_1_goes_on(name, wrapped, tmp_path):
  pair = PAIRS[name]

  def make_v1():
    return tfl.MixedPrecisionLossScaleOptimizer(pair.v1(), "dynamic")

  def make_keras():
    return k2.mixed_precision.LossScaleOptimizer(pair.keras())

  old = KerasProgram(make_keras if wrapped else pair.keras, pair.lazy)
  old.train(0, _STEPS)
  path = old.save(tmp_path)
  make = make_v1 if wrapped else pair.v1
  new = Program(make, pair.lazy)
  with new.graph.as_default():
    saver = checkpoint.Saver()
    saver.restore(new.session, path)
  template = Program(make, pair.lazy).save(tmp_path)
  wanted = old.train(_STEPS, 2 * _STEPS)
  assert_near(new.train(_STEPS, 2 * _STEPS), wanted)
  assert new.session.run(tf1.train.get_global_step(new.graph)) == 2 * _STEPS
  report = saver.last_report
  assert report.bridged["global_step"].startswith("optimizer/")
  assert set(report.initialized) == (
    {f"{n}/RMSProp_{2 if name == 'centered' else 1}" for n in _SHAPES}
    if name in ("rmsprop", "centered")
    else set()
  )
  done = checkpoint.convert(
    path, tmp_path / "names", "saver", template=template
  )
  assert ("rate 0.05" in "".join(done.notes)) == (
    name in ("momentum", "nesterov")
  )
  other = Program(make, pair.lazy)
  with other.graph.as_default():
    train.Saver().restore(other.session, str(tmp_path / "names"))
  assert_near(other.train(_STEPS, 2 * _STEPS), wanted)


if __name__ == "__main__":
  helpers.main()
