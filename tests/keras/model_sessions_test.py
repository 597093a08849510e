# SPDX-License-Identifier: Apache-2.0
"""Tests that Keras 2 models saved or loaded in sessions train on alike."""

import contextlib
import json
import os
import pathlib

import helpers
from keras_trainers import compiled
from keras_trainers import FIRST
from keras_trainers import gan_of
from keras_trainers import k2
from keras_trainers import save
from keras_trainers import state_of
from keras_trainers import STEPS
from keras_trainers import train
from keras_trainers import train_gan
from keras_trainers import values_of
from keras_trainers import variables_of
import numpy as np
import pytest
import tensorflow as tf

from tf_compat_lossscale import keras

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
  helpers.run_alone(
    in_sessions,
    CONTROL_FLOW=control_flow,
    EAGER_FOLDER=str(eager_folder),
    FOLDER=str(tmp_path),
    **helpers.KERAS_2,
  )


if __name__ == "__main__":
  helpers.main()
