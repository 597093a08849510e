# SPDX-License-Identifier: Apache-2.0
"""Finds runs whose loss scale is stuck, and says what to try."""

from __future__ import annotations

import math

from tf_compat_lossscale.monitoring import facts
from tf_compat_lossscale.monitoring import observations
from tf_compat_lossscale.monitoring import phrases

# The most gradients that a message names.
_MOST_NAMED = 5

WARN, STOP, RAISE = "warn", "stop", "raise"


class StuckError(RuntimeError):
  """A run whose loss scale is stuck, with `on_stuck="raise"`."""


class Rule:
  """Says when a run is stuck.

  A run is stuck if `patience` steps in a row were skipped. It is also stuck if
  a step is skipped at the minimum of the scale, and a step was skipped there
  that long ago: there is no lower scale. A run that loses no step at the
  minimum is not stuck.
  """

  def __init__(self, patience: int, minimum: float | None) -> None:
    """Creates a rule.

    Args:
      patience: A number of attempted steps.
      minimum: The lowest scale, or None if it is not known.
    """
    self._patience = patience
    self._minimum = minimum
    self._scale = math.nan
    self._since = 0  # The step that set the scale.
    self._before = math.nan  # The scale before the first bad step.
    self._first_skipped: int | None = None  # Of the skipped steps in a row.
    self._first_bad: int | None = None  # Since the scale has been falling.
    self._first_lost: int | None = None  # Of the skipped steps at the minimum.
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
      if self._first_lost is None and self._is_minimum(self._scale):
        self._first_lost = step
    if not self._is_minimum(scale):
      self._first_lost = None
    if scale != self._scale:
      self._scale, self._since = scale, step
    if self._first_skipped is None and self._first_lost is None:
      self._due = self._patience
    if seen.applied or self._measure(step) < self._due:
      return None
    self._due *= 2
    return self._describe(step, seen)

  def _is_minimum(self, scale: float) -> bool:
    return self._minimum is not None and scale <= self._minimum

  def _measure(self, step: int) -> int:
    """Returns for how many steps the run has been stuck."""
    firsts = (self._first_skipped, self._first_lost)
    return max(step - first + 1 for first in firsts if first is not None)

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
        f"steps are skipped at its minimum since step {self._first_lost}, the "
        f"last one is step {step}"
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
