# SPDX-License-Identifier: Apache-2.0
"""The log of a run's steps: lines for people, and four scalars.

The hook of sessions and the callback of Keras look at a step each in its own
way, and tell a `StepLog` what the step did.
"""

from __future__ import annotations

from collections.abc import Sequence
import os
import time
from typing import Any
from typing import Literal
from typing import NamedTuple
from typing import TypeAlias

from absl import logging
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import arguments

OnStuck: TypeAlias = Literal["warn", "stop", "raise"]

_MOST_NAMED = 10  # The most gradients that a line names.
# So many skipped steps have a warning each; then one has that doubles the
# number.
_FIRST = 5


class StuckError(RuntimeError):
  """A run whose loss scale is stuck, with `on_stuck="raise"`."""


class Outcome(NamedTuple):
  """What a step did, or several steps that were looked at together.

  Attributes:
    skipped: How many of the steps were skipped.
    scale: The loss scale after the last step.
    good_steps: The good steps in a row after it; None if the loss scale does
      not count them.
    culprits: If a step was skipped, the names of the variables whose gradients
      are not finite; empty if none of those seen is at fault, and None if
      nobody saw them.
    steps: How many steps there were.
  """

  skipped: int
  scale: float
  good_steps: float | None = None
  culprits: Sequence[str] | None = None
  steps: int = 1


class StepLog:
  """The log of one session at a time, or of one training by Keras.

  Attributes:
    is_open: Whether the log has been opened, and not closed since.
  """

  def __init__(
    self,
    output_dir: str | os.PathLike[str] | None,
    every_n_steps: int,
    on_stuck: OnStuck,
    patience: int,
  ) -> None:
    """Takes the arguments of a hook or callback, and checks them."""
    self._output_dir = None if output_dir is None else os.fspath(output_dir)
    self._every = arguments.check_steps("every_n_steps", every_n_steps)
    words = "warn", "stop", "raise"
    self._on_stuck = arguments.check_word("on_stuck", on_stuck, words)
    self._patience = arguments.check_steps("patience", patience)
    self._writer: Any = None
    self.is_open = False

  def open(
    self, step: int, scale: float, good_steps: float | None = None
  ) -> None:
    """Starts anew after a step, with the state that it left."""
    self.is_open = True
    self._first = self._step = step
    self._scale, self._good_steps = scale, good_steps
    self._skipped = self._in_a_row = 0
    self._warn_at = 1
    if self._output_dir is not None:
      # TensorFlow names files by the second: a session that starts in the same
      # second would overwrite the file of the session before.
      with tf.Graph().as_default():  # The writer refuses to work eagerly.
        self._writer = tf.compat.v1.summary.FileWriter(
          self._output_dir, flush_secs=10, filename_suffix=f".{time.time_ns()}"
        )
      self._write()

  def add(self, outcome: Outcome) -> bool:
    """Takes note of a step; returns whether the run is to stop.

    Raises:
      StuckError: The run is stuck, and `on_stuck` is "raise".
    """
    before, scale, step = self._scale, outcome.scale, self._step
    self._scale, self._good_steps = scale, outcome.good_steps
    self._step += outcome.steps
    self._skipped += outcome.skipped
    is_due = step // self._every < self._step // self._every
    if is_due or scale != before or outcome.skipped:
      self._write()
    change = f"{before:g} -> " if scale != before else ""
    what = f"loss scale {change}{scale:g}"
    if not outcome.skipped:
      self._in_a_row = 0
      if change:
        logging.info("Step %d: %s.", self._step, what)
      return False
    what += f"; {_name_culprits(outcome.culprits)}"
    self._log_skipped(outcome, what)

    if not self._in_a_row:
      self._stuck_at = self._patience
    are_all = outcome.skipped == outcome.steps
    self._in_a_row = self._in_a_row + outcome.skipped if are_all else 0
    if self._in_a_row < self._stuck_at:
      return False
    self._stuck_at *= 2
    message = (
      f"The loss scale is stuck: the last {self._in_a_row} steps were skipped, "
      f"up to step {self._step}; {what}. Look for an operation that is not "
      "finite in float16, for bad data, and for a learning rate that is too "
      "high."
    )
    if self._on_stuck == "raise":
      raise StuckError(message)
    logging.warning("%s", message)
    return self._on_stuck == "stop"

  def _log_skipped(self, outcome: Outcome, what: str) -> None:
    which = f"Step {self._step} was"
    if outcome.steps > 1:
      first = self._step - outcome.steps + 1
      which = f"{outcome.skipped} of steps {first} to {self._step} were"
    level, more = logging.DEBUG, ""
    if self._skipped >= self._warn_at:
      level, self._warn_at = logging.WARNING, self._skipped + 1
      if self._skipped >= _FIRST:
        self._warn_at = self._skipped * 2
        more = f". That makes {self._skipped}; the next warning is at "
        more += str(self._warn_at)
    logging.log(level, "%s skipped; %s%s.", which, what, more)

  def _write(self) -> None:
    if self._writer is None:
      return
    self._written = self._step
    scalars = {
      "value": self._scale,
      "good_steps": self._good_steps,
      "skipped_total": self._skipped,
      "skipped_rate": self._skipped / max(self._step - self._first, 1),
    }
    summary = tf.compat.v1.Summary()
    for name, value in scalars.items():
      if value is not None:
        summary.value.add(tag=f"loss_scale/{name}", simple_value=value)
    self._writer.add_summary(summary, self._step)

  def close(self) -> None:
    """Writes the last step, and logs a sum if there were many warnings."""
    if not self.is_open:
      return
    self.is_open = False
    if self._skipped > _FIRST:
      steps = self._step - self._first
      logging.warning(
        "%d of %d steps were skipped (%.2f%%); the loss scale is %g.",
        *(self._skipped, steps, 100 * self._skipped / steps, self._scale),
      )
    if self._writer is not None:
      if self._written != self._step:
        self._write()
      self._writer.close()


def _name_culprits(names: Sequence[str] | None) -> str:
  """Says which gradients are at fault for a skipped step."""
  if names is None:
    return "the gradients at fault are not known"
  if not names:
    return "an earlier micro-batch or another worker is at fault"
  more = len(names) - _MOST_NAMED
  named = f"not finite: {', '.join(names[:_MOST_NAMED])}"
  return f"{named} and {more} more" if more > 0 else named
