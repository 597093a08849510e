# SPDX-License-Identifier: Apache-2.0
"""Files and folders that `scan` and `migrate` leave out."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import fnmatch
import os
import re


def make_absolute(patterns: Sequence[str]) -> tuple[str, ...]:
  """Returns patterns that mean the same from every working directory.

  Args:
    patterns: Patterns of `fnmatch`. One without a slash fits the name of a file
      or folder anywhere; another one fits a path relative to the working
      directory.
  """
  return tuple(
    os.path.abspath(pattern) if "/" in pattern else pattern
    for pattern in (pattern.rstrip("/") or "/" for pattern in patterns)
  )


def make_matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
  """Returns a function that returns whether a path is excluded.

  The function looks at a file or a folder alone, not at the folders above: a
  walk through a tree does not enter a folder that is excluded.

  Args:
    patterns: What `make_absolute` returns.
  """
  names = _compile(p for p in patterns if "/" not in p)
  paths = _compile(p for p in patterns if "/" in p)

  def is_excluded(path: str) -> bool:
    return bool(
      (names and names.match(os.path.basename(os.path.normpath(path))))
      or (paths and paths.match(os.path.abspath(path)))
    )

  return is_excluded


def _compile(patterns: Iterable[str]) -> re.Pattern[str] | None:
  """Returns an expression that fits what any pattern fits; None for none."""
  parts = [fnmatch.translate(pattern) for pattern in patterns]
  return re.compile("|".join(parts)) if parts else None
