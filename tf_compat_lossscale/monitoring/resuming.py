# SPDX-License-Identifier: Apache-2.0
"""Finds the line of a log at which a restarted run goes on.

A checkpoint has no count of attempted steps. Its state says which line of the
log it belongs to: the global step, the loss scale, the good steps and, of some
loss scales, the skipped steps. Each skipped step and each change of the scale
has a line. So between two lines, the good steps grow by 1 with each step, and
the global step does, too, unless several optimizers share the loss scale.
"""

from __future__ import annotations

from collections.abc import Iterator
import itertools
import json
from typing import NamedTuple

from tf_compat_lossscale.monitoring import rows
from tf_compat_lossscale.monitoring.rows import Row
from tf_compat_lossscale.monitoring.steps import State


class Line(NamedTuple):
  """A line of a log.

  Attributes:
    end: The position after the line, in bytes.
    row: The row of the line; it has a count of skipped steps.
  """

  end: int
  row: Row


class Place(NamedTuple):
  """Where a run goes on.

  Attributes:
    end: The position in the log after the last line that counts, in bytes.
    step: The steps attempted so far.
    skipped: The steps skipped so far.
  """

  end: int
  step: int
  skipped: int


def find_place(data: bytes, state: State) -> Place | None:
  """Returns where a run goes on in a log.

  Args:
    data: The log.
    state: The state of the run, as numbers.

  Returns:
    The place after the last line that fits the state; if no line fits, after
    the last line that is not beyond the global step. None if there is no such
    line: the log is of another run, or has no line.
  """
  # The log may be of a loss scale that did not count skipped steps.
  states = dict.fromkeys([state, state._replace(skipped_steps=None)])
  for state, alone in itertools.product(states, (True, False)):
    place = _find_fitting(data, state, alone)
    if place is not None:
      return place
  return _find_reachable(data, state.global_step)


def _find_fitting(data: bytes, state: State, alone: bool) -> Place | None:
  """Returns the place after the last line that fits a state.

  Args:
    data: The log.
    state: The state.
    alone: Whether each applied step adds 1 to the global step. If several
      optimizers share a loss scale, some steps do not.
  """
  limit = None  # The step of the line after this line.
  for line in _read_backward(data):
    ahead = _count_ahead(line.row, state, alone)
    step = line.row.step
    if ahead is not None and (limit is None or step + ahead < limit):
      return _make_place(line, ahead)
    limit = step
  return None


def _count_ahead(row: Row, state: State, alone: bool) -> int | None:
  """Returns how many steps after a line a state is; None if it does not fit."""
  if state.skipped_steps not in (None, row.skipped_total):
    return None
  if row.loss_scale != state.scale:
    return None
  by_global_step = _subtract(state.global_step, row.global_step)
  by_good_steps = _subtract(state.good_steps, row.good_steps)
  found = [x for x in (by_good_steps, by_global_step) if x is not None]
  if min(found, default=0) < 0 or (alone and len(set(found)) > 1):
    return None
  return max(found, default=0)


def _subtract(now: int | None, then: int | None) -> int | None:
  return None if now is None or then is None else now - then


def _find_reachable(data: bytes, global_step: int | None) -> Place | None:
  """Returns the place after the last line that is not beyond a global step."""
  if global_step == 0:
    return None  # Nothing was learned yet: the run begins anew.
  for line in _read_backward(data):
    ahead = _subtract(global_step, line.row.global_step)
    if global_step is None or (ahead is not None and ahead >= 0):
      return _make_place(line, ahead or 0)
  return None


def _make_place(line: Line, ahead: int) -> Place:
  """Returns the place some steps after a line."""
  skipped = line.row.skipped_total or 0
  return Place(line.end, line.row.step + ahead, skipped)


def _read_backward(data: bytes) -> Iterator[Line]:
  """Yields the lines of a log from the last to the first.

  A killed run may have left a last line that is not whole, and a disk may have
  lost others. These are left out.
  """
  end = len(data)
  while end > 0:
    begin = data.rfind(b"\n", 0, end - 1) + 1
    text = data[begin:end]
    if text.endswith(b"\n"):
      row = _parse(text)
      if row is not None:
        yield Line(end, row)
    end = begin


def _parse(text: bytes) -> Row | None:
  """Returns the row of a line; None if the line is none of a log."""
  try:
    row = rows.decode(json.loads(text))
  except (ValueError, TypeError, AttributeError, RecursionError):
    return None
  if row.skipped_total is None:
    return None
  counts = (row.skipped_total, row.good_steps or 0, row.global_step or 0)
  return row if min(counts) >= 0 else None
