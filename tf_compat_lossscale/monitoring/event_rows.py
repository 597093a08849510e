# SPDX-License-Identifier: Apache-2.0
"""Reads rows from the event files of a folder, as TensorBoard reads them."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import os
import types
from typing import Any

from tf_compat_lossscale.monitoring import event_files
from tf_compat_lossscale.monitoring.rows import GOOD_STEPS
from tf_compat_lossscale.monitoring.rows import LogError
from tf_compat_lossscale.monitoring.rows import Row
from tf_compat_lossscale.monitoring.rows import SCALE
from tf_compat_lossscale.monitoring.rows import SKIPPED
from tf_compat_lossscale.monitoring.rows import TAGS

# A step's scalars, by tag, and its time.
_Point = tuple[dict[str, float], float]


class EventReader:
  """A reader that goes on where it stopped.

  Attributes:
    other_tags: Tags in the files that are not of a loss scale.
    restarts: How many times the run was started again.
    config: Empty, since the files do not have it.
  """

  config: Mapping[str, Any] = types.MappingProxyType({})

  def __init__(self, path: str) -> None:
    """Creates a reader of an event file, or of all of a folder."""
    self._path = path
    self._forget()

  def update(self) -> bool:
    """Reads what is new, and returns whether there was anything.

    Raises:
      LogError: A file is damaged; the message names the file and the place.
      OSError: A file cannot be read.
    """
    paths = (
      event_files.list_files(self._path)
      if os.path.isdir(self._path)
      else [self._path]
    )
    ends = list(self._files.items())
    if any(not _has(path, file.end) for path, file in ends) or (
      # A new file that is not the last must be read before the files after it.
      paths[: len(ends)] != [path for path, _ in ends]
    ):
      self._forget()
    found = False
    for path in paths:
      file = self._files.setdefault(path, _File())
      found |= self._read(path, file)
    return found

  @property
  def rows(self) -> list[Row]:
    """The rows so far, in the order of their steps."""
    rows: list[Row] = []
    for step in sorted(self._points):
      scalars, time = self._points[step]
      if SCALE in scalars:
        rows.append(_make_row(step, scalars, time, rows))
    return rows

  def _forget(self) -> None:
    """Begins anew."""
    self.other_tags: set[str] = set()
    self.restarts = 0
    self._points: dict[int, _Point] = {}
    self._files: dict[str, _File] = {}

  def _read(self, path: str, file: _File) -> bool:
    """Reads what is new in a file, and returns whether there was anything."""
    found = False
    try:
      for event in event_files.read_events(path, file.end):
        file.end = event.end
        found = True
        if event.is_start:
          file.start = event.step
        ours = {tag: event.scalars[tag] for tag in TAGS if tag in event.scalars}
        if not ours:
          self.other_tags.update(event.scalars)
          continue
        # Other programs write event files into the folder, too: the sessions
        # that they start are not those of the loss scale.
        if file.start is not None:
          self._start(file.start)
          file.start = None
        scalars, _ = self._points.get(event.step, ({}, 0.0))
        self._points[event.step] = (scalars | ours, event.wall_time)
    except ValueError as error:
      raise LogError(str(error)) from None
    return found

  def _start(self, first: int) -> None:
    """Drops the steps that a new session does again."""
    self.restarts += bool(self._points)
    for step in [step for step in self._points if step >= first]:
      del self._points[step]


class _File:
  """What was read of a file.

  Attributes:
    end: The position after the last event.
    start: The step of a session that started since the last scalars, or None.
  """

  def __init__(self) -> None:
    self.end = 0
    self.start: int | None = None


def _has(path: str, size: int) -> bool:
  """Returns whether a file has at least so many bytes."""
  try:
    return os.path.getsize(path) >= size
  except FileNotFoundError:
    return False


def _make_row(
  step: int, scalars: dict[str, float], time: float, before: Sequence[Row]
) -> Row:
  """Returns the row of a step.

  Args:
    step: The step.
    scalars: Its scalars, by tag.
    time: Its time.
    before: The rows before.
  """
  counts = {}
  for tag in (GOOD_STEPS, SKIPPED):
    value = scalars.get(tag)
    # NaN and infinities are no counts.
    counts[tag] = (
      int(value) if value is not None and abs(value) < 2**63 else None
    )
  skipped = counts[SKIPPED]
  return Row(
    step,
    _find_applied(step, scalars[SCALE], skipped, before),
    scalars[SCALE],
    counts[GOOD_STEPS],
    skipped,
    time=time,
  )


def _find_applied(
  step: int, scale: float, skipped: int | None, before: Sequence[Row]
) -> bool | None:
  """Returns whether a step was applied; None if the scalars do not tell.

  Args:
    step: The step.
    scale: The scale after the step.
    skipped: How many steps were skipped up to this step, if known.
    before: The rows before.
  """
  if before and before[-1].skipped_total is not None and skipped is not None:
    # Each skipped step has a row, so the difference is 0 or 1.
    return skipped <= before[-1].skipped_total
  if skipped in (0, step) and not before:
    return skipped == 0
  if before and scale < before[-1].loss_scale:
    return False
  return None
