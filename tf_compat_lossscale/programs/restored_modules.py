# SPDX-License-Identifier: Apache-2.0
"""Modules of the table that TensorFlow no longer has."""

from __future__ import annotations

import functools
import importlib
import types
from typing import Any

from tf_compat_lossscale._core import install_commands
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
  """Returns the value of a legacy name; imports the module that defines it.

  Args:
    home: The module, as the table has it.
    name: The name.
    package: As for `get_module`.

  Raises:
    ImportError: The name is of Keras 2, and the package's Keras is Keras 3.
  """
  if home == "keras" and which_keras.is_keras_3(package):
    keras = "tf.keras" if package == "tensorflow" else package
    command = install_commands.make_command(
      "tf_keras", which_keras.find_release()
    )
    raise ImportError(
      f"mixed_precision.experimental.{name} is of Keras 2, and {keras} is "
      f"Keras 3 here: set TF_USE_LEGACY_KERAS=1 and install tf_keras "
      f"({command}). For Keras 3, use keras.config.set_dtype_policy and "
      "keras.optimizers.LossScaleOptimizer, or "
      "tf_compat_lossscale.keras.Keras3LossScaleOptimizer."
    )
  module = importlib.import_module(f"tf_compat_lossscale.{home}")
  return getattr(module, table.get_current_name(name))
