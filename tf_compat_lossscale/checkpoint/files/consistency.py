# SPDX-License-Identifier: Apache-2.0
"""Reads checkpoints that another process may overwrite meanwhile."""

from __future__ import annotations

from collections.abc import Callable
import time
from typing import TypeVar

from tf_compat_lossscale.checkpoint.files import bundle as bundles
from tf_compat_lossscale.checkpoint.files import opening
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)

_TRIES = 5  # The number of tries after which reading fails.
_T = TypeVar("_T")
_Stamps = dict[str, opening.Stamp]
_PAUSE = 0.01  # Seconds before the second try; doubled for each that follows.
# A process may have written the data files but not yet the index. We wait for
# `_PATIENCE` seconds if a file is younger than `_RECENT` seconds.
_PATIENCE = 0.25
_RECENT = 2.0
# The same if the data files are younger than the index, and not only recent.
_PATIENCE_FOR_INDEX = 1.0


def read_consistently(
  find: Callable[[], str],
  attempt: Callable[[bundles.Bundle], _T],
) -> _T:
  """Reads a checkpoint, again if its files change meanwhile.

  A process that overwrites a checkpoint replaces its files one after the other.
  A reader may then get tensors of both checkpoints, or an error.

  Args:
    find: Returns the checkpoint, without '.index'. It is called for each try,
      since the latest checkpoint of a folder may change, too.
    attempt: Called with the open checkpoint, possibly several times.

  Returns:
    The result of `attempt`.

  Raises:
    CheckpointError: The checkpoint is missing or damaged, or it was overwritten
      during every try.
    Exception: `attempt` raised it, and the checkpoint did not change.
  """
  last: Exception | None = None
  for number in range(_TRIES):
    if number:
      time.sleep(_PAUSE * 2 ** (number - 1))
    prefix, stamps = "", {}
    try:
      prefix = find()
      stamps = _read_stamps(prefix)
      bundle = bundles.Bundle(prefix)
      result = attempt(bundle)
    except Exception as error:
      if not _will_differ(find, prefix, stamps):
        raise
      last = error
    else:
      last = None
      if bundle.is_current():
        return result
  detail = f" (at last: {str(last).splitlines()[0]})" if str(last or "") else ""
  raise CheckpointError(
    f"{prefix}: another process overwrote it during each of {_TRIES} tries to "
    f"read it{detail}; take a checkpoint that no process writes any more, or a "
    "copy"
  ) from last


def _read_stamps(prefix: str) -> _Stamps:
  """Returns the stamps of all files that a checkpoint has."""
  stamps: _Stamps = {}
  for path in (prefix + ".index", *bundles.list_data_files(prefix)):
    try:
      stamps[path] = opening.read_stamp(path)
    except OSError:
      continue  # There is no index, or another process just removed the file.
  return stamps


def _will_differ(find: Callable[[], str], prefix: str, stamps: _Stamps) -> bool:
  """Returns whether files have changed, or will if they look unfinished.

  Args:
    find: Returns the checkpoint.
    prefix: What `find` returned for the try that failed; '' if it failed.
    stamps: The stamps of the files then.
  """
  begin = time.monotonic()
  while True:
    try:
      now = find()
    except CheckpointError:
      now = ""
    if now != prefix or _read_stamps(prefix) != stamps:
      return True
    if not prefix or time.monotonic() > begin + _get_patience(prefix, stamps):
      return False
    time.sleep(_PAUSE)


def _get_patience(prefix: str, stamps: _Stamps) -> float:
  """Returns for how many seconds a process may be about to write the index."""
  times = {path: stamp.time_ns for path, stamp in stamps.items()}
  newest = max(times.values(), default=0)
  is_recent = time.time() - newest / 1e9 < _RECENT
  index = prefix + ".index"
  if newest > times.get(index, 0):
    return _PATIENCE_FOR_INDEX if is_recent else _PATIENCE
  return _PATIENCE if is_recent else 0.0
