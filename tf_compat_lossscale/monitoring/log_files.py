# SPDX-License-Identifier: Apache-2.0
"""Writes the rows of a run to files: JSON lines, and events for TensorBoard.

Training goes on whatever happens to the files: an error of the disk is logged
as a warning, once, and lines wait in memory until the disk takes them.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
import contextlib
import errno
import json
import os
import time
from typing import Any

from absl import logging

from tf_compat_lossscale._core import whole_files
from tf_compat_lossscale.monitoring import event_files
from tf_compat_lossscale.monitoring import resuming
from tf_compat_lossscale.monitoring.rows import encode
from tf_compat_lossscale.monitoring.rows import KEYS
from tf_compat_lossscale.monitoring.rows import NAME
from tf_compat_lossscale.monitoring.rows import Row
from tf_compat_lossscale.monitoring.rows import TAGS
from tf_compat_lossscale.monitoring.steps import State

try:
  import fcntl
except ImportError:  # Windows has no such module, and its files no locks.
  fcntl = None  # type: ignore[assignment]

# The most lines that wait for a full disk. A line may take some kilobytes.
_MOST_WAITING = 1000

# By path, the files of this process that were opened last.
_owners: dict[str, LogFiles] = {}


class LogFiles:
  """The files of one run in a folder.

  A folder has one writer. A process locks the file. Within a process, the last
  one that opens a folder gets it: a program that trains anew after an error may
  still hold the hook of its first training.
  """

  def __init__(self, folder: str | os.PathLike[str]) -> None:
    """Opens the files of a folder, and creates what is missing.

    If that fails, a warning says why, and nothing is written.

    Args:
      folder: The folder.
    """
    self._folder = os.path.realpath(os.fspath(folder))
    self._path = os.path.join(self._folder, NAME)
    self._lines: _Lines | None = None
    self._events: event_files.EventFile | None = None
    self._first = 1  # The first step of the session.
    self._outputs: list[_Output] = []
    self._has_failed = False
    self._reason = ""
    try:
      os.makedirs(self._folder, exist_ok=True)
      before = _owners.get(self._path)
      if before is not None:
        before.close(f"{self._path}: another hook of this process writes here")
      self._lines = _Lines(self._path)
      _owners[self._path] = self
    except OSError as error:
      _warn(self._path, error, "the loss scale is not written there")

  def resume(self, state: State, is_new: bool = False) -> resuming.Place | None:
    """Finds where a run goes on, and cuts what a killed run wrote beyond that.

    If the lines are of another run, they are kept in a file of another name.

    Args:
      state: The state of the run, as numbers.
      is_new: Whether the run has just begun.

    Returns:
      The place; None if the files cannot be written.
    """
    if self._lines is None:
      return None
    try:
      data = self._lines.read()
      place = None
      if not is_new:
        place = resuming.find_place(data, state)
      if place is None:
        skipped = state.skipped_steps or 0
        place = resuming.Place(0, (state.global_step or 0) + skipped, skipped)
        if data:
          _keep(self._path, data)
      self._lines.cut(place.end)
    except OSError as error:
      _warn(self._path, error, "the loss scale is not written there")
      self.close()
      return None
    self._first = place.step + 1
    self._outputs = [_Output(self._lines.write), _Output(self._write_event)]
    return place

  def write(self, row: Row) -> None:
    """Writes the line and the scalars of a row, after those that still wait."""
    if self._reason:
      logging.warning("%s; this hook writes no more.", self._reason)
      self._reason = ""
    for output in self._outputs:
      output.put(row)
    self._flush()

  def close(self, reason: str = "") -> None:
    """Closes the files.

    Args:
      reason: Logged as a warning if more is to be written.
    """
    self._flush()
    waiting = max((len(x.waiting) for x in self._outputs), default=0)
    if waiting:
      logging.warning("%s: %d lines could not be written.", self._path, waiting)
    self._outputs = []
    self._reason = reason
    if _owners.get(self._path) is self:
      del _owners[self._path]
    if self._lines is not None:
      self._lines.close()
      self._lines = None
    if self._events is not None:
      self._events.close()
      self._events = None

  def _flush(self) -> None:
    """Writes what waits; logs an error once until all can be written again."""
    errors = [output.flush() for output in self._outputs]
    error = next((x for x in errors if x is not None), None)
    if error is not None and not self._has_failed:
      path = os.fsdecode(error.filename or self._path)
      _warn(path, error, "lines wait until they can be written")
    elif error is None and self._has_failed:
      logging.info("%s: lines can be written again.", self._path)
    self._has_failed = error is not None

  def _write_event(self, row: Row) -> None:
    if self._events is None:
      self._events = _create_events(self._folder, self._first)
    # Writing to a deleted file raises no error.
    _check_exists(os.path.exists(self._events.path), self._events.path)
    found = ((tag, getattr(row, KEYS[tag].field)) for tag in TAGS)
    values = {tag: value for tag, value in found if value is not None}
    self._events.add_scalars(row.step, values, row.time or 0.0)


class _Lines:
  """A locked file of JSON lines, which ends with a whole line at any time."""

  def __init__(self, path: str) -> None:
    """Opens the file.

    Raises:
      OSError: The file cannot be opened, or another process has locked it.
    """
    self._path = path
    self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
      _lock(self._file, path)
    except OSError:
      os.close(self._file)
      raise
    self._size = 0

  def read(self) -> bytes:
    """Returns all bytes of the file."""
    os.lseek(self._file, 0, os.SEEK_SET)
    with os.fdopen(os.dup(self._file), "rb") as file:
      return file.read()

  def cut(self, size: int) -> None:
    """Drops all bytes from a position on; new lines go there."""
    os.ftruncate(self._file, size)
    self._size = size

  def write(self, row: Row) -> None:
    """Writes a line.

    Raises:
      OSError: The disk is full, or has another error.
    """
    data = json.dumps(encode(row), allow_nan=False).encode() + b"\n"
    _check_exists(os.fstat(self._file).st_nlink > 0, self._path)
    self._size = whole_files.append(self._file, self._size, data, self._path)

  def close(self) -> None:
    """Closes the file, which unlocks it."""
    os.close(self._file)


class _Output:
  """A file, and the lines that wait until the disk takes them.

  Attributes:
    waiting: The lines.
  """

  def __init__(self, write: Callable[[Row], None]) -> None:
    self._write = write
    self.waiting: collections.deque[Row] = collections.deque(
      maxlen=_MOST_WAITING
    )

  def put(self, row: Row) -> None:
    """Lets a line wait; of too many lines, the oldest is dropped."""
    self.waiting.append(row)

  def flush(self) -> OSError | None:
    """Writes what waits; returns what went wrong."""
    try:
      while self.waiting:
        self._write(self.waiting[0])
        self.waiting.popleft()
    except OSError as error:
      return error
    return None


def check_folder(value: Any) -> str | None:
  """Returns the folder that an argument `output_dir` names, or None.

  Raises:
    ValueError: `value` is no path of a local disk.
  """
  if value is None:
    return None
  is_path = isinstance(value, (str, os.PathLike))
  path = os.fspath(value) if is_path else None
  if not isinstance(path, str) or not path or "://" in path or "\0" in path:
    raise ValueError(
      "output_dir must be the path of a folder on a local disk or None, but "
      f"got {value!r}."
    )
  return path


def _create_events(folder: str, first: int) -> event_files.EventFile:
  """Creates an event file, for a session whose first step is `first`.

  Raises:
    OSError: The file cannot be created or written.
  """
  _check_exists(os.path.isdir(folder), folder)
  events = event_files.EventFile(folder)
  try:
    events.add_start(first, time.time())
  except OSError:
    events.close()
    os.unlink(events.path)
    raise
  return events


def _check_exists(exists: bool, path: str) -> None:
  """Raises an OSError if a file or folder was deleted during training."""
  if not exists:
    raise OSError(errno.ENOENT, "deleted during training", path)


def _lock(file: int, path: str) -> None:
  """Locks an open file.

  Raises:
    OSError: Another process has locked it.
  """
  if fcntl is None:
    return
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    raise OSError(
      errno.EBUSY,
      "another process writes here; give each writer a folder of its own",
      path,
    ) from None
  except OSError as error:
    logging.info("%s: the file system has no locks: %s", path, error)


def _keep(path: str, data: bytes) -> None:
  """Writes the lines of another run to a new file beside a file."""
  stem, ending = os.path.splitext(path)
  number = 1
  while os.path.lexists(other := f"{stem}.{number}{ending}"):
    number += 1
  try:
    with open(other, "xb") as file:
      file.write(data)
  except OSError:
    with contextlib.suppress(OSError):
      os.unlink(other)
    raise
  logging.warning(
    "%s has the lines of another run; they are in %s now.", path, other
  )


def _warn(path: str, error: OSError, effect: str) -> None:
  """Logs a warning about a file; training goes on."""
  logging.warning(
    "%s: %s: %s; training goes on.", path, error.strerror or error, effect
  )
