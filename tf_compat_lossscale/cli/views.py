# SPDX-License-Identifier: Apache-2.0
"""The steps of a log that a chart or a picture shows."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
import itertools
from typing import NamedTuple

from tf_compat_lossscale.cli import charts
from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import terminal
from tf_compat_lossscale.monitoring import facts
from tf_compat_lossscale.monitoring.facts import Culprit
from tf_compat_lossscale.monitoring.rows import RunLog


class View(NamedTuple):
  """Some steps of a run.

  Attributes:
    log: The rows of these steps alone.
    first: The first step.
    last: The last step.
    changes: (step, scale after the step) of each step that changed the scale.
      The first pair is the scale before the first step.
    lost: The skipped steps.
    culprits: The gradients at fault, those of the most steps first.
    restarts: The steps at which the run was started again.
    is_whole: Whether these are all steps of the log.
  """

  log: RunLog
  first: int
  last: int
  changes: Sequence[tuple[int, float]]
  lost: Sequence[int]
  culprits: Sequence[Culprit]
  restarts: Sequence[int]
  is_whole: bool

  @property
  def scales(self) -> list[float]:
    """All scales that can be drawn."""
    return [scale for _, scale in self.changes if facts.is_usable(scale)]


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
    part,
    low,
    high,
    changes,
    [row.step for row in part.rows if row.applied is False],
    facts.find_culprits(part.rows),
    [r.step for r in part.rows if r.config is not None and r.step > begin],
    is_whole,
  )


def find_spans(
  view: View, ranges: Sequence[tuple[int, int]]
) -> tuple[list[charts.Span], str]:
  """Returns the scales and the marks of columns.

  Args:
    view: The steps.
    ranges: The first step of each column and the first after it, counted from
      0 at the first step of the view.
  """
  steps = [step for step, _ in view.changes]
  spans: list[charts.Span] = []
  marks = []
  for first, end in ranges:
    # A column begins with the scale before its first step.
    begin = bisect.bisect_left(steps, view.first + first) - 1
    stop = bisect.bisect_left(steps, view.first + end)
    scales = [scale for _, scale in view.changes[max(begin, 0) : stop]]
    usable = [scale for scale in scales if facts.is_usable(scale)]
    spans.append((min(usable), max(usable)) if usable else None)
    if len(usable) < len(scales):
      marks.append("?")
    else:
      at = bisect.bisect_left(view.lost, view.first + first)
      is_lost = at < len(view.lost) and view.lost[at] < view.first + end
      marks.append("x" if is_lost else " ")
  return spans, "".join(marks)


def summarize(view: View) -> list[str]:
  """Returns the lines below a chart."""
  count = view.last - view.first + 1
  scales = [scale for _, scale in view.changes]
  pairs = list(itertools.pairwise(scales))
  skipped = "not in the log"
  # Steps without a row were applied.
  if not all(row.applied is None for row in view.log.rows) or not view.log.rows:
    skipped = f"{len(view.lost)} ({len(view.lost) / count:.2%})"
  restarts = max(len(view.restarts), view.log.restarts)
  lines = [
    f"steps {count}, skipped {skipped}, growths {sum(a < b for a, b in pairs)}"
    f", backoffs {sum(a > b for a, b in pairs)}, restarts {restarts}"
  ]
  if usable := view.scales:
    named = (scales[0], scales[-1], min(usable), max(usable))
    words = ("first", "last", "lowest", "highest")
    lines.append(
      "scale "
      + ", ".join(f"{w} {facts.show_power(s)}" for w, s in zip(words, named))
    )
  else:
    lines.append(f"scale {scales[-1]:g}, which cannot scale a loss")
  return lines


def make_title(log: RunLog) -> str:
  """Returns the title of a run."""
  name = log.config.get("class_name")
  return f"{log.source} ({name})" if name else log.source


def clean(text: str) -> str:
  """Returns a text whose control characters and surrogates are escaped."""
  text = terminal.escape(text)
  return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _show_range(first: int | None, last: int | None) -> str:
  """Returns a range as the option has it."""
  texts = ("" if number is None else str(number) for number in (first, last))
  return ":".join(texts)
