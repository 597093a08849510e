# SPDX-License-Identifier: Apache-2.0
"""Tests that loaded models of Keras 2 train on like the saved models."""

import pathlib

import helpers
from keras_trainers import assert_goes_on
from keras_trainers import batch
from keras_trainers import compiled
from keras_trainers import dense
from keras_trainers import FINITE_FIRST
from keras_trainers import FINITE_STEPS
from keras_trainers import FIRST
from keras_trainers import gan_of
from keras_trainers import k2
from keras_trainers import kinds
from keras_trainers import logged
from keras_trainers import optimizer_of
from keras_trainers import save
from keras_trainers import state_of
from keras_trainers import state_of_optimizer
from keras_trainers import STEPS
from keras_trainers import take_step
from keras_trainers import train
from keras_trainers import train_gan
from keras_trainers import train_traced
from keras_trainers import untraced
from keras_trainers import warnings_of
import numpy as np
import pytest
import tensorflow as tf

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale import keras


@pytest.fixture(autouse=True)
def _logged(caplog):
  with logged(caplog):
    yield


@pytest.mark.parametrize(
  ("kind", "scale", "name"),
  [
    ("legacy", 64.0, "Adam"),
    ("new", 64.0, "RMSprop"),
    ("legacy", 128, "SGD"),
    ("new", 128, "Adam"),
  ],
)
def test_one_optimizer(kind, scale, name, tmp_path, caplog):
  model = dense(3, layers=2)
  model.compile(optimizer_of(kind, scale, name), "mse")
  dynamic = scale == 64.0
  # Tracing takes seconds, so one model alone trains as Keras would train it.
  train_it = train_traced if kind == "new" and dynamic else train
  train_it(model, FIRST if dynamic else FINITE_FIRST)
  path = save(model, tmp_path / "saved", traces=kind == "legacy" and dynamic)
  loaded = keras.load_model(pathlib.Path(path))
  assert_goes_on(model, loaded, STEPS if dynamic else FINITE_STEPS, train_it)
  assert int(loaded.optimizer.iterations) > 0 and not warnings_of(caplog)


@pytest.mark.thorough
@pytest.mark.parametrize(
  ("kind", "scales"),
  [
    ("legacy", (16.0, 64.0, 256.0)),
    ("legacy", (None, 64.0)),
    ("new", (16.0, 64.0)),
    ("new", (16.0, None)),
  ],
)
def test_models_within_a_model(kind, scales, tmp_path, caplog):
  gan = gan_of(kind, scales)
  # Only a loss scale skips steps with infinite gradients.
  first, steps = FIRST, STEPS
  if None in scales:
    first, steps = FINITE_FIRST, FINITE_STEPS
  train_gan(gan, first)
  loaded = keras.load_model(save(gan, tmp_path / "saved"))
  for each, other in zip((gan, *gan.layers), (loaded, *loaded.layers)):
    assert type(getattr(other, "optimizer", None)) is {
      keras.LossScaleOptimizer: k2.mixed_precision.LossScaleOptimizer
    }.get(type(each.optimizer), type(other.optimizer))
  assert_goes_on(gan, loaded, steps, train_gan)
  assert not warnings_of(caplog)


@k2.utils.register_keras_serializable("tests")
class Gan(k2.Model):
  """A model with optimizers by names of its own."""

  def __init__(self, **kwargs):
    super().__init__(**kwargs)
    self.g, self.d = dense(4), dense(3)

  def compile(self, d_optimizer=None, g_optimizer=None, **kwargs):
    super().compile(**kwargs)
    if d_optimizer is not None:
      self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer
      for optimizer, part in ((d_optimizer, self.d), (g_optimizer, self.g)):
        inner = optimizer.inner_optimizer
        build = getattr(inner, "build", None) or inner._create_all_weights
        build(part.trainable_variables)

  def call(self, x):
    return self.d(self.g(x))

  def train_step(self, data):
    x, y = data
    pairs = ((self.d_optimizer, self.d), (self.g_optimizer, self.g))
    for optimizer, part in pairs:
      loss = take_step(
        optimizer,
        lambda: tf.reduce_mean(tf.square(self(x) - y)),
        part.trainable_variables,
      )
    return {"loss": loss}

  def get_config(self):
    return {}

  @classmethod
  def from_config(cls, config, custom_objects=None):
    return cls()


@kinds
def test_optimizers_by_other_names(kind, tmp_path, caplog):
  model = Gan()
  model(batch(0)[0])
  rest = {"optimizer": optimizer_of(kind, 8.0)}
  model.compile(optimizer_of(kind, 16.0), optimizer_of(kind), **rest)
  train(model, FIRST)
  path = save(model, tmp_path / "saved")
  loaded = keras.load_model(path)
  assert float(loaded.optimizer.loss_scale) == 8.0
  messages = warnings_of(caplog)
  assert len(messages) == 2
  for name, message in zip(("d_optimizer", "g_optimizer"), sorted(messages)):
    assert repr(name) in message and "checkpoint.restore" in message
  again = keras.load_model(path, compile=False)
  for each in (loaded, again):
    rest = {"optimizer": optimizer_of(kind, 4.0)}
    each.compile(optimizer_of(kind, 2.0), optimizer_of(kind, 4.0), **rest)
    checkpoint.restore(None, path, each)
    assert state_of(each) == state_of(model)
  losses = train(model, STEPS)
  assert losses == train(loaded, STEPS) == train(again, STEPS)
  assert len(warnings_of(caplog)) == 2
  assert state_of(loaded) == state_of(again) == state_of(model)


@pytest.mark.thorough
@pytest.mark.parametrize(
  ("kind", "siblings"),
  [
    ("legacy", True),
    ("new", False),
    pytest.param("legacy", False, marks=pytest.mark.any_release),
    pytest.param("new", True, marks=pytest.mark.any_release),
  ],
)
def test_an_optimizer_of_two_models(kind, siblings, tmp_path, caplog):
  """Checks that models that shared an optimizer share the loaded one."""
  optimizer = optimizer_of(kind)
  inputs = k2.Input((4,))
  part = k2.Model(inputs, k2.layers.Dense(4)(inputs), name="part")
  last = k2.Model(inputs, k2.layers.Dense(1)(inputs), name="last")
  whole = k2.Model(inputs, last(part(inputs)))
  trained = (part, last) if siblings else (part, whole)
  if kind == "new":
    optimizer.build(whole.trainable_variables)
  for model in trained:
    model.compile(optimizer, "mse")
  if siblings:
    whole.compile("sgd", "mse")
  x = np.ones((8, 4), "f")

  def steps(models):
    with untraced():
      for model in models * 2:  # The loss scale grows.
        model.train_on_batch(x, np.ones((8, *model.output_shape[1:]), "f"))

  steps(trained)
  loaded = keras.load_model(save(whole, tmp_path / "saved"))
  parts = {layer.name: layer for layer in loaded.layers}
  others = (parts["part"], parts["last"] if siblings else loaded)
  assert others[0].optimizer is others[1].optimizer

  def alike():
    # A legacy optimizer's slots are in the order in which it met variables.
    ones, others_ = (
      sorted(state_of_optimizer(each), key=lambda v: (np.shape(v), np.sum(v)))
      for each in (others[0].optimizer, optimizer)
    )
    np.testing.assert_equal(ones, others_)

  alike()
  steps(trained)
  steps(others)
  alike()
  for one, other in zip(loaded.get_weights(), whole.get_weights()):
    np.testing.assert_array_equal(one, other)
  assert not warnings_of(caplog)


def train_replicated(model, steps):
  """Trains the networks of a GAN and the whole, or a model; returns the losses.

  `train_on_batch` would trace the steps and make iterators, in seconds.
  """
  losses = []
  for step in steps:
    for part in model.layers:
      if getattr(part, "optimizer", None) is not None:
        part.trainable = True
        losses += replicated_step(part, step + 1)
        part.trainable = False
    losses += replicated_step(model, step)
  return losses


def replicated_step(model, step):
  """Trains on the same batch in each replica; returns the replicas' losses."""
  strategy = model.distribute_strategy
  model.reset_metrics()
  data = tuple(map(tf.constant, batch(step)))
  found = strategy.run(model.train_step, (data,))["loss"]
  return list(map(float, strategy.experimental_local_results(found)))


@pytest.mark.parametrize("is_gan", [False, True])
def test_replicas(is_gan, tmp_path, caplog):
  """Checks a single new optimizer, and the legacy optimizers of a GAN."""
  strategy = helpers.two_replicas()
  with strategy.scope():
    model = gan_of("legacy", (16.0, 64.0)) if is_gan else compiled("new")
  train_replicated(model, FIRST)
  path = save(model, tmp_path / "saved")
  state = state_of(model)
  with strategy.scope():
    loaded = keras.load_model(path)
  assert len(loaded.weights[0].values) == 2
  for each in (loaded, loaded.layers[1]) if is_gan else (loaded,):
    scale = each.optimizer._loss_scale.current_loss_scale
    assert len({float(value) for value in scale.values}) == 1
  assert_goes_on(model, loaded, STEPS, train_replicated)
  alone = keras.load_model(path)
  assert state_of(alone) == state
  assert not warnings_of(caplog)


if __name__ == "__main__":
  helpers.main()
