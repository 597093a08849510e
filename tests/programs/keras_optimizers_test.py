# SPDX-License-Identifier: Apache-2.0
"""Tests that Keras's optimizers are the legacy ones if a program asks so."""

import helpers
import legacy_processes
import processes
import pytest

import tf_compat_lossscale as tfl

_INSTALL = """if True:
  import inspect
  import tensorflow as tf
  import tf_compat_lossscale as tfl
  LOADED
  new = {name: getattr(tf.keras.optimizers, name) for name in (
      "Adam", "AdamW", "Optimizer", "get", "deserialize")}
  assert new["Adam"] is not tf.keras.optimizers.legacy.Adam
  tfl.install()
  assert tf.keras.optimizers.Adam is new["Adam"]
  tfl.install(keras_optimizers="legacy")
  tfl.install(keras_optimizers="legacy")
  legacy = tf.keras.optimizers.legacy
  assert tf.keras.optimizers.Adam is tf.optimizers.Adam is legacy.Adam
  from tensorflow.keras.optimizers import SGD, Optimizer
  assert (SGD, Optimizer) == (legacy.SGD, legacy.Optimizer)
  assert tf.keras.optimizers.AdamW is new["AdamW"]
  assert tf.keras.optimizers.get.__name__ == "get"
  assert inspect.isfunction(tf.keras.optimizers.get)
  assert type(tf.keras.optimizers.get("adam")) is legacy.Adam
  config = {"class_name": "Adam", "config": {}}
  assert type(tf.keras.optimizers.deserialize(config)) is legacy.Adam
  model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
  model.compile("sgd", "mse")
  assert type(model.optimizer) is SGD
  # The class of this package still takes both kinds.
  old, today = legacy.Adam(), new["Adam"]()
  for optimizer in old, today:
    wrapped = tfl.keras.LossScaleOptimizer(optimizer, "dynamic")
    assert wrapped.inner_optimizer is optimizer
  assert isinstance(tfl.keras.LossScaleOptimizer(SGD(), 8), Optimizer)
  tfl.uninstall()
  import tensorflow.keras.optimizers as again
  for name, value in new.items():
    assert getattr(tf.keras.optimizers, name) is value, name
    assert getattr(again, name) is value, name
  assert type(tf.keras.optimizers.get("adam")) is new["Adam"]
"""


@pytest.mark.parametrize(
  "loaded", ["pass", "import tensorflow.keras.optimizers"]
)
def test_install_and_uninstall(loaded):
  code = _INSTALL.replace("LOADED", loaded)
  processes.run_forked("-c", code, **helpers.KERAS_2)


@pytest.mark.any_release
def test_a_wrong_choice_is_named():
  with pytest.raises(ValueError, match=r"'legacy'.*'new'.*'old'"):
    tfl.install(keras_optimizers="old")


_SHOW = """
import tensorflow as tf
print(tf.keras.optimizers.Adam is tf.keras.optimizers.legacy.Adam)
"""


def test_new_optimizers_by_an_option(tmp_path):
  for options, expected in (
    (("--keras2",), "True\n"),
    (("--keras2", "--keras-optimizers=new"), "False\n"),
    (("--keras-optimizers=legacy",), "True\n"),
    (("--tf1",), "True\n"),
  ):
    printed = legacy_processes.run_text(tmp_path, _SHOW, *options)
    assert printed == expected, options
