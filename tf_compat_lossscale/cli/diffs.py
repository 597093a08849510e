# SPDX-License-Identifier: Apache-2.0
"""Differences between two texts of a file, for `patch` and for SARIF."""

from __future__ import annotations

from collections.abc import Iterator
import os
from typing import NamedTuple

_NO_NEWLINE = "\\ No newline at end of file\n"


class Replacement(NamedTuple):
  """A part of a text, and what replaces it.

  Attributes:
    start: The line and the column of the part, both counted from 1.
    end: The line and the column after it.
    text: The new text.
  """

  start: tuple[int, int]
  end: tuple[int, int]
  text: str


def make_diff(path: str, before: bytes, after: bytes) -> bytes:
  """Returns a unified diff that `patch` and `git apply` understand.

  The lines of the diff are the bytes of the file, whatever its encoding. As
  `patch` does, we take a line feed alone for the end of a line.
  """
  import difflib  # Slow to import.

  path = os.path.normpath(path).lstrip("/")
  name = os.fsencode(path).decode("latin-1")
  old, new = _split(before.decode("latin-1")), _split(after.decode("latin-1"))
  lines = []
  for line in difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"):
    lines.append(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}")
  return "".join(lines).encode("latin-1")


def find_replacements(before: str, after: str) -> Iterator[Replacement]:
  """Yields the replacements of whole lines that lead to another text."""
  import difflib  # Slow to import.

  old, new = _split(before), _split(after)
  first = 0  # difflib is slow on long texts, so the equal ends do not go there.
  while first < min(len(old), len(new)) and old[first] == new[first]:
    first += 1
  last = 0
  while (
    last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]
  ):
    last += 1
  matcher = difflib.SequenceMatcher(
    None,
    old[first : len(old) - last],
    new[first : len(new) - last],
    autojunk=False,
  )
  for tag, i, j, k, end in matcher.get_opcodes():
    if tag != "equal":
      yield Replacement(
        _find_start(old, first + i),
        _find_start(old, first + j),
        "".join(new[first + k : first + end]),
      )


def _split(text: str) -> list[str]:
  """Returns the lines of a text with their ends."""
  lines = text.split("\n")
  last = lines.pop()
  return [f"{line}\n" for line in lines] + ([last] if last else [])


def _find_start(lines: list[str], index: int) -> tuple[int, int]:
  """Returns the position where a line starts, or where the text ends."""
  if index == len(lines) and lines and not lines[-1].endswith("\n"):
    return index, len(lines[-1]) + 1
  return index + 1, 1
