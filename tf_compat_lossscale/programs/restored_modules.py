# SPDX-License-Identifier: Apache-2.0
"""Modules of the table that TensorFlow no longer has."""

from __future__ import annotations

import importlib
import types
from typing import Any

from tf_compat_lossscale._core import legacy_names as table
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale._core.legacy_names import Place
from tf_compat_lossscale.programs import contrib_modules


class _RestoredModule(types.ModuleType):
  """A module that TensorFlow no longer has.

  Its members load when a program uses them. Names of Keras depend on the
  package (tensorflow, keras or tf_keras) whose Keras they are for.
  """

  def __init__(self, place: Place, package: str):
    super().__init__(f"tensorflow.{place.module}")
    self.__path__: list[str] = []
    self._place = place
    self._package = package

  def __getattr__(self, name: str) -> Any:
    place: Place = self.__dict__["_place"]
    package: str = self.__dict__["_package"]
    home = table.NAMES_IN.get(place, {}).get(name)
    if home is not None:
      return load_name(home, name, package)
    if name in table.MODULES_IN.get(place, ()):
      child = Place(place.space, f"{place.module}.{name}")
      return get_module(child, package)
    if place.module == "contrib" and not name.startswith("_"):
      try:
        return contrib_modules.get_module(name)
      except ImportError as error:
        raise AttributeError(str(error)) from None
    raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

  @property
  def __all__(self) -> list[str]:
    """The names that `from … import *` binds."""
    return sorted(table.NAMES_IN.get(self._place, ()))

  def __dir__(self) -> list[str]:
    place = self._place
    return sorted(
      {*table.NAMES_IN.get(place, ()), *table.MODULES_IN.get(place, ())}
    )


_modules: dict[tuple[Place, str], _RestoredModule] = {}


def get_module(place: Place, package: str) -> types.ModuleType:
  """Returns the module at a place; creates it at the first call."""
  return _modules.setdefault((place, package), _RestoredModule(place, package))


def load_name(home: str, name: str, package: str) -> Any:
  """Returns the value of a legacy name; imports the module that defines it."""
  if home == "keras" and which_keras.is_keras_3(package):
    home = "keras.keras3_names"
  module = importlib.import_module(f"tf_compat_lossscale.{home}")
  return getattr(module, table.get_current_name(name))


def forget_modules() -> None:
  """Makes the next calls of `get_module` return new modules."""
  _modules.clear()
