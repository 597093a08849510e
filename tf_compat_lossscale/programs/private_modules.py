# SPDX-License-Identifier: Apache-2.0
"""Puts private modules and names of TensorFlow 1 back that moved or went."""

from __future__ import annotations

from collections.abc import Callable
import importlib
import sys
import types
from typing import Any

from tf_compat_lossscale._core import patching
from tf_compat_lossscale.programs import import_hooks
from tf_compat_lossscale.programs import loading
from tf_compat_lossscale.programs import moved_modules as table


class _Package(types.ModuleType):
  """A package that TensorFlow lacks, with the names of another package.

  The other package itself would lead the import system to files that have other
  names than the program means.
  """

  def __init__(self, name: str, other: types.ModuleType):
    super().__init__(name)
    self.__path__: list[str] = []
    self._other = other

  def __getattr__(self, name: str) -> Any:
    if not name.startswith("__"):
      child = f"{self.__name__}.{name}"
      try:
        return importlib.import_module(child)
      except ModuleNotFoundError as error:
        if error.name != child:
          raise
    return getattr(self.__dict__["_other"], name)


class PrivateModules(import_hooks.ImportWatcher):
  """A watcher of imports that serves what the table of moved modules has.

  A module that TensorFlow lacks is the module that the table names. A module
  that lacks names gets a `__getattr__`, which loads a name at its first use.
  Nothing that exists is replaced.
  """

  def __init__(self, log: patching.UndoLog) -> None:
    self._log = log

  def watches(self, name: str) -> bool:
    return (
      name in table.NAMES
      or name in table.GONE
      or (
        name.startswith("tensorflow.python.") and bool(table.find_module(name))
      )
    )

  def after_load(self, name: str, module: types.ModuleType) -> None:
    self._fill(name, module)

  def supply_module(self, name: str) -> types.ModuleType | None:
    if name in table.GONE:
      message = f"{name} is gone: {table.GONE[name]}"
      raise ModuleNotFoundError(message, name=name)
    target = table.find_module(name)
    if target is None:
      return None
    try:
      module = loading.load(target)
    except loading.TargetError:
      return None
    if not isinstance(module, types.ModuleType):
      return None
    if hasattr(module, "__path__"):
      module = _Package(name, module)
    return self._log.supply(name, module)

  def fill_loaded(self) -> None:
    """Serves the names in the modules that are loaded already."""
    for name in table.NAMES:
      module = sys.modules.get(name)
      if module is not None:
        self._fill(name, module)

  def _fill(self, name: str, module: types.ModuleType) -> None:
    """Gives a module a `__getattr__` for the names of the table."""
    names = table.NAMES.get(name)
    if not names:
      return
    own = vars(module).get("__getattr__")
    self._log.set(module, "__getattr__", _make_getattr(name, names, own))


def _make_getattr(
  module: str, names: dict[str, str], then: Callable[[str], Any] | None
) -> Callable[[str], Any]:
  """Returns a `__getattr__` for a module.

  Args:
    module: The module's name.
    names: Name -> target.
    then: The `__getattr__` that the module has, for other names.
  """
  loaded: dict[str, Any] = {}

  def load(name: str) -> Any:
    if name in loaded:
      return loaded[name]
    target = names.get(name)
    if target is None:
      if then is not None:
        return then(name)
      raise AttributeError(f"module {module!r} has no attribute {name!r}")
    try:
      loaded[name] = loading.load(target)
    except loading.TargetError as error:
      raise AttributeError(f"{module}.{name} moved: {error}") from None
    return loaded[name]

  return load
