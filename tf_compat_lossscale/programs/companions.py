# SPDX-License-Identifier: Apache-2.0
"""Explains what to install for packages that TensorFlow no longer brings.

The packages go with TensorFlow, and old programs import them. The errors name
the version for the TensorFlow that is installed.
"""

from __future__ import annotations

import importlib
import types

from tf_compat_lossscale._core import install_commands
from tf_compat_lossscale._core import patching
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.programs import import_hooks

# Package -> why it is not there, if TensorFlow once brought it.
REASONS = {
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
_OF_KERAS_2 = "keras.src.engine"


def is_missing(package: str) -> bool:
  """Returns whether a package goes with TensorFlow, and is not installed."""
  return package in REASONS and which_keras.find_folder(package) is None


class Companions(import_hooks.ImportWatcher):
  """A watcher of imports that explains which package is missing.

  tensorflow_addons imports modules of Keras 2 from `keras`, which is Keras 3
  from TensorFlow 2.16 on. These modules are then those of tf_keras.
  """

  def __init__(self, log: patching.UndoLog) -> None:
    self._log = log

  def watches(self, name: str) -> bool:
    return name in REASONS or name.startswith(_OF_KERAS_2)

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
    command = install_commands.make_command(name, which_keras.find_release())
    raise ModuleNotFoundError(
      f"No module named {name!r}{REASONS[name]}: {command}", name=name
    )
