# SPDX-License-Identifier: Apache-2.0
"""Differences between two texts of a file, for `patch`."""

from __future__ import annotations

import os

_NO_NEWLINE = "\\ No newline at end of file\n"


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


def _split(text: str) -> list[str]:
  """Returns the lines of a text with their ends."""
  lines = text.split("\n")
  last = lines.pop()
  return [f"{line}\n" for line in lines] + ([last] if last else [])
