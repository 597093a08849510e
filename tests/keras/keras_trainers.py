# SPDX-License-Identifier: Apache-2.0
"""Builds and trains small Keras 2 models, and compares models while they train.

The tests save a model, load it, and train both models on.
"""

import contextlib
import logging

import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import keras
from tf_compat_lossscale.keras import _keras2

k2 = _keras2.keras
KINDS = {"legacy": k2.optimizers.legacy, "new": k2.optimizers}
kinds = pytest.mark.parametrize("kind", list(KINDS))
_BAD = (2, 5)  # The steps whose loss is not finite.
_GROWTH = 2
# The steps before a model is saved, and after it is loaded. Each of a GAN's
# loss scales grows once and skips a step, before or after the save.
FIRST, STEPS = (1, 2, 3), (4, 5)
# Steps with finite losses, for optimizers without a dynamic loss scale.
FINITE_FIRST, FINITE_STEPS = (7, 8), (9, 10)


def optimizer_of(kind, scale=64.0, name="Adam", rate=0.01):
  """Returns an optimizer of Keras 2.

  Args:
    kind: 'legacy' or 'new'.
    scale: A float for a dynamic loss scale, an integer for a fixed loss scale,
      None for an optimizer without a loss scale.
    name: The name of the inner optimizer's class.
    rate: The learning rate.
  """
  inner = getattr(KINDS[kind], name)(rate)
  if scale is None:
    return inner
  if isinstance(scale, int):
    return keras.LossScaleOptimizer(inner, scale)
  return keras.LossScaleOptimizer(inner, tfl.DynamicLossScale(scale, _GROWTH))


def dense(units, name=None, layers=1):
  """Returns a model of `layers` layers, each with a kernel and a bias."""
  hidden = [k2.layers.Dense(units) for _ in range(layers)]
  return k2.Sequential([k2.layers.InputLayer((4,)), *hidden], name=name)


def compiled(kind, scales=(64.0,)):
  """Returns a compiled model of one layer."""
  model = dense(3)
  model.compile(optimizer_of(kind, *scales), "mse")
  return model


def gan_of(kind, scales):
  """Returns Keras's GAN: two networks, and a model that freezes the second.

  Args:
    kind: The kind of all optimizers.
    scales: The loss scales of the discriminator, of the whole and, if there
      are three, of the generator.
  """
  generator, discriminator = dense(4, name="g"), dense(3, name="d")
  discriminator.compile(optimizer_of(kind, scales[0]), "mse")
  if len(scales) > 2:
    generator.compile(optimizer_of(kind, scales[2]), "mse")
  inputs = k2.layers.InputLayer((4,))
  gan = k2.Sequential([inputs, generator, discriminator])
  discriminator.trainable = False
  gan.compile(optimizer_of(kind, scales[1]), "mse")
  return gan


def batch(step):
  """Returns a batch: inputs, and targets that are infinite in bad steps."""
  random = np.random.RandomState(step)
  x, y = random.randn(8, 4), random.randn(8, 3)
  return x.astype("f"), np.full_like(y, np.inf if step in _BAD else 0.5, "f")


@contextlib.contextmanager
def untraced():
  """Runs `tf.function`s eagerly: tracing a step would take a second."""
  if not tf.executing_eagerly():
    yield
    return
  tf.config.run_functions_eagerly(True)
  try:
    yield
  finally:
    tf.config.run_functions_eagerly(False)


def train(model, steps):
  """Trains a model, and returns the losses."""
  with untraced():
    return train_traced(model, steps)


def train_traced(model, steps):
  """Trains a model in a `tf.function`, and returns the losses."""
  return [
    np.asarray(model.train_on_batch(*batch(step))).tolist() for step in steps
  ]


def train_gan(gan, steps):
  """Trains the networks of a GAN and the whole in turn; returns the losses."""
  generator, discriminator = gan.layers
  losses = []
  with untraced():
    for step in steps:
      x, y = batch(step)
      if getattr(generator, "loss", None) is not None:
        losses.append(generator.train_on_batch(x, np.tile(y[:, :1], 4)))
      discriminator.trainable = True
      losses.append(discriminator.train_on_batch(x, y))
      discriminator.trainable = False
      losses.append(gan.train_on_batch(x, batch(step + 1)[1]))
  return np.asarray(losses).tolist()


def take_step(optimizer, loss, variables):
  """Takes a step as Keras's guide did; returns the value of `loss()`."""
  with tf.GradientTape() as tape:
    value = loss()
    scaled = optimizer.get_scaled_loss(value)
  grads = optimizer.get_unscaled_gradients(tape.gradient(scaled, variables))
  optimizer.apply_gradients(zip(grads, variables))
  return value


def values_of(variables):
  """Returns the values of variables, also in a session."""
  return k2.backend.batch_get_value(list(variables))


def variables_of(model):
  """Returns the variables of a model, its inner models and its optimizers."""
  variables = list(model.weights)
  # Not `submodules`: Keras of 2.12 fails there for two models in one.
  for each in model._flatten_layers():
    optimizers = [
      value for value in vars(each).values() if _keras2.can_train(value)
    ]
    if isinstance(each, k2.Model):
      optimizers.append(each.optimizer)
    for optimizer in optimizers:
      if optimizer is not None:
        variables += variables_of_optimizer(optimizer)
  return variables


def variables_of_optimizer(optimizer):
  """Returns the variables of an optimizer, its loss scale's included."""
  found = optimizer.variables
  variables = list(found() if callable(found) else found)
  if getattr(optimizer, "dynamic", False):
    state = optimizer._loss_scale
    scale = getattr(state, "scale", state)  # Keras's own state has none.
    variables += [scale.current_loss_scale, optimizer.dynamic_counter]
  return variables


def state_of(model):
  """Returns the values of `variables_of` as bytes."""
  values = values_of(variables_of(model))
  return [value.tobytes() for value in map(np.asarray, values)]


def state_of_optimizer(optimizer):
  """Returns the values of `variables_of_optimizer`."""
  return values_of(variables_of_optimizer(optimizer))


def save(model, path, traces=False):
  """Saves a SavedModel, by default without its layers' functions.

  The functions would take seconds.
  """
  model.save(str(path), save_format="tf", save_traces=traces)
  return str(path)


@contextlib.contextmanager
def logged(caplog):
  """Lets `caplog` see the warnings that absl logs."""
  logger = logging.getLogger("absl")
  was, logger.propagate = logger.propagate, True
  with caplog.at_level(logging.WARNING, logger="absl"):
    yield
  logger.propagate = was


def warnings_of(caplog):
  """Returns the warnings about what a load could not restore."""
  return [
    record.getMessage()
    for record in caplog.records
    if "go on as it was saved" in record.getMessage()
    or "the file has no" in record.getMessage()
  ]


def assert_goes_on(model, loaded, steps=STEPS, train=train):
  """Asserts that two models are alike, and stay alike in training."""
  assert state_of(loaded) == state_of(model)
  assert train(loaded, steps) == train(model, steps)
  assert state_of(loaded) == state_of(model)
