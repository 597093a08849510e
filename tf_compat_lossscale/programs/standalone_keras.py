# SPDX-License-Identifier: Apache-2.0
"""Makes `import keras` give the Keras 2 that `tf.keras` is.

The package keras is Keras 3 from TensorFlow 2.16 on, and Keras 2 is tf_keras.
Later releases of Keras 2 lack modules such as `keras.engine`. Each process of
`run` loads this module at its start.
"""

from __future__ import annotations

import importlib
import re
import sys
import types

from tf_compat_lossscale._core import patching
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.programs import import_hooks

_STANDALONE = re.compile(r"(tf_)?keras(\.|$)")
_OLD = "tensorflow.python.keras"  # What `private_keras` serves.
# A module that had modules below it, and is none that can have some in 2.12.
_BACKEND = "keras.backend"


class StandaloneKeras(import_hooks.ImportWatcher):
  """A watcher that gives imports of keras the modules of Keras 2."""

  def __init__(self, log: patching.UndoLog) -> None:
    self._log = log

  def start_if_keras_2(self) -> None:
    """Starts, unless `tf.keras` or the loaded package keras is Keras 3."""
    keras = sys.modules.get("keras")
    is_other = keras not in (None, sys.modules.get("tf_keras"))
    if which_keras.means_keras_3() or (_is_apart() and is_other):
      return
    self.start()
    if _BACKEND in sys.modules:
      self.after_load(_BACKEND, sys.modules[_BACKEND])

  def watches(self, name: str) -> bool:
    return _STANDALONE.match(name) is not None

  def after_load(self, name: str, module: types.ModuleType) -> None:
    if name == _BACKEND and not hasattr(module, "__path__"):
      self._log.set(module, "__path__", [])

  def replace_module(self, name: str) -> types.ModuleType | None:
    if not _is_apart() or name.startswith("tf_"):
      return None
    return self._import(name, f"tf_{name}") or self.supply_module(name)

  def supply_module(self, name: str) -> types.ModuleType | None:
    return self._import(name, f"{_OLD}.{name.partition('.')[2]}")

  def _import(self, name: str, other: str) -> types.ModuleType | None:
    """Returns a module, by its other name; None if there is none."""
    module = find(other)
    return None if module is None else self._log.supply(name, module)


def find(name: str) -> types.ModuleType | None:
  """Imports a module; returns None if there is none."""
  try:
    return importlib.import_module(name)
  except ModuleNotFoundError as error:
    if not name.startswith(error.name or "?"):
      raise
    return None


def _is_apart() -> bool:
  """Returns whether the package keras is not Keras 2."""
  return not which_keras.find_keras_2().startswith("keras")
