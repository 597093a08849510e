# SPDX-License-Identifier: Apache-2.0
"""Checks of the arguments that the rules of this folder have in common."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import functools
from typing import Any
from typing import ClassVar
from typing import TypeVar

import numpy as np

from tf_compat_lossscale._core import arguments
from tf_compat_lossscale._core import wrong_values
from tf_compat_lossscale.policies import float32

_T = TypeVar("_T")


def check_scale(name: str, value: Any) -> float:
  """Checks a loss scale: at least 2**-126, and finite in float32.

  Returns:
    The number.

  Raises:
    ValueError: `value` is no such number.
  """
  number = arguments.check_scale(name, value, at_least_1=False)
  if float32.round_nearest(number) < float32.SMALLEST:
    raise ValueError(
      f"{name} must be at least 2**-126, float32's smallest normal number, but "
      f"got {value!r}."
    )
  return number


def check_bounds(
  initial: float, lowest: float | None, highest: float | None
) -> None:
  """Raises a ValueError if an initial scale is not within its bounds."""
  if (
    lowest is not None
    and highest is not None
    and float32.round_inwards(lowest, up=True)
    > float32.round_inwards(highest, up=False)
  ):
    raise ValueError(
      "float32 must have a number from min_loss_scale to max_loss_scale, but "
      f"got {lowest!r} and {highest!r}."
    )
  if lowest is not None and initial < lowest:
    raise ValueError(
      f"initial_loss_scale must be at least min_loss_scale={lowest:g}, but got "
      f"{initial:g}."
    )
  if highest is not None and initial > highest:
    raise ValueError(
      f"initial_loss_scale must be at most max_loss_scale={highest:g}, but got "
      f"{initial:g}."
    )


class CheckedRule:
  """The base of the rules: frozen dataclasses whose scales have bounds.

  Attributes:
    initial_loss_scale: The first scale.
    min_loss_scale: The lowest scale, or None.
    max_loss_scale: The highest scale, or None.
  """

  # For each field to check, a function of the field's name and value. It
  # returns the value to use, or raises a ValueError.
  _CHECKS: ClassVar[Mapping[str, Callable[[str, Any], Any]]]

  initial_loss_scale: float
  min_loss_scale: float | None
  max_loss_scale: float | None

  def __post_init__(self) -> None:
    """Checks the arguments.

    Raises:
      ValueError: An argument makes no sense; the message names the argument.
    """
    for name, check in self._CHECKS.items():
      object.__setattr__(self, name, check(name, getattr(self, name)))
    check_bounds(
      self.initial_loss_scale, self.min_loss_scale, self.max_loss_scale
    )

  @functools.cached_property
  def lowest(self) -> float | None:
    """The least number of float32 that is not below the minimum, if any."""
    if self.min_loss_scale is None:
      return None
    return float32.round_inwards(self.min_loss_scale, up=True)

  @functools.cached_property
  def highest(self) -> float | None:
    """The largest number of float32 that is not above the maximum, if any."""
    if self.max_loss_scale is None:
      return None
    return float32.round_inwards(self.max_loss_scale, up=False)

  def clip(self, scale: float) -> float:
    """Returns a scale within the bounds: another run may have had others."""
    if self.lowest is not None:
      scale = max(scale, self.lowest)
    if self.highest is not None:
      scale = min(scale, self.highest)
    return scale


def check_bound(name: str, value: Any) -> float | None:
  """Checks a bound of the loss scale: a loss scale, or None for no bound."""
  return None if value is None else check_scale(name, value)


def check_events(
  name: str, value: Any, allowed: tuple[str, ...]
) -> tuple[str, ...]:
  """Checks names of events, in any collection; one name may stand alone."""
  events = (value,) if isinstance(value, str) else value
  try:
    given = set(events)
  except TypeError:
    given = {None}
  if not given <= set(allowed):
    words = ", ".join(map(repr, allowed))
    wrong = (x for x in given if x not in allowed)
    meant = next(
      filter(None, (wrong_values.suggest(x, allowed) for x in wrong)), ""
    )
    raise ValueError(
      f"{name} must hold some of {words}, but got {value!r}{meant}."
    )
  return tuple(event for event in allowed if event in given)


def check_names(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
  """Raises a TypeError if an argument's name is unknown.

  Args:
    owner: What takes the arguments, for the message.
    given: The names.
    known: The names of all arguments.
  """
  names = sorted(known)
  for name in given:
    if name not in names:
      raise TypeError(
        f"{owner} has no argument {name!r}: the arguments are "
        f"{', '.join(names)}{wrong_values.suggest(name, names)}."
      )


def find_like(what: str, name: Any, systems: Mapping[Any, _T]) -> _T:
  """Returns what a table has for a system.

  Args:
    what: What the table has, for the message: 'policy' or 'state'.
    name: The name of a system.
    systems: The table.

  Raises:
    ValueError: The table has no such system.
  """
  if not isinstance(name, str) or name not in systems:
    raise ValueError(
      f"There is no {what} like {name!r}: the names are "
      f"{', '.join(sorted(systems))}{wrong_values.suggest(name, systems)}."
    )
  return systems[name]


def is_flag(value: Any) -> bool:
  """Returns whether a value is a bool, of Python or NumPy."""
  return isinstance(value, (bool, np.bool_))


def check_largest(value: Any) -> float:
  """Checks the largest gradient of a step: a number, perhaps not finite.

  Returns:
    The absolute value.

  Raises:
    ValueError: `value` is no number.
  """
  if not arguments.is_number(value):
    raise ValueError(
      "A step must be the largest gradient, or True or False for whether it is "
      f"finite, but got {value!r}."
    )
  return abs(float(value))


def check_flag(value: Any) -> bool:
  """Checks whether a value tells if a step is finite: a bool, or 0 or 1.

  Returns:
    The bool.

  Raises:
    ValueError: `value` is something else, such as a gradient or a word.
  """
  if is_flag(value):
    return bool(value)
  if not arguments.is_number(value) or value not in (0, 1):
    raise ValueError(
      "Whether a step is finite must be True or False, or 1 or 0, but got "
      f"{value!r}."
    )
  return bool(value)
