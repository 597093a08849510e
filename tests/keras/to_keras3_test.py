# SPDX-License-Identifier: Apache-2.0
"""Tests `to_keras3`: models train on in Keras 3 as they would in Keras 2."""

import copy
import functools
import pickle

import helpers
from keras_pairs import assert_close
from keras_pairs import HAS_KERAS_3
from keras_pairs import k2
from keras_pairs import k3
from keras_pairs import KINDS
from keras_pairs import kinds
from keras_pairs import needs_keras_3
from keras_pairs import state_of
from keras_pairs import wrap
import numpy as np
import pytest
import tensorflow as tf

from tf_compat_lossscale import keras

_X = np.random.RandomState(1).normal(size=(8, 3)).astype("f")
_Y = np.random.RandomState(2).normal(size=(8, 2)).astype("f")


def model_of(keras_, dtype=None):
  layer = keras_.layers.Dense(2, dtype=dtype)
  out = keras_.layers.Activation("linear", dtype="float32")
  return keras_.Sequential([keras_.layers.Input((3,)), layer, out])


def trained_model(make, steps=7):
  model = model_of(k2)
  model.set_weights([np.ones((3, 2), "f"), np.zeros(2, "f")])
  model.compile(wrap(make()), "mse", run_eagerly=True)  # Tracing takes long.
  model.fit(_X, _Y, batch_size=8, epochs=steps, verbose=0)
  return model


def train_model3(model, way, steps):
  opt = model.optimizer
  variables = model.trainable_variables
  if way in ("fit", "run_eagerly"):
    model.run_eagerly = way == "run_eagerly"
    model.fit(_X, _Y, batch_size=8, epochs=steps, verbose=0)
  elif way == "train_on_batch":
    for _ in range(steps):
      model.train_on_batch(_X, _Y)
  else:

    def step():
      with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(_X, training=True) - _Y) ** 2)
        loss = opt.scale_loss(loss)
      grads = tape.gradient(loss, [v.value for v in variables])
      if way == "function":
        opt.apply_gradients(zip(grads, variables))
      else:
        opt.apply(grads, variables)

    step = tf.function(step) if way == "function" else step
    for _ in range(steps):
      step()


@functools.cache
def reference(with_slots):
  """Trains a model of Keras 2, once for many tests, which do not train it.

  Returns:
    The model after 7 steps; its weights and state after 10 steps and after 16.
  """
  rate = k2.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
  kind = k2.optimizers if with_slots else k2.optimizers.legacy
  make = kind.Adam if with_slots else kind.SGD
  model = trained_model(lambda: make(rate), 7)
  later = trained_model(lambda: make(rate), 10)
  after_10 = later.get_weights(), state_of(later.optimizer)
  later.fit(_X, _Y, batch_size=8, epochs=6, verbose=0)
  return model, after_10, (later.get_weights(), state_of(later.optimizer))


# Each way and each copy occurs; Keras 3 builds in a graph for "fit", "function"
# and "train_on_batch". It copies a built optimizer without its state: only
# files keep that.
_PAIRS = [
  ("fit", "as it is", False),
  ("fit", "saved trained", True),
  ("train_on_batch", "deepcopy", False),
  ("function", "saved", True),
  ("function", "pickle", False),
  ("apply", "as it is", True),
  ("apply", "deepcopy", False),
  ("run_eagerly", "saved trained", False),
]
_CORE = ("fit", "as it is", False), ("function", "saved", True)


@pytest.mark.thorough
@needs_keras_3
@pytest.mark.parametrize(
  ("way", "copied", "with_slots"),
  [
    pytest.param(*p, marks=() if p in _CORE else pytest.mark.any_release)
    for p in _PAIRS
  ],
)
def test_models(way, copied, with_slots, tmp_path):
  old, _, (weights, state) = reference(with_slots)
  assert state_of(old.optimizer) == (128.0, 2, 7)
  new = model_of(k3)
  new.set_weights(old.get_weights())
  opt = keras.to_keras3(
    old.optimizer, variables=new.trainable_variables if with_slots else None
  )
  assert isinstance(opt, k3.optimizers.LossScaleOptimizer)
  if copied == "deepcopy":
    opt = copy.deepcopy(opt)
  elif copied == "pickle":
    opt = pickle.loads(pickle.dumps(opt))
  new.compile(opt, "mse", auto_scale_loss=False)
  path, done = str(tmp_path / "model.keras"), 0
  if copied == "saved trained":
    done = 4
    train_model3(new, way, done)
  if copied.startswith("saved"):
    new.save(path)
    new = k3.models.load_model(path)
  train_model3(new, way, 9 - done)
  assert type(new.optimizer) is k3.optimizers.LossScaleOptimizer
  assert state_of(new.optimizer) == state == (512.0, 1, 16)
  assert_close(new.get_weights(), weights)


@needs_keras_3
def test_files_name_what_to_import(tmp_path):
  old = reference(False)[0]
  new = model_of(k3)
  new.set_weights(old.get_weights())
  new.compile(keras.to_keras3(old.optimizer), "mse")
  path, trained = str(tmp_path / "model.keras"), str(tmp_path / "trained.keras")
  new.save(path)
  train_model3(new, "run_eagerly", 4)
  new.save(trained)
  module = "tf_compat_lossscale.keras.keras3_optimizer"
  code = f"""
import importlib, sys, keras

def load(path):
  opt = keras.models.load_model(path).optimizer
  print(float(opt.dynamic_scale), int(opt.step_counter), int(opt.iterations))

try:
  load({path!r})
except Exception as error:
  print(str(error).replace(chr(10), " "))
load({trained!r})
print([m for m in sys.modules if m.startswith("tf_compat_lossscale")])
importlib.import_module({module!r})
load({path!r})
"""
  message, *rest = helpers.run_forked("-c", code).splitlines()[-4:]
  assert module in message and "import" in message
  # A trained model's file needs nothing of this package.
  assert rest == ["256.0 1 11", "[]", "128.0 2 7"]


@needs_keras_3
@kinds
def test_keras_2_optimizers_of_a_saved_model(kind, tmp_path):
  old = trained_model(lambda: KINDS[kind].SGD(0.1, momentum=0.9))
  path = str(tmp_path / "saved")
  old.save(path, save_format="tf", save_traces=False)
  # Keras 2 itself brings neither steps nor slots of such an optimizer back.
  old = keras.load_model(path)
  opt2 = old.optimizer
  new = model_of(k3)
  new.set_weights(old.get_weights())
  opt3 = keras.to_keras3(opt2, variables=new.trainable_variables)
  new.compile(opt3, "mse", auto_scale_loss=False)
  train_model3(new, "run_eagerly", 5)
  old.run_eagerly = True
  old.fit(_X, _Y, batch_size=8, epochs=5, verbose=0)
  assert state_of(opt3) == state_of(old.optimizer)
  assert_close(new.get_weights(), old.get_weights())


@needs_keras_3
def test_mixed_float16():
  old = reference(True)[0]
  new = model_of(k3, dtype="mixed_float16")
  new.set_weights(old.get_weights())
  opt3 = keras.to_keras3(old.optimizer, variables=new.trainable_variables)
  new.compile(opt3, "mse")
  assert new.optimizer is opt3
  train_model3(new, "run_eagerly", 3)
  assert state_of(opt3) == (256.0, 0, 10)
  unbuilt = keras.to_keras3(old.optimizer)
  new.compile(unbuilt, "mse")
  train_model3(new, "fit", 3)
  assert state_of(unbuilt) == (256.0, 0, 10)


@pytest.mark.thorough
@needs_keras_3
@pytest.mark.parametrize(
  "with_slots", [pytest.param(False, marks=pytest.mark.any_release), True]
)
def test_replicas(with_slots):
  old, (weights, state), _ = reference(with_slots)
  with helpers.two_replicas().scope():
    model = model_of(k3)
    model.set_weights(old.get_weights())
    opt3 = keras.to_keras3(
      old.optimizer,
      variables=model.trainable_variables if with_slots else None,
    )
    model.compile(opt3, "mse")
  model.fit(_X, _Y, batch_size=8, epochs=3, verbose=0)
  assert state_of(model.optimizer) == state == (256.0, 0, 10)
  assert_close(model.get_weights(), weights)


@pytest.mark.skipif(HAS_KERAS_3, reason="Keras 3 comes with 2.16")
def test_keras_3_is_not_there():
  with pytest.raises(ImportError, match=r"TensorFlow 2\.16"):
    keras.to_keras3(wrap(k2.optimizers.SGD()))


if __name__ == "__main__":
  helpers.main()
