# SPDX-License-Identifier: Apache-2.0
"""Tests what is said if a package that goes with TensorFlow is missing."""

import importlib
from importlib import machinery
import importlib.util
import sys
import types

import helpers
import pytest

import tf_compat_lossscale as tfl
from tf_compat_lossscale._core import which_keras

_MINOR = ".".join(map(str, helpers.RELEASE[:2]))
_COMMANDS = {
  "tensorboard": f"'tensorboard=={_MINOR}.*'",
  "tensorflow_addons": "'tensorflow_addons==0.23.*'",
  "tensorflow_datasets": "tensorflow_datasets",
  "tensorflow_estimator": "'tensorflow-estimator==2.15.*'",
  "tensorflow_hub": "tensorflow_hub",
  "tensorflow_io": "tensorflow_io",
  "tensorflow_model_optimization": "tensorflow_model_optimization",
  "tensorflow_text": f"'tensorflow_text=={_MINOR}.*'",
  "tf_keras": f"'tf_keras=={_MINOR}.*'",
  "tf_slim": "tf_slim",
}


@pytest.fixture
def hidden(monkeypatch):
  """Returns a function that hides a package from the import system."""

  def hide(package):
    names = [name for name in sys.modules if name.split(".")[0] == package]
    for name in names:
      monkeypatch.delitem(sys.modules, name)

    class Finder:
      @staticmethod
      def find_spec(name, *args):
        if name.split(".")[0] == package:
          return None
        return machinery.PathFinder.find_spec(name, *args)

    finders = sys.meta_path
    finders = [Finder if x is machinery.PathFinder else x for x in finders]
    monkeypatch.setattr(sys, "meta_path", finders)

  return hide


@pytest.mark.parametrize("package", list(_COMMANDS))
def test_the_error_says_what_to_install(package, hidden, monkeypatch):
  with tfl.installed():
    hidden(package)
    with pytest.raises(ModuleNotFoundError) as caught:
      importlib.import_module(f"{package}.part")
    assert importlib.util.find_spec(package) is None
    monkeypatch.undo()
  assert caught.value.name == package
  text = str(caught.value)
  assert text.startswith(f"No module named {package!r}")
  assert text.endswith(f": pip install {_COMMANDS[package]}")
  assert "\n" not in text
  hidden(package)
  with pytest.raises(ModuleNotFoundError) as caught:
    importlib.import_module(package)
  assert "pip install" not in str(caught.value)


@pytest.mark.skipif(helpers.RELEASE < (2, 16), reason="keras is Keras 2")
def test_modules_of_keras_2_for_tensorflow_addons(monkeypatch):
  # Of tensorflow_addons, in the module that all of its modules import.
  code = "from keras.src.engine import keras_tensor"
  found = types.ModuleType("found")
  with tfl.installed():
    monkeypatch.setattr(which_keras, "is_keras_3", lambda: False)
    exec(code, vars(found))
  assert found.keras_tensor.__name__ == "tf_keras.src.engine.keras_tensor"
  assert "keras.src.engine" not in sys.modules
  with tfl.installed():
    monkeypatch.setattr(which_keras, "is_keras_3", lambda *package: True)
    with pytest.raises(ModuleNotFoundError, match="run --keras2"):
      exec(code, vars(found))
  with pytest.raises(ModuleNotFoundError, match=r"^No module named"):
    exec(code, vars(found))
