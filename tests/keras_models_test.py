# SPDX-License-Identifier: Apache-2.0
"""Tests that loaded models of Keras 2 train on like the saved models."""

import contextlib
import json
import logging
import os
import pathlib

import h5py
import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale import keras
from tf_compat_lossscale.keras import _keras2
from tf_compat_lossscale.keras import _saved_models

k2 = _keras2.keras
own = k2.mixed_precision
_KINDS = {"legacy": k2.optimizers.legacy, "new": k2.optimizers}
kinds = pytest.mark.parametrize("kind", list(_KINDS))
_KERAS_2 = {"TF_USE_LEGACY_KERAS": "1"} if helpers.RELEASE >= (2, 16) else {}
_BAD = (2, 7)  # The steps whose loss is not finite.
# The steps before a model is saved and after it is loaded. A loss scale of each
# model of a GAN grows and skips a step, before or after.
_FIRST, _STEPS = (0, 2, 3, 4), (5, 6, 7)


def optimizer_of(kind, scale=64.0, name="Adam", rate=0.01):
  inner = getattr(_KINDS[kind], name)(rate)
  if scale is None:
    return inner
  if isinstance(scale, int):
    return keras.LossScaleOptimizer(inner, scale)
  return keras.LossScaleOptimizer(inner, tfl.DynamicLossScale(scale, 3))


def dense(units, name=None, layers=1):
  """Makes a model of some layers, each with a kernel and a bias."""
  hidden = [k2.layers.Dense(units) for _ in range(layers)]
  return k2.Sequential([k2.layers.InputLayer((4,)), *hidden], name=name)


def batch(step):
  random = np.random.RandomState(step)
  x, y = random.randn(8, 4), random.randn(8, 3)
  return x.astype("f"), np.full_like(y, np.inf if step in _BAD else 0.5, "f")


@contextlib.contextmanager
def untraced():
  """Runs eagerly what is not a graph's: to trace a step costs a second."""
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
  """Trains a model as Keras would, and returns the losses."""
  return [
    np.asarray(model.train_on_batch(*batch(step))).tolist() for step in steps
  ]


def values_of(variables):
  return k2.backend.batch_get_value(list(variables))


def state_of(model):
  """Returns what training needs, of a model and of the models within it."""
  state = values_of(model.weights)
  # Not `submodules`: Keras of 2.12 fails there for two models in one.
  for each in model._flatten_layers():
    optimizers = [
      value for value in vars(each).values() if _keras2.can_train(value)
    ]
    if isinstance(each, k2.Model):
      optimizers.append(each.optimizer)
    for optimizer in optimizers:
      if optimizer is not None:
        state += state_of_optimizer(optimizer)
  return [value.tobytes() for value in map(np.asarray, state)]


def state_of_optimizer(optimizer):
  variables = optimizer.variables
  state = list(variables() if callable(variables) else variables)
  if getattr(optimizer, "dynamic", False):
    state += [optimizer.loss_scale, optimizer.dynamic_counter]
  return values_of(state)


def save(model, path, traces=False):
  """Saves a SavedModel; the functions of its layers cost seconds."""
  model.save(str(path), save_format="tf", save_traces=traces)
  return str(path)


def warnings_of(caplog):
  return [
    record.getMessage()
    for record in caplog.records
    if "go on as it was saved" in record.getMessage()
    or "the file has no" in record.getMessage()
  ]


@pytest.fixture(autouse=True)
def _logged(caplog):
  logger = logging.getLogger("absl")
  was, logger.propagate = logger.propagate, True
  with caplog.at_level(logging.WARNING, logger="absl"):
    yield
  logger.propagate = was


def assert_goes_on(model, loaded, steps=_STEPS, train=train):
  """Asserts that two models are alike, and stay alike in training."""
  assert state_of(loaded) == state_of(model)
  assert train(loaded, steps) == train(model, steps)
  assert state_of(loaded) == state_of(model)


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
  train(model, _FIRST if dynamic else range(2))
  path = save(model, tmp_path / "saved", traces=scale == 64.0)
  loaded = keras.load_model(pathlib.Path(path))
  assert_goes_on(model, loaded, _STEPS if dynamic else (10, 11, 12))
  assert int(loaded.optimizer.iterations) > 0 and not warnings_of(caplog)


def gan_of(kind, scales):
  """Makes Keras's GAN: two networks, and a model in which one is frozen."""
  generator, discriminator = dense(4, name="g"), dense(3, name="d")
  discriminator.compile(optimizer_of(kind, scales[0]), "mse")
  if len(scales) > 2:
    generator.compile(optimizer_of(kind, scales[2]), "mse")
  inputs = k2.layers.InputLayer((4,))
  gan = k2.Sequential([inputs, generator, discriminator])
  discriminator.trainable = False
  gan.compile(optimizer_of(kind, scales[1]), "mse")
  return gan


def train_gan(gan, steps):
  """Trains a GAN, and returns the losses."""
  with untraced():
    return train_parts(gan, steps)


def train_parts(gan, steps):
  """Trains the networks of a GAN and the whole in turns."""
  generator, discriminator = gan.layers
  losses = []
  for step in steps:
    x, y = batch(step)
    if getattr(generator, "loss", None) is not None:
      losses.append(generator.train_on_batch(x, np.tile(y[:, :1], 4)))
    discriminator.trainable = True
    losses.append(discriminator.train_on_batch(x, y))
    discriminator.trainable = False
    losses.append(gan.train_on_batch(x, batch(step + 1)[1]))
  return np.asarray(losses).tolist()


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
  steps = _FIRST
  if None in scales:  # No loss scale skips steps with infinite gradients.
    steps = (3, 4, 5)
  train_gan(gan, steps)
  loaded = keras.load_model(save(gan, tmp_path / "saved"))
  for each, other in zip((gan, *gan.layers), (loaded, *loaded.layers)):
    assert type(getattr(other, "optimizer", None)) is {
      keras.LossScaleOptimizer: own.LossScaleOptimizer
    }.get(type(each.optimizer), type(other.optimizer))
  steps = (8, 9, 10) if None in scales else _STEPS
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
    for optimizer, part in (
      (self.d_optimizer, self.d),
      (self.g_optimizer, self.g),
    ):
      variables = part.trainable_variables
      with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(self(x) - y))
        scaled = optimizer.get_scaled_loss(loss)
      grads = tape.gradient(scaled, variables)
      grads = optimizer.get_unscaled_gradients(grads)
      optimizer.apply_gradients(zip(grads, variables))
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
  train(model, _FIRST)
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
  losses = train(model, _STEPS)
  assert losses == train(loaded, _STEPS) == train(again, _STEPS)
  assert len(warnings_of(caplog)) == 2
  assert state_of(loaded) == state_of(again) == state_of(model)


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
      for model in models * 4:
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


@kinds
def test_replicas(kind, tmp_path, caplog):
  """Checks a GAN of one kind and a single model of the other."""
  strategy = helpers.two_replicas()
  is_gan = kind == "legacy"
  # Two replicas run slowly without tracing.
  train_it = train_parts if is_gan else train_traced
  with strategy.scope():
    model = gan_of(kind, (16.0, 64.0)) if is_gan else compiled(kind, (64.0,))
  train_it(model, _FIRST)
  path = save(model, tmp_path / "saved")
  state = state_of(model)
  with strategy.scope():
    loaded = keras.load_model(path)
  assert len(loaded.weights[0].values) == 2
  scale = loaded.optimizer._loss_scale.current_loss_scale
  assert len({float(value) for value in scale.values}) == 1
  assert_goes_on(model, loaded, _STEPS, train_it)
  alone = keras.load_model(path)
  assert state_of(alone) == state
  assert not warnings_of(caplog)


def compiled(kind, scales):
  model = dense(3)
  model.compile(optimizer_of(kind, *scales), "mse")
  return model


def in_sessions():
  """Saves, loads and trains on in the sessions of Keras."""
  tf1 = tf.compat.v1
  tf1.disable_eager_execution()
  if os.environ["CONTROL_FLOW"] == "v1":
    tf1.disable_control_flow_v2()
  folder = pathlib.Path(os.environ["FOLDER"])
  eager_folder = pathlib.Path(os.environ["EAGER_FOLDER"])
  eager = json.loads((eager_folder / "state.json").read_text("utf-8"))
  # Either control flow has some of the models and one of the graphs.
  v1 = os.environ["CONTROL_FLOW"] == "v1"
  make, train_it, scales = compiled, train, (64.0,)
  if v1:
    make, train_it, scales = gan_of, train_gan, (16.0, 64.0, 256.0)
  model, unsaved = make("legacy", scales), make("legacy", scales)
  unsaved.set_weights(model.get_weights())
  train_it(model, _FIRST)
  train_it(unsaved, _FIRST)
  # Saving a model in a session breaks it, so another model trains on.
  loaded = keras.load_model(save(model, folder / "saved"))
  assert_goes_on(unsaved, loaded, _STEPS, train_it)
  k2.backend.clear_session()
  with contextlib.ExitStack() as stack:
    if v1:  # A graph and a session of the program's.
      stack.enter_context(tf.Graph().as_default())
      stack.enter_context(tf1.Session().as_default())
    loaded = keras.load_model(str(eager_folder / "eager"))
    assert [value.hex() for value in state_of(loaded)] == eager["state"]
    np.testing.assert_allclose(train_gan(loaded, _STEPS), eager["losses"], 1e-5)
  newer = keras.load_model(
    str(eager_folder / "newer")
  )  # It cannot train there.
  scale, count = values_of(
    [newer.optimizer.loss_scale, newer.optimizer.iterations]
  )
  assert (scale, count) == (256.0, 8)


@pytest.fixture(scope="module", name="eager_folder")
def _eager_folder(tmp_path_factory):
  """Saves models eagerly, once, for sessions to load."""
  folder = tmp_path_factory.mktemp("eager")
  model = dense(3)
  model.compile(optimizer_of("new"), "mse")
  train(model, (0, 1, 3, 4, 5, 6, 8, 9))
  save(model, folder / "newer")
  gan = gan_of("legacy", (16.0, 64.0))
  train_gan(gan, _FIRST)
  save(gan, folder / "eager")
  state = [value.hex() for value in state_of(gan)]
  eager = {"state": state, "losses": train_gan(gan, _STEPS)}
  (folder / "state.json").write_text(json.dumps(eager), "utf-8")
  return folder


@pytest.mark.parametrize("control_flow", ["v1", "v2"])
def test_sessions(control_flow, eager_folder, tmp_path):
  helpers.run_alone(
    in_sessions,
    CONTROL_FLOW=control_flow,
    EAGER_FOLDER=str(eager_folder),
    FOLDER=str(tmp_path),
    **_KERAS_2,
  )


@kinds
def test_files_without_a_loss_scale(kind, tmp_path, caplog):
  model = dense(3)
  model.compile(optimizer_of(kind), "mse")
  train(model, _FIRST)
  path = tmp_path / "model.h5"
  model.save(str(path), save_format="h5")
  with h5py.File(path) as file:
    for given in (str(path), path, file):
      caplog.clear()
      loaded = keras.load_model(given)
      assert int(loaded.optimizer.iterations) == len(_FIRST)
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
  model = compiled(kind, (64.0,))
  train(model, _FIRST)
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
  train_gan(gan, range(2))
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
    train(model, range(1))
    model.save(path)
    assert keras.load_model(path).optimizer.dynamic
    assert not any("scales no loss" in m for m in caplog.messages)
  finally:
    keras.set_policy(None)
  keras.load_model(path)
  assert any("scales no loss" in m for m in caplog.messages)


@pytest.mark.skipif(helpers.RELEASE < (2, 16), reason="Keras 3 comes with 2.16")
def test_files_of_keras_3(tmp_path):
  path = str(tmp_path / "model.keras")
  code = f"""
import keras
keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)]).save({path!r})
"""
  helpers.run_forked("-c", code)
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
  model = compiled("legacy", (64.0,))
  train(model, _FIRST)
  old = tf.train.Checkpoint(
    base_optimizer=model.optimizer.inner_optimizer,
    loss_scale=model.optimizer._loss_scale,
  )
  layers = {
    f"layer_with_weights-{i}": layer for i, layer in enumerate(model.layers)
  }
  root = tf.train.Checkpoint(optimizer=old, **layers)
  prefix = root.write(str(tmp_path / "variables"))
  again = compiled("legacy", (8.0,))
  again.set_weights(model.get_weights())
  _saved_models.restore_optimizers(again, prefix)
  assert_goes_on(model, again, (5, 6))
  iterations = int(again.optimizer.iterations)
  train(again, (7,))
  assert int(again.optimizer.iterations) == iterations


if __name__ == "__main__":
  helpers.main()
