# SPDX-License-Identifier: Apache-2.0
"""Tests that a bypassed loss scale of a Keras optimizer is noticed."""

import logging

import pytest
import tensorflow as tf

from tf_compat_lossscale import keras
from tf_compat_lossscale._core import scale_uses
from tf_compat_lossscale.keras import _keras2

_k2 = _keras2.keras


@pytest.fixture(autouse=True)
def _forget(monkeypatch):
  monkeypatch.setattr(scale_uses, "process", scale_uses.State())


def _make(legacy, scale="dynamic"):
  place = _k2.optimizers.legacy if legacy else _k2.optimizers.experimental
  return keras.LossScaleOptimizer(place.SGD(0.1), scale)


def _take(mode, step):
  if mode == "eager":
    step()
  else:
    tf.function(step, autograph=False).get_concrete_function()


_MODES = pytest.mark.parametrize("mode", ["eager", "function"])
_KINDS = pytest.mark.parametrize("legacy", [True, False])


def _differentiate(v, factor=1.0):
  with tf.GradientTape() as tape:
    loss = tf.reduce_sum(v * v) * factor
  return tape.gradient(loss, v)


@_MODES
@_KINDS
@pytest.mark.parametrize("scale", ["dynamic", 128])
def test_gradients_of_a_tape_warn_once(mode, legacy, scale, caplog):
  v, optimizer = tf.Variable([1.0, 2.0]), _make(legacy, scale)
  if not legacy:
    optimizer.build([v])

  def step():
    optimizer.apply_gradients([(_differentiate(v), v)])

  with caplog.at_level(logging.WARNING):
    _take(mode, step)
    _take(mode, step)
  # A fixed scale may be a number of the program's.
  warns = scale == "dynamic"
  assert caplog.text.count("a loss that was not scaled") == warns
  assert ("get_scaled_loss" in caplog.text) == warns
  assert ("tf-lossscale scan" in caplog.text) == warns
  assert "You forgot to call" not in caplog.text  # Keras's own words.


def _minimized(optimizer, v):
  optimizer.minimize(lambda: tf.reduce_sum(v * v), [v])


def _scaled(optimizer, v):
  with tf.GradientTape() as tape:
    loss = optimizer.get_scaled_loss(tf.reduce_sum(v * v))
  grads = optimizer.get_unscaled_gradients(tape.gradient(loss, [v]))
  optimizer.apply_gradients(zip(grads, [v]))


def _by_hand(optimizer, v):
  scale = optimizer.loss_scale
  optimizer.apply_gradients([(_differentiate(v, scale) / scale, v)])


def _by_private_state(optimizer, v):
  scale = optimizer._loss_scale()
  optimizer.apply_gradients([(_differentiate(v, scale) / scale, v)])


def _by_its_variable(optimizer, v):
  scale = optimizer._loss_scale.current_loss_scale
  optimizer.apply_gradients([(_differentiate(v, scale) / scale, v)])


def _zeros(optimizer, v):
  optimizer.apply_gradients([(tf.zeros_like(v), v)])


@_MODES
@_KINDS
@pytest.mark.parametrize(
  "step",
  [
    *(_minimized, _scaled, _by_hand, _by_private_state, _by_its_variable),
    _zeros,
  ],
)
def test_no_false_alarm(mode, legacy, step, caplog):
  v, optimizer = tf.Variable([1.0, 2.0]), _make(legacy)
  if not legacy:
    optimizer.build([v])
  with caplog.at_level(logging.WARNING):
    _take(mode, lambda: step(optimizer, v))
  assert "not scaled" not in caplog.text
  assert "You forgot to call" not in caplog.text


def test_a_train_step_of_the_program(caplog, monkeypatch):
  class Model(_k2.Model):
    def __init__(self):
      super().__init__()
      self.dense = _k2.layers.Dense(1)

    def call(self, x):
      return self.dense(x)

    def train_step(self, data):
      x, y = data
      with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(self(x) - y))
      grads = tape.gradient(loss, self.trainable_variables)
      self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
      return {"loss": loss}

  def fit(model):
    model.compile(_make(legacy=True), "mse")
    model.fit(tf.ones([2, 3]), tf.ones([2, 1]), verbose=0)

  with caplog.at_level(logging.WARNING):
    fit(_k2.Sequential([_k2.layers.Dense(1)]))
    assert "not scaled" not in caplog.text
    monkeypatch.setattr(scale_uses, "process", scale_uses.State())
    fit(Model())
    assert "not scaled" in caplog.text
