# SPDX-License-Identifier: Apache-2.0
"""Opens files with Python code: sources and notebooks."""

from __future__ import annotations

import os
import re
import stat

from tf_compat_lossscale.migration import notebooks
from tf_compat_lossscale.migration import python_files
from tf_compat_lossscale.migration.document_base import Document as Document
from tf_compat_lossscale.migration.document_base import (
  DocumentError as DocumentError,
)
from tf_compat_lossscale.migration.document_base import show_path

_HEAD = 1 << 16
_SHEBANG = re.compile(rb"#![^\r\n]*\bi?python")


def read(path: str, data: bytes | None = None) -> Document:
  """Reads a Python source or a notebook.

  Args:
    path: The file; "-" is a source or a notebook from standard input.
    data: The file's bytes; by default, they are read.

  Raises:
    DocumentError: The file cannot be read, or is of another kind.
  """
  if data is None:
    data = load(path)
  _check_head(path, data)
  if _is_notebook(path) or (path == "-" and notebooks.is_notebook(data)):
    return notebooks.Notebook(path, data)
  return python_files.PythonFile(path, data)


def _is_python(path: str) -> bool:
  """Returns whether a name is that of a Python source."""
  return path.lower().endswith((".py", ".pyw"))


def _is_notebook(path: str) -> bool:
  """Returns whether a name is that of a notebook."""
  return path.lower().endswith(".ipynb")


def is_script(head: bytes) -> bool:
  """Returns whether a file that begins so is a script for Python."""
  return _SHEBANG.match(head) is not None


def _check_head(path: str, head: bytes) -> None:
  """Raises DocumentError if a file is of another kind, by its name and start.

  Binary files would pass an encoding such as Latin-1, but have NUL bytes.
  """
  named = _is_python(path) or _is_notebook(path) or path == "-"
  if not named and not is_script(head):
    raise DocumentError(
      f"{show_path(path)}: neither Python (.py) nor a notebook (.ipynb)"
    )
  if b"\0" in head:
    raise DocumentError(f"{show_path(path)}: a binary file, not text")


def load_start(path: str, count: int) -> bytes:
  """Returns the first bytes of a regular file; b"" if they cannot be read."""
  try:
    if not stat.S_ISREG(os.stat(path).st_mode):
      return b""  # To open a pipe may wait for ever.
    with open(path, "rb") as file:
      return file.read(count)
  except (OSError, ValueError):
    return b""


def load(path: str) -> bytes:
  """Returns the bytes of a source or a notebook, a regular file.

  To open a pipe may wait for ever, and a device such as /dev/zero has no end.

  Raises:
    DocumentError: The file cannot be read, or its start is of another kind.
  """
  try:
    mode = os.stat(path).st_mode
    if stat.S_ISREG(mode):
      with open(path, "rb") as file:
        head = file.read(_HEAD)
        _check_head(path, head)  # What is no text may be huge.
        return head + file.read()
    reason = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
  except FileNotFoundError:
    reason = "there is no such file"
    if os.path.islink(path):
      reason = "the link leads to nothing"
  except (OSError, MemoryError, ValueError) as error:
    reason = getattr(error, "strerror", None) or str(error) or "out of memory"
  raise DocumentError(f"{show_path(path)}: {reason}")
