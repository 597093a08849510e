# SPDX-License-Identifier: Apache-2.0
"""Tests that loaded models of Keras 2 train on like the saved models."""

import contextlib
import json
import os
import pathlib

import h5py
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
from keras_trainers import values_of
from keras_trainers import variables_of
from keras_trainers import warnings_of
import numpy as np
import processes
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale import keras
from tf_compat_lossscale.keras import _models


@pytest.fixture(autouse=True)
def _logged(caplog):
  with logged(caplog):
    yield


@pytest.mark.parametrize(
  ("kind", "scale", "name"),
  [
    ("legacy", 64.0, "Adam"),
    ("new", 64.0, "RMSprop"),
    pytest.param("legacy", 128, "SGD", marks=pytest.mark.thorough),
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
@kinds
def test_models_that_shared_an_optimizer_share_the_loaded_one(kind, tmp_path):
  optimizer = optimizer_of(kind)
  inputs = k2.Input((4,))
  part = k2.Model(inputs, k2.layers.Dense(4)(inputs), name="part")
  whole = k2.Model(inputs, k2.layers.Dense(1)(part(inputs)))
  if kind == "new":
    optimizer.build(whole.trainable_variables)
  for model in (part, whole):
    model.compile(optimizer, "mse")

  def steps(models):
    with untraced():
      for model in models * 2:  # The loss scale grows.
        y = np.ones((8, *model.output_shape[1:]), "f")
        model.train_on_batch(np.ones((8, 4), "f"), y)

  def state():
    # A legacy optimizer's slots are in the order in which it met variables.
    values = state_of_optimizer(optimizer)
    return sorted(values, key=lambda v: (np.shape(v), np.sum(v)))

  steps((part, whole))
  loaded = keras.load_model(save(whole, tmp_path / "saved"))
  (loaded_part,) = (x for x in loaded.layers if x.name == "part")
  assert loaded_part.optimizer is loaded.optimizer
  steps((part, whole))
  steps((loaded_part, loaded))
  expected, optimizer = state(), loaded.optimizer
  np.testing.assert_equal(state(), expected)
  for one, other in zip(loaded.get_weights(), whole.get_weights()):
    np.testing.assert_array_equal(one, other)


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


@pytest.mark.parametrize(
  "is_gan", [pytest.param(False, marks=pytest.mark.thorough), True]
)
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


_MAKE = {
  "single": lambda: compiled("legacy"),
  "gan": lambda: gan_of("legacy", (16.0, 64.0)),
}
_TRAIN = {"single": train, "gan": train_gan}


def in_sessions():
  """Saves, loads and trains on in the sessions of Keras."""
  tf1 = tf.compat.v1
  tf1.disable_eager_execution()
  v1 = os.environ["CONTROL_FLOW"] == "v1"
  if v1:
    tf1.disable_control_flow_v2()
  folder = pathlib.Path(os.environ["FOLDER"])
  eager_folder = pathlib.Path(os.environ["EAGER_FOLDER"])
  # Each control flow has a GAN and a single model.
  own_model, eager_model = ("gan", "single") if v1 else ("single", "gan")

  model, train_it = _MAKE[own_model](), _TRAIN[own_model]
  train_it(model, FIRST)
  # Saving a model in a session breaks it, so the model first trains on.
  variables = variables_of(model)
  first, state = values_of(variables), state_of(model)
  losses = train_it(model, STEPS)
  trained = state_of(model)
  assert trained != state
  k2.backend.batch_set_value(list(zip(variables, first)))
  loaded = keras.load_model(save(model, folder / "saved"))
  assert state_of(loaded) == state
  assert train_it(loaded, STEPS) == losses
  assert state_of(loaded) == trained

  k2.backend.clear_session()
  eager = json.loads((eager_folder / "state.json").read_text("utf-8"))
  state, losses = eager[eager_model]
  with contextlib.ExitStack() as stack:
    if v1:  # A graph and a session of the program's own.
      stack.enter_context(tf.Graph().as_default())
      stack.enter_context(tf1.Session().as_default())
    loaded = keras.load_model(str(eager_folder / eager_model))
    assert [value.hex() for value in state_of(loaded)] == state
    found = _TRAIN[eager_model](loaded, STEPS)
    np.testing.assert_allclose(found, losses, 1e-5)
  # Newer optimizers cannot train in a session.
  newer = keras.load_model(str(eager_folder / "newer")).optimizer
  values = values_of([newer.loss_scale, newer.iterations])
  assert values == [256.0, 4]


@pytest.fixture(scope="module", name="eager_folder")
def _eager_folder(tmp_path_factory):
  """Saves models eagerly, once, for sessions to load."""
  folder = tmp_path_factory.mktemp("eager")
  newer = compiled("new")
  train(newer, (0, 1, 3, 4))
  save(newer, folder / "newer")
  eager = {}
  for name, make in _MAKE.items():
    model, train_it = make(), _TRAIN[name]
    train_it(model, FIRST)
    save(model, folder / name)
    state = [value.hex() for value in state_of(model)]
    eager[name] = state, train_it(model, STEPS)
  (folder / "state.json").write_text(json.dumps(eager), "utf-8")
  return folder


@pytest.mark.thorough
@pytest.mark.parametrize("control_flow", ["v1", "v2"])
def test_sessions(control_flow, eager_folder, tmp_path):
  processes.run_alone(
    in_sessions,
    CONTROL_FLOW=control_flow,
    EAGER_FOLDER=str(eager_folder),
    FOLDER=str(tmp_path),
    **helpers.KERAS_2,
  )


# Files in other forms, and of old releases.


@kinds
def test_files_without_a_loss_scale(kind, tmp_path, caplog):
  model = dense(3)
  model.compile(optimizer_of(kind), "mse")
  train(model, FIRST)
  path = tmp_path / "model.h5"
  model.save(str(path), save_format="h5")
  with h5py.File(path) as file:
    for given in (str(path), path, file):
      caplog.clear()
      loaded = keras.load_model(given)
      assert int(loaded.optimizer.iterations) == len(FIRST)
      assert float(loaded.optimizer.loss_scale) == 64.0
      (message,) = warnings_of(caplog)
      assert str(path) in message and "loss scales" in message
      assert "slots" not in message
  caplog.clear()
  assert keras.load_model(path, compile=False).predict(batch(0)[0]).any()
  model.compile(optimizer_of(kind, 128), "mse")
  model.save(str(path), save_format="h5")
  loaded = keras.load_model(path)
  assert float(loaded.optimizer.loss_scale) == 128.0
  model.save(str(tmp_path / "no"), include_optimizer=False, save_format="tf")
  assert getattr(keras.load_model(tmp_path / "no"), "optimizer", None) is None
  assert not warnings_of(caplog)


def test_errors_are_keras_own(tmp_path):
  (tmp_path / "empty").mkdir()
  (tmp_path / "file").write_text("no model")
  for name in ("typo", "empty", "file", "typo.keras", "typo.h5"):
    with pytest.raises(OSError) as expected:
      k2.models.load_model(str(tmp_path / name))
    with pytest.raises(OSError) as found:
      keras.load_model(str(tmp_path / name))
    assert type(found.value) is type(expected.value)
    assert str(found.value) == str(expected.value)


@kinds
@pytest.mark.skipif(
  helpers.RELEASE < (2, 13), reason="before, .keras files are HDF5 files"
)
def test_keras_zip_files(kind, tmp_path, caplog):
  model = compiled(kind)
  train(model, FIRST)
  path = tmp_path / "model.keras"
  model.save(str(path))
  loaded = keras.load_model(path)
  (message,) = warnings_of(caplog)
  assert "loss scales" in message and "save_format='tf'" in message
  assert ("slots" in message) == (kind == "legacy")
  state = state_of_optimizer(loaded.optimizer)
  if kind == "new":
    expected = state_of_optimizer(model.optimizer)
    for value, other in zip(state[:-2], expected[:-2]):
      np.testing.assert_array_equal(value, other)
  assert state[-2:] == [64.0, 0]
  caplog.clear()
  gan = gan_of(kind, (16.0, 64.0))
  train_gan(gan, FIRST[:1])
  gan.save(str(path))
  keras.load_model(path)
  assert any("models within this one" in r.getMessage() for r in caplog.records)


@kinds
@pytest.mark.skipif(
  helpers.RELEASE < (2, 13), reason="before, .keras files are HDF5 files"
)
def test_a_keras_zip_file_without_its_policy(kind, tmp_path, caplog):
  """Checks a file that has the optimizer that was passed to `compile`."""
  path = str(tmp_path / "model.keras")
  keras.set_policy(keras.Policy("mixed_float16", tfl.DynamicLossScale(64)))
  try:
    model = dense(3)
    model.compile(optimizer_of(kind, None), "mse")
    train(model, FIRST[:1])
    model.save(path)
    assert keras.load_model(path).optimizer.dynamic
    assert not any("scales no loss" in m for m in caplog.messages)
  finally:
    keras.set_policy(None)
  keras.load_model(path)
  assert any("scales no loss" in m for m in caplog.messages)


@helpers.NEEDS_KERAS_3
def test_files_of_keras_3(tmp_path):
  import keras as k3

  path = str(tmp_path / "model.keras")
  k3.Sequential([k3.Input((4,)), k3.layers.Dense(3)]).save(path)
  with pytest.raises(ValueError, match=r"Keras 3\..*keras\.models\.load_model"):
    keras.load_model(path)


@pytest.mark.parametrize("release", ["2.3.4", "2.4.4", "2.8.4"])
def test_models_of_old_releases(release, caplog):
  golden = helpers.GOLDENS / f"tf-{release}" / "keras_policy_model"
  loaded = keras.load_model(golden / "saved_model")
  assert int(loaded.optimizer.iterations) == 12
  # The same model's checkpoint has the slots, too.
  prefix = str(golden / "saved_model" / "variables" / "variables")
  slots = {
    name: tf.train.load_variable(prefix, name)
    for name, _ in tf.train.list_variables(prefix)
    if ".OPTIMIZER_SLOT" in name
  }
  found = [
    loaded.optimizer.inner_optimizer.get_slot(variable, "momentum")
    for variable in loaded.trainable_variables
  ]
  assert len(slots) == len(found) > 0
  for slot in found:
    assert any(np.array_equal(slot, value) for value in slots.values())
    assert np.any(slot)
  assert not warnings_of(caplog)


def test_a_layout_of_before(tmp_path):
  """Checks checkpoints with `base_optimizer`, of TensorFlow 1.14 to 2.2."""
  model = compiled("legacy")
  train(model, FIRST)
  old = tf.train.Checkpoint(
    base_optimizer=model.optimizer.inner_optimizer,
    loss_scale=model.optimizer._loss_scale.scale,
  )
  layers = {
    f"layer_with_weights-{i}": layer for i, layer in enumerate(model.layers)
  }
  root = tf.train.Checkpoint(optimizer=old, **layers)
  prefix = root.write(str(tmp_path / "variables"))
  again = compiled("legacy", (8.0,))
  again.set_weights(model.get_weights())
  _models.restore_optimizers(again, prefix)
  assert_goes_on(model, again, STEPS[:1])
  iterations = int(again.optimizer.iterations)
  train(again, STEPS[1:])  # The loss is not finite.
  assert int(again.optimizer.iterations) == iterations
