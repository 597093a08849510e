# SPDX-License-Identifier: Apache-2.0
"""Follows a run step by step: counts, log lines, lines for files, stuck runs.

This module knows no TensorFlow: hooks and monitors pass it observations.
"""

from __future__ import annotations

from collections.abc import Mapping
import time
from typing import Any
from typing import NamedTuple

from absl import logging

from tf_compat_lossscale.monitoring import facts
from tf_compat_lossscale.monitoring import observations
from tf_compat_lossscale.monitoring import rows
from tf_compat_lossscale.monitoring import stuck

# The most gradients that a log line names, and that a line of a file lists.
_MOST_NAMED = 3
_MOST_LISTED = 50


class Options(NamedTuple):
  """How a run is watched: what its user chose, and its loss scale.

  Attributes:
    every_n_steps: Between two lines of the files, in attempted steps.
    patience: After how many steps a run counts as stuck.
    minimum: The lowest loss scale, or None if it is not known.
    config: The arguments of the loss scale, for the files.
  """

  every_n_steps: int
  patience: int
  minimum: float | None
  config: Mapping[str, Any]


class Report(NamedTuple):
  """What is to be done about a step.

  Attributes:
    line: A line for the files, or None.
    stuck: A message if the run has just been found stuck, or None. It also says
      what to try, unlike the line.
  """

  line: dict[str, Any] | None
  stuck: str | None


class Watch:
  """Counts the steps of a run.

  Attributes:
    step: The steps attempted so far.
    skipped: Of these, the steps skipped so far.
  """

  def __init__(self, options: Options) -> None:
    """Starts to watch a run of which nothing is known yet."""
    self._options = options
    self._stuck = stuck.Rule(options.patience, options.minimum)
    self.step = 0
    self.skipped = 0
    self._scale: float | None = None
    self._in_a_row = 0
    self._is_first = True
    self._last: dict[str, Any] | None = None  # The line of the last step.
    self._last_written = 0
    self._blame: list[observations.Contents] = []
    self._underflow: dict[str, Any] | None = None  # Not written yet.

  def start(self, step: int, skipped: int, scale: float) -> None:
    """Starts or goes on with a run.

    Args:
      step: The steps attempted so far.
      skipped: Of these, the steps skipped.
      scale: The loss scale.
    """
    self.__init__(self._options)  # type: ignore[misc]  # Forgets the run before.
    self.step, self.skipped, self._scale = step, skipped, scale
    self._stuck.start(step, scale)
    name = self._options.config.get("class_name", "loss scale")
    logging.info(
      "%s: the loss scale is %s after %d steps, of which %d were skipped.",
      name,
      facts.show_scale(scale),
      step,
      skipped,
    )

  def observe(self, seen: observations.Observation) -> Report:
    """Takes note of an attempted step.

    Args:
      seen: What is known of the step.
    """
    self.step += 1
    self.skipped += not seen.applied
    before = seen.scale if self._scale is None else self._scale
    blame = seen.at_fault
    message = self._stuck.count(self.step, seen, blame)
    self._log(seen, before, blame)
    line = self._make_line(seen, before, blame)
    if message is not None:
      line["stuck"] = message
    is_due = (
      self._is_first
      or self.step % self._options.every_n_steps == 0
      or not seen.applied
      or seen.scale != before
      or blame not in ([], self._blame)
      or message is not None
    )
    self._scale = seen.scale
    self._in_a_row = 0 if seen.applied else self._in_a_row + 1
    if seen.gradients or not seen.applied:
      self._blame = blame
    self._is_first = False
    self._last = line
    if is_due:
      self._last_written = self.step
      self._underflow = None
    if message is not None:
      message = f"{message} {stuck.advise(blame, seen.scale)}"
    return Report(line if is_due else None, message)

  def finish(self) -> dict[str, Any] | None:
    """Returns the line of the last step if it is not written yet."""
    if self._last is None or self._last_written == self.step:
      return None
    self._last_written = self.step
    return self._last

  def _log(
    self,
    seen: observations.Observation,
    before: float,
    blame: list[observations.Contents],
  ) -> None:
    """Logs a line if something has changed."""
    same_scale = seen.scale == before
    same_blame = [x.name for x in blame] == [x.name for x in self._blame]
    if not seen.applied:
      is_quiet = self._in_a_row and same_scale and same_blame
    elif blame:
      # A fixed loss scale, or a rule of the user's, skips no step.
      is_quiet = same_blame
    else:
      is_quiet = not self._in_a_row and same_scale
    if is_quiet:
      return
    scale = f"loss scale {facts.show_scale(seen.scale)}"
    if not same_scale:
      shown = map(facts.show_scale, (before, seen.scale))
      scale = f"loss scale {' -> '.join(shown)}"
    why = "the gradients are not finite"
    if blame:
      why = observations.describe_blame(blame, seen.total, _MOST_NAMED)
    if not seen.applied:
      logging.warning("Step %d was skipped; %s; %s.", self.step, scale, why)
    elif blame:
      logging.warning(
        "Step %d was applied, with gradients that are not finite; %s; %s.",
        self.step,
        scale,
        why,
      )
    elif self._in_a_row:
      logging.info(
        "Step %d was applied, after %d skipped; %s.",
        self.step,
        self._in_a_row,
        scale,
      )
    else:
      logging.info("Step %d: %s.", self.step, scale)

  def _make_line(
    self,
    seen: observations.Observation,
    before: float,
    blame: list[observations.Contents],
  ) -> dict[str, Any]:
    """Returns the line of a step for the files."""
    line: dict[str, Any] = {
      "step": self.step,
      "applied": seen.applied,
      rows.SCALE: observations.to_json(seen.scale),
    }
    if seen.good_steps is not None:
      line[rows.GOOD_STEPS] = seen.good_steps
    line[rows.SKIPPED] = self.skipped
    line[rows.RATE] = self.skipped / self.step
    if seen.global_step is not None:
      line[rows.GLOBAL_STEP] = seen.global_step
    line["time"] = round(time.time(), 3)
    if blame:
      line["gradients"] = seen.total
    if blame and blame != self._blame:
      line["blame"] = [
        {key: getattr(x, key) for key in rows.Blame._fields}
        for x in blame[:_MOST_LISTED]
      ]
    if seen.applied and seen.gradients:
      self._underflow = observations.summarize_underflow(seen, before)
    if self._underflow is not None:
      line["underflow"] = self._underflow
    if self._is_first:
      line["config"] = dict(self._options.config)
    return line
