# SPDX-License-Identifier: Apache-2.0
"""Tests models of Keras 2 from HDF5 files, `.keras` files and old releases."""

import h5py
import helpers
from keras_trainers import assert_goes_on
from keras_trainers import batch
from keras_trainers import compiled
from keras_trainers import dense
from keras_trainers import FIRST
from keras_trainers import gan_of
from keras_trainers import k2
from keras_trainers import kinds
from keras_trainers import logged
from keras_trainers import optimizer_of
from keras_trainers import state_of_optimizer
from keras_trainers import STEPS
from keras_trainers import train
from keras_trainers import train_gan
from keras_trainers import warnings_of
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import keras
from tf_compat_lossscale.keras import models


@pytest.fixture(autouse=True)
def _logged(caplog):
  with logged(caplog):
    yield


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
  models.restore_optimizers(again, prefix)
  assert_goes_on(model, again, STEPS[:1])
  iterations = int(again.optimizer.iterations)
  train(again, STEPS[1:])  # The loss is not finite.
  assert int(again.optimizer.iterations) == iterations


if __name__ == "__main__":
  helpers.main()
