# SPDX-License-Identifier: Apache-2.0
"""Puts private modules and names of TensorFlow 1 back that moved or went."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

from tf_compat_lossscale._core import patching
from tf_compat_lossscale.programs import import_hooks
from tf_compat_lossscale.programs import lazy_modules
from tf_compat_lossscale.programs import loading
from tf_compat_lossscale.programs import moved_modules as table


def _make_package(name: str, other: types.ModuleType) -> types.ModuleType:
  """Returns a package that has the names of another package.

  The other package itself cannot stand for it: the import system would look for
  the modules of the one in the folder of the other.
  """

  def load(member: str) -> Any:
    if not member.startswith("__"):
      child = f"{name}.{member}"
      try:
        return importlib.import_module(child)
      except ModuleNotFoundError as error:
        if error.name != child:
          raise
    return getattr(other, member)

  return lazy_modules.LazyModule(name, load)


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
      name in table.TABLE.names
      or name in table.GONE
      or (
        name.startswith("tensorflow.python.")
        and bool(table.TABLE.find_module(name))
      )
    )

  def after_load(self, name: str, module: types.ModuleType) -> None:
    self._fill(name, module)

  def supply_module(self, name: str) -> types.ModuleType | None:
    if name in table.GONE:
      message = f"{name} is gone: {table.GONE[name]}"
      raise ModuleNotFoundError(message, name=name)
    target = table.TABLE.find_module(name)
    if target is None:
      return None
    try:
      module = loading.load(target)
    except loading.TargetError:
      return None
    if not isinstance(module, types.ModuleType):
      return None
    if hasattr(module, "__path__"):
      module = _make_package(name, module)
    return self._log.supply(name, module)

  def fill_loaded(self) -> None:
    """Serves the names in the modules that are loaded already."""
    for name in table.TABLE.names:
      module = sys.modules.get(name)
      if module is not None:
        self._fill(name, module)

  def _fill(self, name: str, module: types.ModuleType) -> None:
    """Gives a module a `__getattr__` for the names of the table."""
    targets = table.TABLE.names.get(name)
    if not targets:
      return

    def load(member: str, target: str) -> Any:
      try:
        return loading.load(target)
      except loading.TargetError as error:
        message = f"{name}.{member} moved: {error}"
        raise AttributeError(message) from None

    lazy_modules.serve_names(self._log, module, targets, load)
