# SPDX-License-Identifier: Apache-2.0
"""Changes other modules, and takes the changes back."""

from __future__ import annotations

import sys
import types
from typing import Any
from typing import NamedTuple

ABSENT: Any = object()  # The value of an attribute that is not there.


class _Change(NamedTuple):
  owner: Any
  name: str
  before: Any
  after: Any


class UndoLog:
  """Remembers changes of modules and classes, so that `undo` can end them."""

  def __init__(self) -> None:
    self._changes: list[_Change] = []
    self._supplied: list[tuple[str, types.ModuleType]] = []

  def set(self, owner: Any, name: str, value: Any) -> Any:
    """Sets an attribute of a module or class.

    Returns:
      The value that `undo` will restore, or ABSENT.
    """
    before = self._note(owner, name, value)
    setattr(owner, name, value)
    return before

  def has_set(self, value: Any) -> bool:
    """Returns whether `undo` has still to take back that `value` was set."""
    return any(change.after is value for change in self._changes)

  def has_supplied(self, name: str) -> bool:
    """Returns whether the module called `name` was supplied."""
    return any(each == name for each, _ in self._supplied)

  def supply(self, name: str, module: types.ModuleType) -> types.ModuleType:
    """Notes that the import of the module called `name` gives `module`.

    The import system is about to set it in `sys.modules` and in its parent. A
    parent that was itself supplied keeps its children: `undo` removes only that
    parent, and a program that holds the parent may go on using them. But a
    module that has another name of its own is in use elsewhere.

    Returns:
      `module`.
    """
    parent, _, last = name.rpartition(".")
    owner = sys.modules.get(parent)
    if owner and (owner.__name__ != parent or not self.has_supplied(parent)):
      self._note(owner, last, module)
    self._supplied.append((name, module))
    return module

  def undo(self) -> None:
    """Takes all changes back, the last one first.

    What a program has set since stays, and the log keeps that change.
    """
    kept = []
    while self._changes:
      change = self._changes.pop()
      if vars(change.owner).get(change.name, ABSENT) is not change.after:
        kept.append(change)
      elif change.before is ABSENT:
        delattr(change.owner, change.name)
      else:
        setattr(change.owner, change.name, change.before)
    self._changes = kept[::-1]
    while self._supplied:
      name, module = self._supplied.pop()
      if sys.modules.get(name) is module:
        del sys.modules[name]

  def _note(self, owner: Any, name: str, after: Any) -> Any:
    """Notes the value of an attribute that becomes `after`, and returns it."""
    before = vars(owner).get(name, ABSENT)
    if before is after:
      # The module has just loaded, and copied what was set in another one.
      before = next(
        (each.before for each in self._changes if each.after is after), after
      )
    self._changes.append(_Change(owner, name, before, after))
    return before
