# SPDX-License-Identifier: Apache-2.0
"""Facts about a run, from its log: for verdicts, charts and pictures."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import itertools
import math
from typing import NamedTuple

from tf_compat_lossscale.monitoring.rows import Row
from tf_compat_lossscale.monitoring.rows import RunLog

# What loss scales call the number of finite steps after which they grow.
_INTERVALS = (
  *("increment_period", "growth_interval"),
  *("incr_every_n_steps", "recovery_interval"),
)
_INITIALS = ("initial_loss_scale", "init_loss_scale", "loss_scale_value")
_MAXIMA = ("max_loss_scale", "maximum")
_MINIMA = ("minimum", "min_loss_scale")
MINIMUM = 1.0  # That of most rules.


class Culprit(NamedTuple):
  """A gradient that was at fault in some skipped steps.

  Attributes:
    name: The variable's name.
    steps: The skipped steps in which the gradient was not finite.
    inf: How many infinite elements it had in the worst of these steps.
    nan: How many NaN it had in the worst of these steps.
    size: How many elements it has.
  """

  name: str
  steps: Sequence[int]
  inf: int
  nan: int
  size: int


def show_scale(scale: float) -> str:
  """Returns a loss scale as people write it."""
  if math.isfinite(scale) and scale == int(scale) and abs(scale) < 2**24:
    return str(int(scale))
  return show_power(scale)


def show_power(scale: float) -> str:
  """Returns a scale as a power of 2 if the scale is one."""
  mantissa, exponent = math.frexp(scale)
  return f"2^{exponent - 1}" if mantissa == 0.5 else f"{scale:.6g}"


def is_usable(scale: float) -> bool:
  """Returns whether a number can be a loss scale at all."""
  return 0 < scale < math.inf


def find_minimum(log: RunLog) -> float:
  """Returns the least loss scale that the rule of a run allows."""
  found = _get_number(log.config, _MINIMA)
  return MINIMUM if found is None else found


def find_maximum(log: RunLog) -> float:
  """Returns the largest loss scale that the rule of a run allows."""
  found = _get_number(log.config, _MAXIMA)
  return math.inf if found is None else found


def find_interval(log: RunLog) -> tuple[str, int | None]:
  """Returns what a run's rule calls its interval of growth, and its length."""
  for name in _INTERVALS:
    number = _get_number(log.config, (name,))
    if number is not None and number >= 1:
      return name, int(number)
  return _INTERVALS[0], None


def count_final_skips(rows: Sequence[Row]) -> int:
  """Returns how many steps before the end were all skipped."""
  count = 0
  for row in reversed(rows):
    is_next = not count or rows[-1].step - row.step == count
    if row.applied is not False or not is_next:
      break
    count += 1
  return count


def find_culprits(rows: Iterable[Row]) -> list[Culprit]:
  """Returns the gradients at fault, those of the most steps first."""
  steps: dict[str, list[int]] = {}
  worst: dict[str, tuple[int, int, int]] = {}
  for row in rows:
    for name, inf, nan, size, _ in row.blame or ():
      steps.setdefault(name, []).append(row.step)
      before = worst.get(name, (0, 0, 0))
      now = (inf, nan, size)
      # The same blame stands in many rows.
      if now != before:
        worst[name] = tuple(map(max, before, now))  # type: ignore[assignment]
  found = [Culprit(name, steps[name], *worst[name]) for name in steps]
  return sorted(found, key=lambda c: (-len(c.steps), c.name))


def list_changes(rows: Sequence[Row]) -> list[tuple[int, float]]:
  """Returns (step, scale after the step) of steps that changed the scale."""
  return [
    (row.step, row.loss_scale)
    for before, row in itertools.pairwise(rows)
    if is_change(before.loss_scale, row.loss_scale)
  ]


def is_change(before: float, after: float) -> bool:
  """Returns whether two scales differ; NaN is NaN here."""
  return before != after and not (math.isnan(before) and math.isnan(after))


def find_initial(config: Mapping[str, object]) -> float | None:
  """Returns the scale that a loss scale begins with; None if unknown."""
  return _get_number(config, _INITIALS)


def find_start(rows: Sequence[Row]) -> float:
  """Returns the scale before the first row, as far as it shows."""
  first = rows[0]
  if first.applied is False and first.config:
    initial = find_initial(first.config)
    if initial is not None:
      return initial
  return first.loss_scale


def find_fall(rows: Sequence[Row]) -> tuple[Row, Row, float] | None:
  """Returns the last fall of the scale.

  Returns:
    The first and the last row of the fall, and the scale before the fall; None
    if the scale did not fall before the end.
  """
  last = len(rows) - 1
  while last > 0 and rows[last - 1].loss_scale == rows[-1].loss_scale:
    last -= 1
  first = last
  while first > 0 and rows[first - 1].loss_scale >= rows[first].loss_scale:
    # The fall begins with the first skipped step, not with the rows before.
    if rows[first].applied is not False:
      break
    first -= 1
  if first == last:
    return None
  return rows[first + 1], rows[last], rows[first].loss_scale


def _get_number(
  config: Mapping[str, object], names: Iterable[str]
) -> float | None:
  """Returns the first number that a configuration has by one of the names."""
  for name in names:
    value = config.get(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
      return float(value)
  return None
