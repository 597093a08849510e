"""Keeps classes over `importlib.reload`."""

from __future__ import annotations

import sys
from typing import TypeVar

_Class = TypeVar("_Class", bound=type)


def keep(cls: _Class) -> _Class:
  """Returns the class that a module had before it was reloaded.

  Programs hold objects of that class. They stay known, since `isinstance`
  finds the same class in the module as before. Reloading runs a module in the
  namespace that it had, so that class is still there when this decorator runs.

  Args:
    cls: A class that is being defined at the top of a module.

  Returns:
    The class of that name that the module has already, else `cls`.
  """
  found = vars(sys.modules[cls.__module__]).get(cls.__name__)
  return found if isinstance(found, type) else cls  # type: ignore[return-value]
