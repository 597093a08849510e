# SPDX-License-Identifier: Apache-2.0
"""A property that older programs may replace by an attribute of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from typing import Generic
from typing import overload
from typing import TypeVar

_T = TypeVar("_T")


class DefaultProperty(Generic[_T]):
  """A property that yields to an attribute of the instance.

  A program's subclass may have set an attribute of that name before this
  package defined the property. A plain property would refuse the assignment.
  """

  def __init__(self, read: Callable[[Any], _T]) -> None:
    self._read = read
    self.__doc__ = read.__doc__

  @overload
  def __get__(self, owner: None, cls: type) -> DefaultProperty[_T]: ...

  @overload
  def __get__(self, owner: object, cls: type) -> _T: ...

  def __get__(self, owner: Any, cls: type) -> Any:
    return self if owner is None else self._read(owner)


def forget(owner: Any, *names: str) -> None:
  """Takes away attributes that a subclass set before the constructor did.

  The names are those of `DefaultProperty`s that the old constructor set.
  """
  for name in names:
    vars(owner).pop(name, None)
