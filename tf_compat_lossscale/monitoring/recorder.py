# SPDX-License-Identifier: Apache-2.0
"""Records a run: what hooks and monitors have in common."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import os
from typing import Any

from absl import logging

from tf_compat_lossscale._core import arguments
from tf_compat_lossscale.monitoring import log_files
from tf_compat_lossscale.monitoring import observations
from tf_compat_lossscale.monitoring import stuck
from tf_compat_lossscale.monitoring import watch
from tf_compat_lossscale.monitoring import watched

# The arguments by which loss scales begin.
_INITIALS = ("initial_loss_scale", "loss_scale_value")


@dataclasses.dataclass(frozen=True)
class Settings:
  """The arguments of `LossScaleHook` and `Monitor`, which explain them.

  Raises:
    ValueError: An argument makes no sense; the message names it.
  """

  output_dir: str | os.PathLike[str] | None
  every_n_steps: int
  blame: bool
  on_stuck: str
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


class Recorder:
  """Logs the steps of a run, writes them to files, and finds a stuck run.

  Attributes:
    is_started: Whether the state from which the run goes on is known.
  """

  def __init__(self, loss_scale: Any, settings: Settings) -> None:
    """Creates a recorder; nothing is written yet.

    Args:
      loss_scale: The LossScale of the run.
      settings: How to record it.
    """
    self._settings = settings
    self._options = watch.Options(
      int(settings.every_n_steps),
      int(settings.patience),
      watched.find_minimum(loss_scale),
      watched.describe(loss_scale),
    )
    self._watch = watch.Watch(self._options)
    self._files: log_files.LogFiles | None = None
    self._has_kept = False
    self.is_started = False

  def start(self, state: observations.State) -> None:
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
    self._watch.start(step, skipped, state.scale)
    self.is_started = True

  def _is_new(self, state: observations.State) -> bool:
    """Returns whether a run has just begun, rather than goes on.

    A checkpoint that was saved before the first step is no exception: the run
    begins anew there.
    """
    if state.good_steps or state.global_step or state.skipped_steps:
      return False
    config = self._options.config
    initial = [config[name] for name in _INITIALS if name in config]
    return initial == [state.scale]

  def pass_over(self, steps: int, skipped: int) -> None:
    """Counts attempted steps of which nothing else is known.

    Args:
      steps: The number of attempted steps.
      skipped: Of these, the steps skipped.
    """
    self._watch.step += steps
    self._watch.skipped += skipped

  def observe(
    self,
    seen: observations.Observation,
    keep: Callable[[str, str], None],
  ) -> bool:
    """Records an attempted step.

    Args:
      seen: What is known of the step.
      keep: Called when the run is found stuck for the first time, if there are
        files: takes the path of a new folder, in which it keeps the state, and
        the message.

    Returns:
      Whether training should stop.

    Raises:
      StuckError: The run is stuck, and `on_stuck` is "raise".
    """
    report = self._watch.observe(seen)
    if report.line is not None and self._files is not None:
      self._files.write(report.line)
    if report.stuck is None:
      return False
    message = report.stuck
    logging.warning("%s", message)
    folder = self._settings.output_dir
    if folder is not None and not self._has_kept:
      self._has_kept = True
      keep(os.path.join(folder, f"stuck-{self._watch.step}"), message)
    if self._settings.on_stuck == stuck.RAISE:
      raise stuck.StuckError(message)
    return self._settings.on_stuck == stuck.STOP

  def close(self) -> None:
    """Writes the last step if it is not written yet, and closes the files."""
    if self._files is not None:
      line = self._watch.finish()
      if line is not None:
        self._files.write(line)
      self._files.close()
      self._files = None
    self.is_started = False
