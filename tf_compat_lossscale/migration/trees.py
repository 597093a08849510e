# SPDX-License-Identifier: Apache-2.0
"""Lists the Python files and notebooks in folders."""

from __future__ import annotations

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
  patterns = [pattern.rstrip("/") or "/" for pattern in exclude]
  found: dict[str, str] = {}
  for path in paths:
    if not os.path.lexists(path):
      raise findings.ScanError(f"{path!r} is not there")
    files = list(_walk(path, patterns)) if os.path.isdir(path) else [path]
    if not files:
      but = " that is not excluded" if exclude else ""
      raise findings.ScanError(
        f"no Python file (.py) or notebook (.ipynb){but} in {path!r}"
      )
    for file in map(os.path.normpath, files) if path == "." else files:
      real = os.path.realpath(file)
      if real not in found or (
        os.path.islink(found[real]) and not os.path.islink(file)
      ):
        found[real] = file
  return list(found.values())


def _walk(path: str, exclude: Sequence[str]) -> Iterator[str]:
  for folder, folders, files in os.walk(path):
    folders[:] = sorted(
      name
      for name in folders
      if not name.startswith(".")
      and name not in _SKIPPED
      and not _is_excluded(os.path.join(folder, name), exclude)
      and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
    )
    for name in sorted(files):
      file = os.path.join(folder, name)
      is_program = name.endswith(_SUFFIXES) or _is_script(file)
      if is_program and not _is_excluded(file, exclude):
        yield file


def _is_excluded(path: str, exclude: Sequence[str]) -> bool:
  for pattern in exclude:
    if "/" in pattern:
      name, pattern = os.path.abspath(path), os.path.abspath(pattern)
    else:
      name = os.path.basename(os.path.normpath(path))
    if fnmatch.fnmatch(name, pattern):
      return True
  return False


def _is_script(path: str) -> bool:
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
  """Reads a Python source or a notebook; "-" is either, from standard input.

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
