# SPDX-License-Identifier: Apache-2.0
"""Edits old sources so that they use this package."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from tf_compat_lossscale.legacy import sources


def edit_source(source: sources.Source, keras_2: bool) -> tuple[bytes, bytes]:
  """Returns the text of a source before and after its edits.

  Args:
    source: The facts that `scan` read from the file.
    keras_2: Whether the program uses Keras, which must then be Keras 2.

  Returns:
    The file's bytes before and after. The edits keep comments, layout, encoding
    and line ends.

  Raises:
    ImportError: libcst is not installed.
  """
  try:
    from tf_compat_lossscale.legacy import rewriter
  except ImportError as error:
    if (error.name or "").partition(".")[0] != "libcst":
      raise
    raise ImportError(
      "editing sources needs libcst: pip install libcst", name="libcst"
    ) from None
  with open(source.path, "rb") as file:
    before = file.read()
  return before, rewriter.edit_text(before, source, keras_2)


def make_diff(path: str, before: bytes, after: bytes) -> str:
  """Returns a unified diff of two texts of a file."""
  import difflib  # Slow to import.

  encoding = "utf-8"
  match = re.match(rb"(?:.*\n)?.*coding[=:]\s*([-\w.]+)", before)
  if match:
    encoding = match[1].decode("ascii")
  old, new = (
    text.decode(encoding, "replace").splitlines(keepends=True)
    for text in (before, after)
  )
  name = path.lstrip("/")
  lines = []
  for line in difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"):
    lines.append(line)
    if not line.endswith("\n"):
      lines.append("\n\\ No newline at end of file\n")
  return "".join(lines)


def replace_file(path: str, data: bytes) -> None:
  """Replaces the content of a file; an error leaves the file unchanged.

  The file keeps its mode. If `path` is a link, the file it leads to changes.
  """
  import tempfile  # Slow to import.

  path = os.path.realpath(path)
  descriptor, temporary = tempfile.mkstemp(
    prefix=f".{os.path.basename(path)}.", dir=os.path.dirname(path)
  )
  try:
    with os.fdopen(descriptor, "wb") as file:
      file.write(data)
      file.flush()
      os.fsync(file.fileno())
    os.chmod(temporary, os.stat(path).st_mode & 0o7777)
    os.replace(temporary, path)
  except BaseException:
    os.unlink(temporary)
    raise
