# SPDX-License-Identifier: Apache-2.0
"""Finds runs whose loss scale is stuck, and says what to try."""

from __future__ import annotations

import collections
from collections.abc import Sequence
import math
from typing import Literal
from typing import TypeAlias

from tf_compat_lossscale._core import arguments
from tf_compat_lossscale.monitoring import facts
from tf_compat_lossscale.monitoring import phrases
from tf_compat_lossscale.monitoring.rows import Row

# The most gradients that a message names.
_MOST_NAMED = 5

# A run that skips a larger share of its steps loses more by that than it gains
# by a higher scale. The default rule, whose scale grows after 2000 steps, skips
# 0.05 %.
MOST_SKIPPED = 0.05
# Fewer skipped steps may be chance.
FEW = 10
# At the minimum, the scale cannot fall, so fewer skipped steps are enough.
_FEW_AT_MINIMUM = 3
# float16 has 40 powers of 2. If a scale falls more often, then no scale fits.
POWERS = 40
# Steps longer ago may have had other data and another learning rate.
STRETCH = 1000

Reaction: TypeAlias = Literal["warn", "stop", "raise"]


class StuckError(RuntimeError):
  """A run whose loss scale is stuck, with `on_stuck="raise"`."""


class Losses:
  """The lost steps: those that were skipped at the minimum of a loss scale.

  The step that lowered the scale to its minimum is not lost. Too many steps are
  lost if they are more than `MOST_SKIPPED` of all steps since the first lost
  step, or of the last `STRETCH` steps.

  Attributes:
    first: The first lost step; None if there is none.
  """

  def __init__(self, minimum: float, scale: float) -> None:
    """Starts with no step lost.

    Args:
      minimum: The lowest scale.
      scale: The scale before the first step.
    """
    self._minimum, self._scale = minimum, scale
    self.first: int | None = None
    self._count = 0
    self._recent: collections.deque[int] = collections.deque()

  def add(self, row: Row) -> None:
    """Takes note of a step.

    Args:
      row: The step. Steps before it may be left out if they were applied and
        did not change the scale.
    """
    step = row.step
    if row.applied is False and self._scale <= self._minimum:
      self.first = step if self.first is None else self.first
      self._count += 1
      self._recent.append(step)
    if row.loss_scale > self._minimum:
      self.first, self._count = None, 0
      self._recent.clear()
    self._scale = row.loss_scale
    while self._recent and self._recent[0] <= step - STRETCH:
      self._recent.popleft()

  def find_begin(self, last: int) -> int | None:
    """Returns the first lost step if too many are lost, else None.

    Args:
      last: The last attempted step, which `add` has got.
    """
    recent = self._recent
    for first, count in (
      (self.first, self._count),
      (recent[0] if recent else None, len(recent)),
    ):
      if first is None or count < _FEW_AT_MINIMUM:
        continue
      if count > MOST_SKIPPED * (last - first + 1):
        return first
    return None


class Rule:
  """Says when a run is stuck.

  A run is stuck if `patience` steps in a row were skipped. It is also stuck if
  too many steps are skipped at the minimum of the scale (see `Losses`), and
  the first of them was at least `patience` steps ago.
  """

  def __init__(self, patience: int, minimum: float | None) -> None:
    """Creates a rule.

    Args:
      patience: A number of attempted steps.
      minimum: The lowest scale; None for that of most rules.
    """
    self._patience = patience
    self._minimum = facts.MINIMUM if minimum is None else minimum
    self._scale = math.nan
    self._since = 0  # The step that set the scale.
    self._before = math.nan  # The scale before the first bad step.
    # Of the skipped steps in a row: the first, and the scale before it.
    self._first_skipped: int | None = None
    self._before_skips = math.nan
    self._first_bad: int | None = None  # Since the scale has been falling.
    self._losses = Losses(self._minimum, math.nan)
    self._due = patience

  def start(self, step: int, scale: float) -> None:
    """Starts at a step with a scale."""
    self._scale, self._since = scale, step
    self._losses = Losses(self._minimum, scale)

  @property
  def is_calm(self) -> bool:
    """Whether the rule need not count a step that is applied without a change.

    That is a step that keeps the scale.
    """
    return self._first_skipped is None and self._due == self._patience

  def count(self, row: Row) -> str | None:
    """Takes note of a step; returns a message if the run is found stuck.

    After a message, the next one comes when the run has been stuck for twice as
    long.

    Args:
      row: The step, of which `applied` is known.
    """
    step, scale = row.step, row.loss_scale
    if scale > self._scale:
      self._first_bad = None
    if row.applied:
      self._first_skipped = None
    else:
      if self._first_skipped is None:
        self._first_skipped, self._before_skips = step, self._scale
      if self._first_bad is None:
        self._first_bad, self._before = step, self._scale
    self._losses.add(row)
    if scale != self._scale:
      self._scale, self._since = scale, step
    begins = (self._first_skipped, self._losses.find_begin(step))
    lengths = [step - begin + 1 for begin in begins if begin is not None]
    if not lengths:
      self._due = self._patience
    if row.applied or max(lengths) < self._due:
      return None
    self._due *= 2
    return self._describe(row)

  def _describe(self, row: Row) -> str:
    """Returns the message: what is stuck, since when, by which gradients."""
    first, before = self._first_bad, self._before
    in_a_row = row.step - (self._first_skipped or row.step) + 1
    if in_a_row >= self._patience:
      first, before = self._first_skipped, self._before_skips
      what = (
        f"the last {in_a_row} steps were skipped, from step "
        f"{self._first_skipped} to step {row.step}"
      )
    else:
      what = (
        "steps are skipped at its minimum since step "
        f"{self._losses.find_begin(row.step)}, the last one is step {row.step}"
      )
    parts = [f"The loss scale is stuck: {what}"]
    if row.global_step is not None:
      parts[0] += f"; the global step is {row.global_step}"
    then, now = map(facts.show_scale, (before, row.loss_scale))
    parts.append(
      f"The first bad step was step {first}, with the loss scale {then}; it is "
      f"{now} since step {self._since}"
    )
    if row.blame:
      words = phrases.describe_blame(row, _MOST_NAMED)
      parts.append(f"Not finite at step {row.step}: {words}")
    return ". ".join(parts) + "."


def find_end(rows: Sequence[Row]) -> Sequence[Row]:
  """Returns the last rows of a log if the run is stuck there, else no rows.

  A log does not tell how patient its user is. The run is stuck if it skipped
  all of its last steps, and one of these is true:

  - The scale stands still: see `stands_still`.
  - At least `POWERS` steps were skipped, and the scale is below 2^`POWERS`.
  - The run itself says that it is stuck.
  """
  count = facts.count_final_skips(rows)
  last = rows[len(rows) - count :]
  if not last:
    return ()
  has_fallen = count >= POWERS and last[-1].loss_scale < 2.0**POWERS
  says_so = any(row.stuck for row in last)
  return last if stands_still(last) or has_fallen or says_so else ()


def stands_still(skipped: Sequence[Row]) -> bool:
  """Returns whether at least `FEW` skipped steps have the last one's scale."""
  scale = skipped[-1].loss_scale
  changes = [facts.is_change(row.loss_scale, scale) for row in skipped]
  return changes.count(False) >= FEW


def advise(row: Row) -> str:
  """Returns what to try if a run is stuck at a step."""
  blame = row.blame or ()
  is_hopeless = row.loss_scale <= 1 or (blame and all(x.nan for x in blame))
  first = (
    "The model itself makes gradients that are not finite: no scale can help."
    if is_hopeless
    else "Wait until the scale is low enough, or start with a lower one."
  )
  return " ".join(["What to try:", first, *phrases.ADVICE_ON_STUCK])


def check_reaction(value: Reaction) -> Reaction:
  """Returns what is to be done if a run is stuck.

  Raises:
    ValueError: `value` is none of "warn", "stop" and "raise".
  """
  return arguments.check_word("on_stuck", value, ("warn", "stop", "raise"))
