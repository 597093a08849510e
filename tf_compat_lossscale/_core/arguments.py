# SPDX-License-Identifier: Apache-2.0
"""Checks of the arguments that users pass.

Each check returns the value, a number as a Python float or int, or raises a
ValueError that names the argument and its value. TensorFlow's classes called
`float()` and `int()`, so old programs pass 2.0 for a period, NumPy scalars and
eager tensors: these pass. Strings and bools are mistakes, and do not.
"""

from __future__ import annotations

from collections.abc import Callable
import math
import numbers
from typing import Any
from typing import TypeAlias
from typing import TypeVar

import numpy as np

from tf_compat_lossscale._core import wrong_values

# What type checkers take for a number, and for a whole number. They know no 0-d
# arrays and no eager tensors.
Number: TypeAlias = float | np.floating[Any] | np.integer[Any]
Whole: TypeAlias = int | np.integer[Any]

_Word = TypeVar("_Word", bound=str)
_INT64_MAX = 2**63 - 1


def is_number(value: Any) -> bool:
  """Returns whether a value is a real number: Python's, NumPy's or a 0-d array.

  A bool is no number.
  """
  if isinstance(value, np.ndarray):
    return value.ndim == 0 and is_number(value.item())
  return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_scale(name: str, value: Any, at_least_1: bool = True) -> float:
  """Checks a loss scale: at least 1, and finite in float32.

  Without `at_least_1`, it may be any number above 0, as those of Keras may.
  """

  def fits(number: float) -> bool:
    return _is_finite(number) and bool(
      number >= 1 if at_least_1 else np.float32(number) > 0
    )

  least = "at least 1" if at_least_1 else "above 0"
  return _check_number(name, value, fits, f"{least} and finite in float32")


def check_growth(name: str, value: Any) -> float:
  """Checks a factor above 1 and finite, in float32."""

  def fits(number: float) -> bool:
    return _is_finite(number) and bool(np.float32(number) > 1)

  return _check_number(name, value, fits, "above 1 and finite in float32")


def check_backoff(name: str, value: Any) -> float:
  """Checks a factor between 0 and 1, in float32."""
  return _check_number(
    name, value, lambda x: bool(0 < np.float32(x) < 1), "between 0 and 1"
  )


def check_share(name: str, value: Any) -> float:
  """Checks a share, a number from 0 to 1."""
  return _check_number(name, value, lambda x: 0 <= x <= 1, "from 0 to 1")


def _check_number(
  name: str, value: Any, fits: Callable[[float], bool], words: str
) -> float:
  number = _to_float(value)
  if number is None or not fits(number):
    raise ValueError(
      f"{name} must be {words}, but got {wrong_values.show(value)}."
    )
  return number


def check_steps(name: str, value: Any, at_least: int = 1) -> int:
  """Checks a number of steps: whole (2.0 is), within int64, large enough."""
  number = _to_whole(value)
  if number is None or number < at_least:
    raise ValueError(
      f"{name} must be a whole number of steps of at least {at_least}, but got "
      f"{wrong_values.show(value)}."
    )
  return number


def check_word(name: str, value: Any, allowed: tuple[_Word, ...]) -> _Word:
  """Checks that an argument is one of some words."""
  if not isinstance(value, str) or value not in allowed:
    *others, last = map(repr, allowed)
    raise ValueError(
      f"{name} must be {', '.join(others)} or {last}, but got "
      f"{wrong_values.show(value, allowed)}."
    )
  return value


def _to_whole(value: Any) -> int | None:
  """Returns a value as an int within int64; None if it is no such number."""
  if hasattr(value, "numpy"):  # float() would round an eager int64 tensor.
    value = np.asarray(value.numpy())
  if isinstance(value, np.ndarray) and value.ndim == 0:
    value = value.item()
  exact = isinstance(value, numbers.Integral) and not isinstance(value, bool)
  number = int(value) if exact else _to_float(value)
  if number is None or not abs(number) <= _INT64_MAX:
    return None
  return int(number) if number == math.floor(number) else None


def _to_float(value: Any) -> float | None:
  """Returns a value as a float; None if it is no number."""
  if isinstance(value, (bool, np.bool_, str, bytes)):
    return None
  if getattr(value, "dtype", None) in (np.bool_, "bool"):
    return None
  try:
    return float(value)
  except (TypeError, ValueError, OverflowError):
    return None


def _is_finite(number: float) -> bool:
  """Returns whether a number is finite once it is rounded to float32."""
  with np.errstate(over="ignore"):
    return bool(np.isfinite(np.float32(number)))
