# SPDX-License-Identifier: Apache-2.0
"""Lists the Python files and notebooks in folders."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import fnmatch
import os
import re
import stat

from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import notebooks

_SKIPPED = ("__pycache__", "node_modules", "site-packages")
_SUFFIXES = (".py", ".pyw", ".ipynb")
_SHEBANG = re.compile(rb"#![^\r\n]*\bi?python")


def list_files(paths: Sequence[str], exclude: Sequence[str]) -> list[str]:
  """Returns files, and the Python files and notebooks in folders.

  A file that has several names, by symbolic links, is returned once: by the
  first name that is no link, or else by the first.

  Args:
    paths: Files and folders. Hidden folders in them, virtual environments and
      installed packages are left out. Links to folders are not followed.
    exclude: Patterns of `fnmatch` for what to leave out. One without a slash
      fits the name of a file or folder anywhere; another one fits a path
      relative to the working folder.

  Raises:
    ScanError: A path does not exist, or has no Python file.
  """
  is_excluded = _make_matcher(exclude)
  found: dict[str, str] = {}
  for path in paths:
    if not os.path.lexists(path):
      raise findings.ScanError(f"{path!r} is not there")
    files = list(_walk(path, is_excluded)) if os.path.isdir(path) else [path]
    if not files:
      but = " that is not excluded" if exclude else ""
      raise findings.ScanError(
        f"no Python file (.py) or notebook (.ipynb){but} in {path!r}"
      )
    for file in files:
      real = os.path.realpath(file)
      if real not in found or (
        os.path.islink(found[real]) and not os.path.islink(file)
      ):
        found[real] = file
  return list(found.values())


def _walk(path: str, is_excluded: Callable[[str], bool]) -> Iterator[str]:
  """Yields the Python files and notebooks in a folder."""
  for folder, folders, files in os.walk(path):
    folders[:] = sorted(
      name
      for name in folders
      if not name.startswith(".")
      and name not in _SKIPPED
      and not is_excluded(os.path.join(folder, name))
      and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
    )
    for name in sorted(files):
      file = os.path.join(folder, name)
      is_program = name.endswith(_SUFFIXES) or _is_script(file)
      if is_program and not is_excluded(file):
        yield file


def _is_script(path: str) -> bool:
  """Returns whether a file without a suffix is a script for Python."""
  if "." in os.path.basename(path):
    return False
  try:
    if not stat.S_ISREG(os.stat(path).st_mode):
      return False  # To open a pipe may wait for ever.
    with open(path, "rb") as file:
      return _SHEBANG.match(file.read(80)) is not None
  except OSError:
    return False


def read(path: str, data: bytes | None = None) -> documents.Document:
  """Reads a Python source or a notebook.

  Args:
    path: The file; "-" is a source or a notebook from standard input.
    data: The file's bytes; by default, they are read.

  Raises:
    DocumentError: The file cannot be read, or is of another kind.
  """
  if data is None:
    data = documents.load(path)
  documents.check_text(path, data)
  name = path.lower()
  if name.endswith(".ipynb") or (path == "-" and notebooks.is_notebook(data)):
    return notebooks.Notebook(path, data)
  named = path == "-" or name.endswith(_SUFFIXES)
  if not named and not _SHEBANG.match(data):
    raise documents.DocumentError(
      f"{documents.show_path(path)}: neither Python (.py) nor a notebook "
      "(.ipynb)"
    )
  return documents.Document(path, data)


def _make_matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
  """Returns a function that returns whether a path is excluded.

  The function looks at a file or a folder alone, not at the folders above: a
  walk through a tree does not enter a folder that is excluded.
  """
  stripped = [pattern.rstrip("/") or "/" for pattern in patterns]
  names = _compile(each for each in stripped if "/" not in each)
  paths = _compile(os.path.abspath(each) for each in stripped if "/" in each)

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
