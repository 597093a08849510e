# SPDX-License-Identifier: Apache-2.0
"""Explains what to install for packages that TensorFlow no longer brings.

The packages go with TensorFlow, and old programs import them. The errors name
the version for the TensorFlow that is installed.
"""

from __future__ import annotations

import importlib
import types

from tf_compat_lossscale._core import patching
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.programs import estimator
from tf_compat_lossscale.programs import import_hooks

# Package -> why it is not there, if TensorFlow once brought it.
_REASONS = {
  "tensorboard": " (TensorFlow brings none since 2.21)",
  "tensorflow_addons": "",
  "tensorflow_datasets": "",
  "tensorflow_estimator": " (TensorFlow brings none since 2.16)",
  "tensorflow_hub": "",
  "tensorflow_io": "",
  "tensorflow_model_optimization": "",
  "tensorflow_probability": "",
  "tensorflow_text": "",
  "tf_keras": " (tf.keras is Keras 3 since TensorFlow 2.16)",
  "tf_slim": "",
}
# Packages with a release for each minor release of TensorFlow.
_OF_EACH_RELEASE = ("tensorboard", "tensorflow_text", "tf_keras")
# TensorFlow Probability: the last TensorFlow that a release is for -> release.
_PROBABILITY = {
  (2, 12): "==0.20.*",
  (2, 13): "==0.21.*",
  (2, 14): "==0.22.*",
  (2, 15): "==0.23.*",
  (2, 16): "==0.24.*",
}
_LAST_PROBABILITY = "==0.25.*"
# tensorflow_addons 0.23 is its last release, and all of it imports this.
_ADDONS = "==0.23.*"
_OF_KERAS_2 = "keras.src.engine"


def make_install_command(package: str) -> str:
  """Returns the command that installs a package for this TensorFlow.

  Args:
    package: The name by which programs import it.
  """
  release = which_keras.find_release()
  version = ""
  if package == "tensorflow_estimator":
    return estimator.INSTALL_COMMAND
  if package == "tensorflow_addons":
    version = _ADDONS
  elif release is not None and package in _OF_EACH_RELEASE:
    version = f"=={release[0]}.{release[1]}.*"
  elif release is not None and package == "tensorflow_probability":
    fitting = (v for last, v in _PROBABILITY.items() if release <= last)
    version = next(fitting, _LAST_PROBABILITY)
  return (
    f"pip install '{package}{version}'"
    if version
    else (f"pip install {package}")
  )


class Companions(import_hooks.ImportWatcher):
  """A watcher of imports that explains which package is missing.

  tensorflow_addons imports modules of Keras 2 from `keras`, which is Keras 3
  from TensorFlow 2.16 on. These modules are then those of tf_keras.
  """

  def __init__(self, log: patching.UndoLog) -> None:
    self._log = log

  def watches(self, name: str) -> bool:
    return name in _REASONS or name.startswith(_OF_KERAS_2)

  def supply_module(self, name: str) -> types.ModuleType | None:
    if name.startswith(_OF_KERAS_2):
      if which_keras.is_keras_3():
        raise ModuleNotFoundError(
          f"{name} is a module of Keras 2, and tf.keras is Keras 3 here: run "
          "the program by `tf-lossscale run --keras2`, or call "
          "tfl.use_keras_2() before TensorFlow is imported",
          name=name,
        )
      module = importlib.import_module(f"tf_{name}")
      return self._log.supply(name, module)
    raise ModuleNotFoundError(
      f"No module named {name!r}{_REASONS[name]}: {make_install_command(name)}",
      name=name,
    )
