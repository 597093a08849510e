# SPDX-License-Identifier: Apache-2.0
"""The log of a run's loss scale: rows of steps, as both kinds of files tell."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any
from typing import NamedTuple

# The file of JSON lines, in the folder of a run.
NAME = "loss_scale.jsonl"
# Keys of its lines; those with a slash are TensorBoard's tags, too.
SCALE = "loss_scale/value"
GOOD_STEPS = "loss_scale/good_steps"
SKIPPED = "loss_scale/skipped_total"
RATE = "loss_scale/skipped_rate"
GLOBAL_STEP = "global_step"
TAGS = (SCALE, GOOD_STEPS, SKIPPED, RATE)
# Each line also has `step`, `applied` and `time`. Few lines have these keys:
RARE = frozenset({"gradients", "blame", "underflow", "config", "stuck"})


class LogError(ValueError):
  """A log that is missing or damaged; the message names the file."""


class MissingLogError(LogError):
  """There is no log at a path, but one may come."""


class Blame(NamedTuple):
  """A gradient that was not finite; a line has these fields as keys.

  Attributes:
    name: The variable's name.
    inf: How many of its elements were infinite.
    nan: How many of its elements were NaN.
    size: How many elements it has.
    largest: The largest magnitude of its finite elements, unscaled.
  """

  name: str
  inf: int
  nan: int
  size: int
  largest: float


class Underflow(NamedTuple):
  """How small the scaled gradients of a step were.

  Attributes:
    zeros: The share of zeros among all elements, from 0 to 1.
    largest: The largest magnitude among the scaled gradients.
    gradients: Name -> (share of zeros, largest scaled magnitude), for the
      gradients with most zeros.
    lost: The share of elements that became 0 because the scale is too low; None
      if the log, of an older release, does not tell.
    unscaling: Of the elements that are not 0 before they are unscaled, the
      share that is 0 afterwards.
  """

  zeros: float
  largest: float
  gradients: Mapping[str, tuple[float, float]]
  lost: float | None = None
  unscaling: float = 0.0


class Row(NamedTuple):
  """A step that a log tells of.

  Attributes:
    step: The number of the attempted step, counted from 1.
    applied: Whether the gradients were applied; None if the log does not tell.
    loss_scale: The loss scale after the step.
    good_steps: The loss scale's counter of finite steps, or None.
    skipped_total: How many steps were skipped so far, or None.
    global_step: The global step, or None.
    time: The time in seconds since the epoch, or None.
    blame: The gradients that were not finite; None if nobody looked.
    underflow: How small the gradients were; None if nobody looked.
    config: The configuration of the loss scale, if a session began with this
      step.
    stuck: The message, if the run was found stuck at this step.
  """

  step: int
  applied: bool | None
  loss_scale: float
  good_steps: int | None = None
  skipped_total: int | None = None
  global_step: int | None = None
  time: float | None = None
  blame: tuple[Blame, ...] | None = None
  underflow: Underflow | None = None
  config: Mapping[str, Any] | None = None
  stuck: str | None = None


@dataclasses.dataclass(frozen=True)
class RunLog:
  """The log of a run.

  The steps between two rows were applied and did not change the loss scale.

  Attributes:
    source: The file, or the folder with event files.
    rows: The rows in the order of their steps.
    restarts: How many times the run was started again, as far as the log tells.
    config: The newest configuration of the loss scale; empty if unknown.
  """

  source: str
  rows: Sequence[Row]
  restarts: int = 0
  config: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def steps(self) -> int:
    """How many steps the run attempted from the first row to the last."""
    return self.rows[-1].step - self.rows[0].step + 1 if self.rows else 0

  @property
  def skipped(self) -> int:
    """How many of these steps were skipped."""
    return sum(row.applied is False for row in self.rows)

  def select(self, first: int | None, last: int | None) -> RunLog:
    """Returns the log of some steps.

    Args:
      first: The first step; None for the begin of the log.
      last: The last step; None for the end of the log.
    """
    rows = [
      row
      for row in self.rows
      if (first is None or row.step >= first)
      and (last is None or row.step <= last)
    ]
    restarts = sum(row.config is not None for row in rows[1:])
    return dataclasses.replace(self, rows=rows, restarts=restarts)
