# SPDX-License-Identifier: Apache-2.0
"""Finds runs whose loss scale is stuck, and says what to try."""

from __future__ import annotations

import collections
import math

from tf_compat_lossscale.monitoring import facts
from tf_compat_lossscale.monitoring import observations
from tf_compat_lossscale.monitoring import phrases

# The most gradients that a message names.
_MOST_NAMED = 5

# A share of lost steps that costs training more than a higher scale brings. The
# default rule, whose scale grows after 2000 steps, loses 0.05 %.
MOST_SKIPPED = 0.05
# At the minimum, no lower scale can mend so many skipped steps.
FEW_AT_MINIMUM = 3
# What was before may have had other data and another learning rate.
STRETCH = 1000

WARN, STOP, RAISE = "warn", "stop", "raise"


class StuckError(RuntimeError):
  """A run whose loss scale is stuck, with `on_stuck="raise"`."""


class Losses:
  """The steps that were skipped at the minimum of a loss scale.

  The step that brought the scale there is none of them. There are too many if
  no lower scale is left, and training still loses more than `MOST_SKIPPED` of
  its steps: of all since the first that was lost, or of the last `STRETCH`.
  """

  def __init__(self) -> None:
    """Starts at the minimum, with no step lost."""
    self.count = 0
    self._first = 0
    self._recent: collections.deque[int] = collections.deque()

  def add(self, step: int) -> None:
    """Takes note of a step that was skipped."""
    self._first = self._first if self.count else step
    self.count += 1
    self._recent.append(step)
    self._forget(step)

  def find_begin(self, last: int) -> int | None:
    """Returns the first of too many skipped steps; None if they are few.

    Args:
      last: The last attempted step.
    """
    self._forget(last)
    recent = self._recent
    for first, count in (
      (self._first, self.count),
      (recent[0] if recent else last, len(recent)),
    ):
      if count >= FEW_AT_MINIMUM and count > MOST_SKIPPED * (last - first + 1):
        return first
    return None

  def _forget(self, last: int) -> None:
    """Drops what is longer ago than `STRETCH` steps."""
    while self._recent and self._recent[0] <= last - STRETCH:
      self._recent.popleft()


class Rule:
  """Says when a run is stuck.

  A run is stuck if `patience` steps in a row were skipped. It is also stuck if
  too many steps are skipped at the minimum of the scale, as `Losses` has it,
  and have been for `patience` steps. `verdicts` judges logs by the same rule.
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
    self._first_skipped: int | None = None  # Of the skipped steps in a row.
    self._first_bad: int | None = None  # Since the scale has been falling.
    self._losses = Losses()
    self._due = patience

  def start(self, step: int, scale: float) -> None:
    """Starts at a step with a scale."""
    self._scale, self._since = scale, step

  def count(self, step: int, seen: observations.Observation) -> str | None:
    """Takes note of a step; returns a message if the run is found stuck.

    After a message, the next one comes when the run has been stuck for twice as
    long.

    Args:
      step: The number of the attempted step.
      seen: What is known of the step.
    """
    scale = seen.scale
    if scale > self._scale:
      self._first_bad = None
    if seen.applied:
      self._first_skipped = None
    else:
      self._first_skipped = self._first_skipped or step
      if self._first_bad is None:
        self._first_bad, self._before = step, self._scale
      if self._scale <= self._minimum:
        self._losses.add(step)
    if self._losses.count and scale > self._minimum:
      self._losses = Losses()
    if scale != self._scale:
      self._scale, self._since = scale, step
    begins = (self._first_skipped, self._losses.find_begin(step))
    lengths = [step - begin + 1 for begin in begins if begin is not None]
    if not lengths:
      self._due = self._patience
    if seen.applied or max(lengths) < self._due:
      return None
    self._due *= 2
    return self._describe(step, seen)

  def _describe(self, step: int, seen: observations.Observation) -> str:
    """Returns the message: what is stuck, since when, by which gradients."""
    in_a_row = step - (self._first_skipped or step) + 1
    if in_a_row >= self._patience:
      what = (
        f"the last {in_a_row} steps were skipped, from step "
        f"{self._first_skipped} to step {step}"
      )
    else:
      what = (
        "steps are skipped at its minimum since step "
        f"{self._losses.find_begin(step)}, the last one is step {step}"
      )
    parts = [f"The loss scale is stuck: {what}"]
    if seen.global_step is not None:
      parts[0] += f"; the global step is {seen.global_step}"
    before, now = map(facts.show_scale, (self._before, seen.scale))
    parts.append(
      f"The first bad step was step {self._first_bad}, with the loss scale "
      f"{before}; it is {now} since step {self._since}"
    )
    blame = seen.at_fault
    if blame:
      words = observations.describe_blame(blame, seen.total, _MOST_NAMED)
      parts.append(f"Not finite at step {step}: {words}")
    return ". ".join(parts) + "."


def advise(blame: list[observations.Contents], scale: float) -> str:
  """Returns what to try if a run is stuck.

  Args:
    blame: The gradients that are not finite, if they are known.
    scale: The loss scale.
  """
  is_hopeless = scale <= 1 or (blame and all(x.nans for x in blame))
  first = (
    "The model itself makes gradients that are not finite: no scale can help."
    if is_hopeless
    else "Wait until the scale is low enough, or start with a lower one."
  )
  return " ".join(["What to try:", first, *phrases.ADVICE_ON_STUCK])


def check_reaction(value: str) -> str:
  """Returns what is to be done if a run is stuck.

  Raises:
    ValueError: `value` is none of "warn", "stop" and "raise".
  """
  if not isinstance(value, str) or value not in (WARN, STOP, RAISE):
    raise ValueError(
      f"on_stuck must be 'warn', 'stop' or 'raise', but got {value!r}."
    )
  return value
