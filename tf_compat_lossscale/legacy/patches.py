"""Changes that the package makes to other packages, and that can be undone.

`install()` applies all known patches, and `uninstall()` undoes them. A module
that needs a patch makes the patch and applies it when the module is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable

_all: list[Patch] = []


class Patch:
  """A change to another package, such as a method put in place of another.

  Args:
    apply: Makes the change. Called only if the change is not there.
    undo: Takes the change back. Called only if the change is there.
  """

  def __init__(self, apply: Callable[[], None], undo: Callable[[], None]):
    self._apply, self._undo = apply, undo
    self._is_applied = False
    _all.append(self)

  @property
  def is_applied(self) -> bool:
    """Whether the change is there."""
    return self._is_applied

  def apply(self) -> None:
    """Makes the change, unless it is there."""
    if not self._is_applied:
      self._apply()
      self._is_applied = True

  def undo(self) -> None:
    """Takes the change back, if it is there."""
    if self._is_applied:
      self._undo()
      self._is_applied = False


def applied_patches() -> list[Patch]:
  """Returns the patches that are applied, the oldest first."""
  return [patch for patch in _all if patch.is_applied]


def apply_all() -> None:
  """Applies every patch that was ever made."""
  for patch in _all:
    patch.apply()


def undo_all(but: Iterable[Patch] = ()) -> None:
  """Undoes the applied patches, the newest first.

  Args:
    but: Patches to leave applied.
  """
  kept = list(but)
  for patch in reversed(_all):
    if patch not in kept:
      patch.undo()
