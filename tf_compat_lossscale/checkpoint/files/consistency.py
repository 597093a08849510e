"""Values of one checkpoint, though another process may overwrite it."""

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
# Seconds to wait for the index when only the data may have been written yet.
_PATIENCE = 0.25
_RECENT = 2.0


def consistently(
  prefix: str, attempt: Callable[[bundles.Bundle], _T], tries: int = TRIES
) -> _T:
  """Reads a checkpoint again for as long as it changes meanwhile.

  Whoever overwrites a checkpoint replaces its files one after the other. What
  is read then may be of two checkpoints, or seem damaged.

  Args:
    prefix: The checkpoint, without '.index'.
    attempt: Reads what is open. It must tolerate being called again.
    tries: How often at most it is called.

  Returns:
    What `attempt` returns.

  Raises:
    CheckpointError: The checkpoint is missing or damaged, or it was overwritten
      during every try.
    Exception: What `attempt` raises while the checkpoint stays as it is.
  """
  last: Exception | None = None
  for number in range(tries):
    if number:
      time.sleep(_PAUSE * 2 ** (number - 1))
    stamps = _stamps(prefix)
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
    f"read it{detail}; restore one that is not written any more, or a copy"
  ) from last


def _stamps(prefix: str) -> _Stamps:
  """Those of all files of a checkpoint that there are."""
  stamps: _Stamps = {}
  for path in (prefix + ".index", *bundles.data_files(prefix)):
    try:
      stamps[path] = bundles.read_stamp(path)
    except OSError:
      continue  # Missing, or just gone.
  return stamps


def _will_differ(prefix: str, stamps: _Stamps) -> bool:
  """Whether files have changed, or do so at once if they look unfinished."""
  end = time.monotonic() + _PATIENCE
  while True:
    if _stamps(prefix) != stamps:
      return True
    if not _looks_unfinished(prefix, stamps) or time.monotonic() > end:
      return False
    time.sleep(_PAUSE)


def _looks_unfinished(prefix: str, stamps: _Stamps) -> bool:
  """Whether a process may be about to write the index, which comes last."""
  times = {path: stamp.time_ns for path, stamp in stamps.items()}
  newest = max(times.values(), default=0)
  index = times.get(prefix + ".index", 0)
  return newest > index or time.time() - newest / 1e9 < _RECENT
