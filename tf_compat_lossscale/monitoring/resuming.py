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
from typing import Any
from typing import NamedTuple

from tf_compat_lossscale.monitoring import rows
from tf_compat_lossscale.monitoring.observations import State

_COUNTS = ("step", rows.SKIPPED)
_OPTIONAL_COUNTS = (rows.GLOBAL_STEP, rows.GOOD_STEPS)


class Line(NamedTuple):
  """A line of a log.

  Attributes:
    end: The position after the line, in bytes.
    entries: The object of the line.
  """

  end: int
  entries: dict[str, Any]


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
    ahead = _count_ahead(line.entries, state, alone)
    step = line.entries["step"]
    if ahead is not None and (limit is None or step + ahead < limit):
      return _make_place(line, ahead)
    limit = step
  return None


def _count_ahead(
  entries: dict[str, Any], state: State, alone: bool
) -> int | None:
  """Returns how many steps after a line a state is; None if it does not fit."""
  skipped = entries[rows.SKIPPED]
  if state.skipped_steps not in (None, skipped):
    return None
  if entries[rows.SCALE] != state.scale:
    return None
  by_global_step = _subtract(state.global_step, entries.get(rows.GLOBAL_STEP))
  by_good_steps = _subtract(state.good_steps, entries.get(rows.GOOD_STEPS))
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
    ahead = _subtract(global_step, line.entries.get(rows.GLOBAL_STEP))
    if global_step is None or (ahead is not None and ahead >= 0):
      return _make_place(line, ahead or 0)
  return None


def _make_place(line: Line, ahead: int) -> Place:
  """Returns the place some steps after a line."""
  skipped = line.entries[rows.SKIPPED]
  return Place(line.end, line.entries["step"] + ahead, skipped)


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
      entries = _parse(text)
      if entries is not None:
        yield Line(end, entries)
    end = begin


def _parse(text: bytes) -> dict[str, Any] | None:
  """Returns the object of a line; None if the line is none of a log."""
  try:
    entries = json.loads(text)
    scale = float(entries[rows.SCALE])
  except (ValueError, TypeError, KeyError, RecursionError):
    return None
  counts = [entries.get(key) for key in _COUNTS]
  optional = [entries.get(key, 0) for key in _OPTIONAL_COUNTS]
  is_whole = all(isinstance(x, int) and x >= 0 for x in [*counts, *optional])
  return entries | {rows.SCALE: scale} if is_whole else None
