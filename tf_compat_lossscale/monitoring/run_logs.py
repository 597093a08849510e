# SPDX-License-Identifier: Apache-2.0
"""Finds and reads the log of a run's loss scale, once or again and again."""

from __future__ import annotations

import os

from tf_compat_lossscale.monitoring import event_files
from tf_compat_lossscale.monitoring import event_rows
from tf_compat_lossscale.monitoring import json_rows
from tf_compat_lossscale.monitoring import phrases
from tf_compat_lossscale.monitoring.rows import LogError
from tf_compat_lossscale.monitoring.rows import MissingLogError
from tf_compat_lossscale.monitoring.rows import NAME
from tf_compat_lossscale.monitoring.rows import RunLog
from tf_compat_lossscale.monitoring.rows import SCALE

_EXPECTED = (
  f"expected {NAME} or {event_files.PREFIX}*, which a run writes "
  "with monitoring.LossScaleHook(optimizer, output_dir=...)"
)
_MOST_NAMES = 5
_MOST_FOLDERS = 10_000  # Below a path that is searched.


def read_run(path: str | os.PathLike[str]) -> RunLog:
  """Reads the log of a run.

  `loss_scale.jsonl` is read if there is one, else TensorBoard's event files.

  Args:
    path: The `output_dir` of a hook, or a file in it.

  Returns:
    The log. It has no rows if the run has not written any yet.

  Raises:
    LogError: There is no log, or it is damaged; the message says where.
    OSError: A file cannot be read.
  """
  follower = Follower(path)
  follower.update(finish=True)
  return follower.log


class Follower:
  """A reader of a log that grows.

  Attributes:
    log: The log so far.
  """

  def __init__(self, path: str | os.PathLike[str]) -> None:
    """Creates a reader of a folder or a file, which need not exist yet."""
    self._path = os.fspath(path)
    self.log = RunLog(self._path, ())
    self._readers: dict[str, json_rows.JsonReader | event_rows.EventReader] = {}

  def update(self, finish: bool = False) -> bool:
    """Reads what is new, and returns whether there was anything.

    Args:
      finish: Whether no more will come. Then a last line without a line feed
        is read, too.

    Raises:
      LogError: There is no log, or it is damaged; `MissingLogError` if a log
        may come later.
      OSError: A file cannot be read.
    """
    source = _find_source(self._path)
    reader = self._readers.get(source)
    if reader is None:
      is_json = not os.path.isdir(source) and not event_files.is_event_file(
        source
      )
      kind = json_rows.JsonReader if is_json else event_rows.EventReader
      # Another file may take the place of the one before.
      reader = kind(source)
      self._readers = {source: reader}
    changed = reader.update()
    if isinstance(reader, json_rows.JsonReader):
      if finish:
        reader.finish()
    elif not reader.rows:
      raise MissingLogError(_describe_tags(source, reader.other_tags))
    if changed or not self.log.rows:
      self.log = RunLog(
        source, tuple(reader.rows), reader.restarts, reader.config
      )
    return changed


def is_log_file(path: str | os.PathLike[str]) -> bool:
  """Returns whether a path is that of a file whose name is that of a log."""
  path = os.fspath(path)
  return os.path.isfile(path) and (
    path.endswith(".jsonl") or event_files.is_event_file(path)
  )


def find_runs(path: str | os.PathLike[str]) -> list[str]:
  """Finds the logs of a path, and of the folders below, as TensorBoard does.

  A folder with `loss_scale.jsonl` has one run, and is not searched further. If
  no folder has such a file, TensorBoard's event files count that have the loss
  scale. Folders whose names begin with a dot are left out.

  Args:
    path: The `output_dir` of a hook, a file in it, or a folder above.

  Returns:
    What `read_run` takes: a path for each run, sorted. The path itself, if
    there is no log: `read_run` then says what is missing.

  Raises:
    LogError: There are too many folders to search.
    OSError: The folder cannot be read.
  """
  path = os.fspath(path)
  if not os.path.isdir(path) or NAME in os.listdir(path):
    return [path]
  with_lines, with_events = [], []
  for count, (folder, folders, files) in enumerate(os.walk(path), 1):
    if count > _MOST_FOLDERS:
      raise LogError(
        f"{path}: there are more than {_MOST_FOLDERS} folders in it: name the "
        "folder of a run"
      )
    folders[:] = sorted(name for name in folders if not name.startswith("."))
    if NAME in files:
      folders.clear()
      with_lines.append(folder)
    elif any(event_files.is_event_file(name) for name in files):
      with_events.append(folder)
  if with_lines:
    return sorted(with_lines)
  if len(with_events) > 1:
    with_events = [x for x in with_events if _has_scale(x)] or with_events
  return sorted(with_events) or [path]


def _has_scale(folder: str) -> bool:
  """Returns whether the event files of a folder have the loss scale."""
  reader = event_rows.EventReader(folder)
  try:
    reader.update()
  except LogError:
    return True  # The error is for the user.
  return bool(reader.rows)


def _find_source(path: str) -> str:
  """Returns the file to read, or a folder with event files.

  Raises:
    LogError: There is neither.
  """
  if not path:
    raise LogError("'' is no path")
  if not os.path.isdir(path):
    if not os.path.lexists(path):
      raise MissingLogError(f"{path}: there is no such file or folder")
    if not os.path.isfile(path):
      raise LogError(f"{path}: this is neither a file nor a folder")
    return path
  names = sorted(os.listdir(path))
  if NAME in names:
    return os.path.join(path, NAME)
  if any(event_files.is_event_file(name) for name in names):
    return path
  if not names:
    raise MissingLogError(f"{path}: the folder is empty: {_EXPECTED}")
  for name in names:
    if os.path.exists(os.path.join(path, name, NAME)):
      raise MissingLogError(
        f"{path}: there is no log in this folder, but in "
        f"{os.path.join(path, name)}"
      )
  raise MissingLogError(
    f"{path}: there is no log, but {phrases.list_some(names, _MOST_NAMES)}: "
    f"{_EXPECTED}"
  )


def _describe_tags(source: str, tags: set[str]) -> str:
  """Returns that event files have no loss scale, and what they have."""
  found = phrases.list_some(sorted(tags), _MOST_NAMES) or "no scalars at all"
  return (
    f"{source}: there is no scalar {SCALE} in the event files, "
    f"but {found}; a run writes it with monitoring.LossScaleHook(optimizer, "
    "output_dir=...)"
  )
