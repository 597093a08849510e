# SPDX-License-Identifier: Apache-2.0
"""The entries of a state that another system has saved, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from absl import logging
import numpy as np

from tf_compat_lossscale._core import arguments
from tf_compat_lossscale.policies import checks
from tf_compat_lossscale.policies import float32

_INT64_MAX = 2**63 - 1
# The scale grows at the next finite step with any count as large as this. A
# larger one could not be counted on.
_MANY_STEPS = 2**62


class Entries:
  """Entries that another system has saved, and checks of them.

  Attributes:
    like: The name of the system.
  """

  def __init__(self, like: str, values: Mapping[str, Any]) -> None:
    self.like = like
    self._values = values

  def get_scale(self, key: str) -> float:
    """Returns a loss scale, rounded to float32."""
    return float32.round_nearest(checks.check_scale(repr(key), self.get(key)))

  def get_count(self, key: str, at_least: int = 0) -> int:
    """Returns a number of steps, at most 2**62."""
    count = arguments.check_steps(repr(key), self.get(key), at_least)
    return min(count, _MANY_STEPS)

  def get_whole(self, key: str) -> int:
    """Returns a whole number, which may be below 0."""
    value = self.get(key)
    try:
      return arguments.check_steps(repr(key), value, -_INT64_MAX)
    except ValueError:
      raise ValueError(
        f"{key!r} must be a whole number, but got {value!r}."
      ) from None

  def get_growth(self, key: str) -> float:
    """Returns a factor above 1."""
    return arguments.check_growth(repr(key), self.get(key))

  def get_backoff(self, key: str) -> float:
    """Returns a factor below 1."""
    return arguments.check_backoff(repr(key), self.get(key))

  def get(self, key: str) -> Any:
    """Returns the value of an entry as a Python number, if it is a number.

    Raises:
      ValueError: There is no such entry.
    """
    if key not in self._values:
      found = ", ".join(map(repr, self._values)) or "nothing"
      raise ValueError(
        f"A state like {self.like!r} must have {key!r}, but has {found}."
      )
    return to_plain(self._values[key])

  def warn_if_others(self, **found: tuple[float, float]) -> None:
    """Logs which arguments are others than those of the loss scale.

    Args:
      **found: For each argument, its value in the entries and its value in the
        loss scale that gets the state.
    """
    for name, (value, own) in found.items():
      if float32.round_nearest(value) != float32.round_nearest(own):
        self.warn(name, value, name, own)

  def warn(self, key: str, value: float, name: str, own: float) -> None:
    """Logs that an entry is not what the loss scale has.

    Args:
      key: The name of the entry, or of the argument that the entry tells of.
      value: Its value.
      name: The argument of the loss scale that gets the state.
      own: The value of that argument.
    """
    logging.warning(
      "The state like %r has %s=%s, but the loss scale that gets the state has "
      "%s=%s, and keeps that.",
      self.like,
      key,
      value,
      name,
      own,
    )


def to_plain(value: Any) -> Any:
  """Returns the number in an array or a tensor of one element.

  Anything else is returned as it is, to be refused with its name.
  """
  if hasattr(value, "detach"):  # A tensor of PyTorch, perhaps on a GPU.
    value = value.detach().cpu()
  if not hasattr(value, "shape"):
    return value
  array = np.asarray(value)
  return array.item() if array.size == 1 else value
