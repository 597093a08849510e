"""Checks of numbers that users pass: a number of the right kind or ValueError.

What TensorFlow's classes took by `float(…)` and `int(…)`, old code passes: 2.0
for a period, NumPy scalars, eager tensors. Strings and bools are mistakes.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

_INT64_MAX = 2**63 - 1


def is_number(value: Any) -> bool:
  """Whether `value` is a real number: Python's, NumPy's or a 0-d array."""
  if isinstance(value, np.ndarray):
    return value.ndim == 0 and is_number(value.item())
  return isinstance(value, numbers.Real) and not isinstance(value, bool)


def scale(name: str, value: Any) -> float:
  """A loss scale: at least 1, and finite in float32.

  Args:
    name: The argument's name, for the message.
    value: What the user passed.

  Returns:
    The number.

  Raises:
    ValueError: It is none, below 1, or not finite in float32.
  """
  number = _float(value)
  if number is None or not number >= 1 or not _finite(number):
    raise ValueError(
      f"{name} must be at least 1 and finite in float32, but got {value!r}."
    )
  return number


def multiplier(name: str, value: Any) -> float:
  """A factor that makes a float32 number grow: above 1, and finite.

  Args:
    name: The argument's name, for the message.
    value: What the user passed.

  Returns:
    The number.

  Raises:
    ValueError: It is none, not finite, or not above 1 as float32 sees it.
  """
  number = _float(value)
  if number is None or not _finite(number) or not np.float32(number) > 1:
    raise ValueError(
      f"{name} must be above 1 and finite in float32, but got {value!r}."
    )
  return number


def shrinking(name: str, value: Any) -> float:
  """A factor that makes a float32 number shrink: between 0 and 1.

  Args:
    name: The argument's name, for the message.
    value: What the user passed.

  Returns:
    The number.

  Raises:
    ValueError: It is none, or not between 0 and 1 as float32 sees it.
  """
  number = _float(value)
  if number is None or not 0 < np.float32(number) < 1:
    raise ValueError(f"{name} must be between 0 and 1, but got {value!r}.")
  return number


def steps(name: str, value: Any) -> int:
  """A number of steps: whole, and at least 1.

  Args:
    name: The argument's name, for the message.
    value: What the user passed; 2.0 is as good as 2.

  Returns:
    The number.

  Raises:
    ValueError: It is none, below 1, not whole, or too large for int64.
  """
  number = _whole(value)
  if number is None or number < 1:
    raise ValueError(
      f"{name} must be a whole number of steps of at least 1, but got "
      f"{value!r}."
    )
  return number


def positive(name: str, value: Any) -> float:
  """Checks a number above 0 that is finite in float32.

  Args:
    name: The argument's name, for the message.
    value: What the user passed.

  Returns:
    The number.

  Raises:
    ValueError: It is none, not above 0, or not finite in float32.
  """
  number = _float(value)
  if number is None or not _finite(number) or not np.float32(number) > 0:
    raise ValueError(
      f"{name} must be above 0 and finite in float32, but got {value!r}."
    )
  return number


def count(name: str, value: Any) -> int:
  """Checks a number of things counted so far: whole, and at least 0.

  Args:
    name: The argument's name, for the message.
    value: What the user passed; 2.0 is as good as 2.

  Returns:
    The number.

  Raises:
    ValueError: It is none, below 0, not whole, or too large for int64.
  """
  number = _whole(value)
  if number is None or number < 0:
    raise ValueError(
      f"{name} must be a whole number of at least 0, but got {value!r}."
    )
  return number


def _whole(value: Any) -> int | None:
  """A whole number that int64 has, or None."""
  if hasattr(value, "numpy"):  # An eager tensor: float() would round it.
    value = np.asarray(value.numpy())
  if isinstance(value, np.ndarray) and value.ndim == 0:
    value = value.item()
  exact = isinstance(value, numbers.Integral) and not isinstance(value, bool)
  number = int(value) if exact else _float(value)
  if number is None or not abs(number) <= _INT64_MAX:
    return None
  return int(number) if number == math.floor(number) else None


def _float(value: Any) -> float | None:
  if isinstance(value, (bool, np.bool_, str, bytes)):
    return None
  if getattr(value, "dtype", None) in (np.bool_, "bool"):
    return None
  try:
    return float(value)
  except (TypeError, ValueError, OverflowError):
    return None


def _finite(number: float) -> bool:
  with np.errstate(over="ignore"):
    return bool(np.isfinite(np.float32(number)))
