# SPDX-License-Identifier: Apache-2.0
"""Reads checkpoints that another process may overwrite meanwhile."""

from __future__ import annotations

from collections.abc import Callable
import time
from typing import TypeVar

from tf_compat_lossscale.checkpoint.files import bundle as bundles
from tf_compat_lossscale.checkpoint.files.errors import CheckpointError

TRIES = 5
_T = TypeVar("_T")
_Stamps = dict[str, bundles.Stamp]
_PAUSE = 0.01  # Seconds before the second try; doubled for each that follows.
# A process may have written the data files but not yet the index. We wait for
# `_PATIENCE` seconds if a file is younger than `_RECENT` seconds.
_PATIENCE = 0.25
_RECENT = 2.0


def read_consistently(
  prefix: str, attempt: Callable[[bundles.Bundle], _T], tries: int = TRIES
) -> _T:
  """Reads a checkpoint, again if its files change meanwhile.

  A process that overwrites a checkpoint replaces its files one after the other.
  A reader may then get tensors of both checkpoints, or an error.

  Args:
    prefix: The checkpoint, without '.index'.
    attempt: Called with the open checkpoint, possibly several times.
    tries: The number of calls after which reading fails.

  Returns:
    The result of `attempt`.

  Raises:
    CheckpointError: The checkpoint is missing or damaged, or it was overwritten
      during every try.
    Exception: `attempt` raised it, and the checkpoint did not change.
  """
  last: Exception | None = None
  for number in range(tries):
    if number:
      time.sleep(_PAUSE * 2 ** (number - 1))
    stamps = _read_stamps(prefix)
    try:
      bundle = bundles.Bundle(prefix)
      result = attempt(bundle)
    except Exception as error:
      if not _will_differ(prefix, stamps):
        raise
      last = error
    else:
      last = None
      if bundle.is_current():
        return result
  detail = f" (at last: {str(last).splitlines()[0]})" if str(last or "") else ""
  raise CheckpointError(
    f"{prefix}: another process overwrote it during each of {tries} tries to "
    f"read it{detail}; restore a checkpoint that no process writes any more, "
    "or a copy"
  ) from last


def _read_stamps(prefix: str) -> _Stamps:
  """Returns the stamps of all files that a checkpoint has."""
  stamps: _Stamps = {}
  for path in (prefix + ".index", *bundles.list_data_files(prefix)):
    try:
      stamps[path] = bundles.read_stamp(path)
    except OSError:
      continue  # There is no index, or another process just removed the file.
  return stamps


def _will_differ(prefix: str, stamps: _Stamps) -> bool:
  """Returns whether files have changed, or will if they look unfinished."""
  end = time.monotonic() + _PATIENCE
  while True:
    if _read_stamps(prefix) != stamps:
      return True
    if not _looks_unfinished(prefix, stamps) or time.monotonic() > end:
      return False
    time.sleep(_PAUSE)


def _looks_unfinished(prefix: str, stamps: _Stamps) -> bool:
  """Returns whether a process may be about to write the index."""
  times = {path: stamp.time_ns for path, stamp in stamps.items()}
  newest = max(times.values(), default=0)
  index = times.get(prefix + ".index", 0)
  return newest > index or time.time() - newest / 1e9 < _RECENT
