# SPDX-License-Identifier: Apache-2.0
"""The steps of a log that a chart or a picture shows."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
import dataclasses

from tf_compat_lossscale.cli import charts
from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import terminal
from tf_compat_lossscale.monitoring import facts
from tf_compat_lossscale.monitoring.facts import Culprit
from tf_compat_lossscale.monitoring.rows import RunLog


@dataclasses.dataclass(frozen=True)
class View(charts.Curve):
  """Some steps of a run.

  Attributes:
    log: The rows of these steps alone.
    culprits: The gradients at fault, those of the most steps first.
    restarts: The steps at which the run was started again.
    is_whole: Whether these are all steps of the log.
  """

  log: RunLog
  culprits: Sequence[Culprit]
  restarts: Sequence[int]
  is_whole: bool

  def describe_lost(self) -> str:
    """Returns how many steps were skipped, if the log tells."""
    # Steps without a row were applied.
    if self.log.rows and all(row.applied is None for row in self.log.rows):
      return "not in the log"
    return super().describe_lost()


def make_view(
  log: RunLog, first: int | None = None, last: int | None = None
) -> View:
  """Returns the view of some steps.

  Args:
    log: The log of the run.
    first: The first step; None for the begin of the run.
    last: The last step; None for the end of the run.

  Raises:
    Mistake: The log has no such steps.
  """
  if not log.rows:
    raise errors.Mistake(f"{log.source}: there is no step in it yet")
  begin, end = log.rows[0].step, log.rows[-1].step
  low = begin if first is None else max(first, begin)
  high = end if last is None else min(last, end)
  if low > high:
    raise errors.Mistake(
      f"{log.source}: the log has the steps {begin} to {end}, but --steps asks "
      f"for {_show_range(first, last)}"
    )
  is_whole = (low, high) == (begin, end)
  part = log if is_whole else log.select(low, high)
  at = bisect.bisect_left(log.rows, low, key=lambda row: row.step)
  # The steps between two rows have the scale of the row before.
  scale = log.rows[at - 1].loss_scale if at else facts.find_start(log.rows)
  changes = [(low - 1, scale)]
  if part.rows and facts.is_change(scale, part.rows[0].loss_scale):
    changes.append((part.rows[0].step, part.rows[0].loss_scale))
  changes += facts.list_changes(part.rows)
  return View(
    low,
    high,
    changes,
    [row.step for row in part.rows if row.applied is False],
    part,
    facts.find_culprits(part.rows),
    [r.step for r in part.rows if r.config is not None and r.step > begin],
    is_whole,
  )


def make_views(
  logs: Sequence[RunLog], first: int | None = None, last: int | None = None
) -> list[View]:
  """Returns the views of several runs, to compare them.

  A run without such steps is left out, and a warning says so.

  Args:
    logs: The logs of the runs; the other arguments are those of `make_view`.

  Raises:
    Mistake: No run has such steps, or there are too many runs.
  """
  if len(logs) > len(charts.NAMES):
    raise errors.Mistake(
      f"there are {len(logs)} runs, but a chart has room for "
      f"{len(charts.NAMES)}: name fewer folders"
    )
  found, wrong = [], []
  for log in logs:
    try:
      found.append(make_view(log, first, last))
    except errors.Mistake as error:
      wrong.append(error)
  if not found:
    raise wrong[0]
  for mistake in wrong:
    errors.warn(str(mistake), "plot")
  return found


def list_stuck(log: RunLog) -> list[str]:
  """Returns what the run said when it was stuck, in a line, if it was.

  A run says so again and again. The last message tells the most.
  """
  rows = [row for row in log.rows if row.stuck]
  if not rows:
    return []
  line = f"step {rows[-1].step}: {rows[-1].stuck}"
  if len(rows) > 1:
    line += f" (said {len(rows)} times, first at step {rows[0].step})"
  return [line]


def summarize(view: View) -> list[str]:
  """Returns the lines below a chart."""
  restarts = max(len(view.restarts), view.log.restarts)
  counts = f"{view.describe_counts()}, restarts {restarts}"
  return [counts, view.describe_scales()]


def make_title(log: RunLog) -> str:
  """Returns the title of a run."""
  name = log.config.get("class_name")
  return f"{log.source} ({name})" if name else log.source


def clean(text: str) -> str:
  """Returns a text whose control characters and surrogates are escaped."""
  text = terminal.escape(text)
  return text.encode("utf-8", "backslashreplace").decode("utf-8")


def shorten(name: str, width: int, gap: str = "...") -> str:
  """Returns a name without its middle if the name is too long.

  Args:
    name: The name.
    width: The most characters.
    gap: What stands for the middle.
  """
  if len(name) <= width:
    return name
  # The end of a name tells more than its begin.
  tail = (width - len(gap)) * 2 // 3
  return f"{name[: width - len(gap) - tail]}{gap}{name[-tail:]}"


def _show_range(first: int | None, last: int | None) -> str:
  """Returns a range as the option has it."""
  texts = ("" if number is None else str(number) for number in (first, last))
  return ":".join(texts)
