# SPDX-License-Identifier: Apache-2.0
"""Modules of the table that TensorFlow no longer has."""

from __future__ import annotations

import functools
import importlib
import types
from typing import Any

from tf_compat_lossscale._core import legacy_names as table
from tf_compat_lossscale._core import patching
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale._core.legacy_names import Place
from tf_compat_lossscale.programs import contrib_modules
from tf_compat_lossscale.programs import lazy_modules


@functools.cache
def get_module(place: Place, package: str) -> types.ModuleType:
  """Returns the module at a place; creates it at the first call.

  Args:
    place: The place.
    package: The package whose Keras the module's names are for: "tensorflow",
      "keras" or "tf_keras".
  """
  return lazy_modules.LazyModule(
    f"tensorflow.{place.module}",
    functools.partial(_load_member, place, package),
    functools.partial(_list_members, place),
  )


def _load_member(place: Place, package: str, name: str) -> Any:
  """Returns a member of the module at a place, or ABSENT."""
  home = table.NAMES_IN.get(place, {}).get(name)
  if home is not None:
    return load_name(home, name, package)
  if name in table.MODULES_IN.get(place, ()):
    return get_module(Place(place.space, f"{place.module}.{name}"), package)
  if name == "__all__":  # The names that `from … import *` binds.
    return sorted(table.NAMES_IN.get(place, ()))
  if place.module == "contrib" and not name.startswith("_"):
    try:
      return contrib_modules.get_module(name)
    except ImportError as error:
      raise AttributeError(str(error)) from None
  return patching.ABSENT


def _list_members(place: Place) -> list[str]:
  """Returns the names and modules in the module at a place."""
  return sorted(
    {*table.NAMES_IN.get(place, ()), *table.MODULES_IN.get(place, ())}
  )


def load_name(home: str, name: str, package: str) -> Any:
  """Returns the value of a legacy name; imports the module that defines it."""
  if home == "keras" and which_keras.is_keras_3(package):
    home = "keras.keras3_names"
  module = importlib.import_module(f"tf_compat_lossscale.{home}")
  return getattr(module, table.get_current_name(name))
