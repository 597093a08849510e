# SPDX-License-Identifier: Apache-2.0
"""Keeps classes the same when `importlib.reload` runs their modules again."""

from __future__ import annotations

import sys
from typing import TypeVar

_Class = TypeVar("_Class", bound=type)


def keep(cls: _Class) -> _Class:
  """Returns the class that a module had before it was reloaded.

  A program may have objects of that class, and `isinstance` must still be true
  for these objects. Reloading runs a module in its old namespace, so the old
  class is still there when this decorator runs.

  Args:
    cls: A class that is being defined at the top of a module.

  Returns:
    The class of that name that the module has already, else `cls`.
  """
  found = vars(sys.modules[cls.__module__]).get(cls.__name__)
  return found if isinstance(found, type) else cls  # type: ignore[return-value]
