# SPDX-License-Identifier: Apache-2.0
"""Checks of the arguments that the rules of this folder have in common."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import TypeVar

import numpy as np

from tf_compat_lossscale._core import arguments
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
    raise ValueError(f"{name} must hold some of {words}, but got {value!r}.")
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
        f"{', '.join(names)}."
      )


def find_like(what: str, name: Any, systems: Mapping[str, _T]) -> _T:
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
      f"{', '.join(sorted(systems))}."
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
