# SPDX-License-Identifier: Apache-2.0
"""Records a run step by step: what hooks and monitors have in common.

This module needs no TensorFlow: it gets steps as numbers, and the loss scale as
its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import math
import os
import time
from typing import Any
from typing import NamedTuple

from absl import logging

from tf_compat_lossscale._core import arguments
from tf_compat_lossscale.monitoring import facts
from tf_compat_lossscale.monitoring import log_files
from tf_compat_lossscale.monitoring import phrases
from tf_compat_lossscale.monitoring import steps
from tf_compat_lossscale.monitoring import stuck
from tf_compat_lossscale.monitoring.rows import Blame
from tf_compat_lossscale.monitoring.rows import Row
from tf_compat_lossscale.monitoring.rows import Underflow

# The most gradients that a logged line names, and that a line of a file lists.
_MOST_NAMED = 3
_MOST_LISTED = 50


@dataclasses.dataclass(frozen=True)
class Settings:
  """The arguments of `LossScaleHook` and `Monitor`, which explain them.

  Raises:
    ValueError: An argument makes no sense; the message names it.
  """

  output_dir: str | os.PathLike[str] | None
  every_n_steps: int
  blame: bool
  on_stuck: stuck.Reaction
  patience: int

  def __post_init__(self) -> None:
    """Checks the arguments."""
    arguments.check_steps("every_n_steps", self.every_n_steps)
    arguments.check_steps("patience", self.patience)
    log_files.check_folder(self.output_dir)
    stuck.check_reaction(self.on_stuck)
    if not isinstance(self.blame, bool):
      raise ValueError(f"blame must be True or False, but got {self.blame!r}.")

  @property
  def measure_every(self) -> int:
    """How often the gradients of good steps are measured, in steps.

    0 if no gradients are measured at all.
    """
    return int(self.every_n_steps) if self.blame else 0


class _Attempt(NamedTuple):
  """A step of a run.

  Attributes:
    number: Its number among the attempted steps.
    skipped: How many steps were skipped so far, this step included.
    time: The time in seconds since the epoch.
    decode: Returns what is known of the step.
  """

  number: int
  skipped: int
  time: float
  decode: Callable[[], steps.Step]


class Recorder:
  """Counts the steps of a run, logs and writes them, and finds a stuck run.

  Attributes:
    step: The steps attempted so far.
    skipped: Of these, the steps skipped so far.
    is_started: Whether the state from which the run goes on is known.
  """

  def __init__(
    self,
    settings: Settings,
    config: Mapping[str, Any],
    is_bypassed: Callable[[], bool] = lambda: False,
  ) -> None:
    """Creates a recorder; nothing is written yet.

    Args:
      settings: How to record the run.
      config: The arguments of its loss scale, as `watched.describe` has them.
      is_bypassed: Returns whether a step is known whose loss was not scaled.
    """
    self._settings = settings
    self._config = config
    self._is_bypassed = is_bypassed
    self._files: log_files.LogFiles | None = None
    self._has_kept = False
    self.is_started = False
    self._begin(0, 0, math.nan)

  def _begin(self, step: int, skipped: int, scale: float) -> None:
    """Forgets the run before, and begins after a number of steps."""
    self.step, self.skipped = step, skipped
    self._scale = scale  # Before the next step.
    self._in_a_row = 0  # The skipped steps before the next step.
    self._blame: tuple[Blame, ...] = ()  # Of the last step that has one.
    self._underflow: Underflow | None = None  # Not written yet.
    self._latest: _Attempt | None = None
    self._last_written = 0
    self._has_told_bypass = False
    self._stuck = stuck.Rule(
      int(self._settings.patience), self._config.get("minimum")
    )
    self._stuck.start(step, scale)

  def start(self, state: steps.State) -> None:
    """Starts to record a run, or goes on with one.

    Args:
      state: The state of training before the next step, as Python numbers.
    """
    skipped = state.skipped_steps or 0
    step = (state.global_step or 0) + skipped
    if self._settings.output_dir is not None:
      self._files = log_files.LogFiles(self._settings.output_dir)
      place = self._files.resume(state, self._is_new(state))
      if place is not None:
        step, skipped = place.step, place.skipped
    self._begin(step, skipped, state.scale)
    logging.info(
      "%s: the loss scale is %s after %d steps, of which %d were skipped.",
      self._config.get("class_name", "loss scale"),
      facts.show_scale(state.scale),
      step,
      skipped,
    )
    self.is_started = True

  def _is_new(self, state: steps.State) -> bool:
    """Returns whether a run has just begun, rather than goes on.

    A run that goes on from a checkpoint that was saved before the first step is
    new, too.
    """
    if state.good_steps or state.global_step or state.skipped_steps:
      return False
    return facts.find_initial(self._config) == state.scale

  def pass_over(self, count: int, skipped: int) -> None:
    """Counts attempted steps of which nothing else is known.

    Args:
      count: The number of attempted steps.
      skipped: Of these, the steps skipped.
    """
    self.step += count
    self.skipped += skipped

  def pass_uneventful(
    self, scale: float, decode: Callable[[], steps.Step]
  ) -> bool:
    """Records a step if there is nothing to say of it, and no line is due.

    Nearly all steps are such, so this method decides how much a hook costs.

    Args:
      scale: The loss scale after a step that was applied, and whose gradients
        were not measured; NaN for any other step.
      decode: Returns what is known of the step, if a line needs it.

    Returns:
      Whether the step is recorded. If not, `observe` is to record it.
    """
    if (
      scale != self._scale
      or self._latest is None
      or (self.step + 1) % int(self._settings.every_n_steps) == 0
      or not self._stuck.is_calm
    ):
      return False
    self.step += 1
    self._latest = _Attempt(self.step, self.skipped, time.time(), decode)
    return True

  def observe(self, step: steps.Step, keep: Callable[[str, str], None]) -> bool:
    """Records an attempted step.

    Args:
      step: What is known of the step.
      keep: Called when the run is found stuck for the first time, if there are
        files: takes the path of a new folder, in which it keeps the state, and
        the message.

    Returns:
      Whether training should stop.

    Raises:
      StuckError: The run is stuck, and `on_stuck` is "raise".
    """
    is_first = self._latest is None
    self.step += 1
    self.skipped += not step.applied
    self._latest = _Attempt(self.step, self.skipped, time.time(), lambda: step)
    if step.applied and step.given:
      self._underflow = steps.summarize_underflow(step, self._scale)
    row = self._make_row(self._latest)._replace(
      config=self._config if is_first else None, bypassed=self._tell_bypass()
    )
    row = row._replace(stuck=self._stuck.count(row))
    self._log(row)
    self._write(row, bool(step.given))
    self._scale = row.loss_scale
    self._in_a_row = 0 if row.applied else self._in_a_row + 1
    if row.stuck is None:
      return False
    message = f"{row.stuck} {stuck.advise(row)}"
    logging.warning("%s", message)
    folder = self._settings.output_dir
    if folder is not None and not self._has_kept:
      self._has_kept = True
      keep(os.path.join(folder, f"stuck-{self.step}"), message)
    if self._settings.on_stuck == "raise":
      raise stuck.StuckError(message)
    return self._settings.on_stuck == "stop"

  def close(self) -> None:
    """Writes the last step if it is not written yet, and closes the files."""
    if self._files is not None:
      if self._latest is not None and self._last_written != self.step:
        row = self._make_row(self._latest)._replace(
          bypassed=self._tell_bypass()
        )
        self._files.write(self._shorten(row))
        self._last_written = self.step
      self._files.close()
      self._files = None
    self.is_started = False

  def _make_row(self, attempt: _Attempt) -> Row:
    """Returns the row of a step."""
    step = attempt.decode()
    return Row(
      attempt.number,
      step.applied,
      step.after.scale,
      step.after.good_steps,
      attempt.skipped,
      step.after.global_step,
      round(attempt.time, 3),
      step.find_blame(),
      self._underflow,
      gradients=step.total,
    )

  def _tell_bypass(self) -> bool | None:
    """Returns True, once, if the loss is not scaled; None otherwise."""
    if self._has_told_bypass or not self._is_bypassed():
      return None
    self._has_told_bypass = True
    return True

  def _write(self, row: Row, was_measured: bool) -> None:
    """Writes the line of a step if the step is due to have one."""
    is_due = (
      row.config is not None
      or row.step % int(self._settings.every_n_steps) == 0
      or not row.applied
      or row.loss_scale != self._scale
      or self._has_new_blame(row)
      or row.stuck is not None
      or row.bypassed is not None
    )
    shortened = self._shorten(row)
    if was_measured or not row.applied:
      self._blame = row.blame or ()
    if is_due:
      self._last_written = row.step
      self._underflow = None
      if self._files is not None:
        self._files.write(shortened)

  def _has_new_blame(self, row: Row) -> bool:
    """Returns whether gradients are not finite that were finite before."""
    return bool(row.blame) and row.blame != self._blame

  def _shorten(self, row: Row) -> Row:
    """Returns a row as its line has it: without what is known already."""
    blame = row.blame or ()
    return row._replace(
      blame=blame[:_MOST_LISTED] if self._has_new_blame(row) else None,
      gradients=row.gradients if blame else None,
    )

  def _log(self, row: Row) -> None:
    """Logs a line if something has changed."""
    same_scale = row.loss_scale == self._scale
    blame = row.blame or ()
    same_blame = [x.name for x in blame] == [x.name for x in self._blame]
    if not row.applied:
      is_quiet = self._in_a_row and same_scale and same_blame
    elif blame:
      # A fixed loss scale, or a rule of the user's, skips no step.
      is_quiet = same_blame
    else:
      is_quiet = not self._in_a_row and same_scale
    if is_quiet:
      return
    scale = f"loss scale {facts.show_scale(row.loss_scale)}"
    if not same_scale:
      shown = map(facts.show_scale, (self._scale, row.loss_scale))
      scale = f"loss scale {' -> '.join(shown)}"
    why = "the gradients are not finite"
    if blame:
      why = phrases.describe_blame(row, _MOST_NAMED)
    if not row.applied:
      logging.warning("Step %d was skipped; %s; %s.", row.step, scale, why)
    elif blame:
      logging.warning(
        "Step %d was applied, with gradients that are not finite; %s; %s.",
        row.step,
        scale,
        why,
      )
    elif self._in_a_row:
      logging.info(
        "Step %d was applied, after %d skipped; %s.",
        row.step,
        self._in_a_row,
        scale,
      )
    else:
      logging.info("Step %d: %s.", row.step, scale)
