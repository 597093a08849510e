"""What is wrong with a file, or with what it was asked for."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
import difflib

MOST = 20  # So many problems are listed; more would not be read.


class CheckpointError(ValueError):
  """A checkpoint that is missing, damaged, or not what is needed.

  The message is one line: what it was, what was expected, and what to do.
  """


def misfit(path: str, problems: Sequence[str], count: int) -> CheckpointError:
  """The error for a checkpoint that does not fit what it is restored into.

  Args:
    path: The checkpoint.
    problems: The first `MOST` of them.
    count: How many there are.
  """
  more = count - len(problems)
  listed = [*problems, *([f"and {more} more"] if more else [])]
  return CheckpointError(
    f"{path}: it does not fit, and nothing was restored: {'; '.join(listed)}"
  )


def nearest(name: str, known: Iterable[str]) -> str:
  """A hint at what was meant, to be put behind a name."""
  close = difflib.get_close_matches(name, list(known), 3, 0.5)
  return f" (nearest: {', '.join(close)})" if close else ""
