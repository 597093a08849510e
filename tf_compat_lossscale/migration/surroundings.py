# SPDX-License-Identifier: Apache-2.0
"""Finds the folder of the project that a file or a folder belongs to."""

from __future__ import annotations

from collections.abc import Iterator
import itertools
import os
import sys

from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import outlines
from tf_compat_lossscale.migration import trees

# A project's modules do not lie deeper, and folders with more files are none.
_DEEPEST = 8
_MOST_FILES = 500
# A folder without a marker that holds more programs, at any depth, holds many
# projects, such as those in /tmp.
_MOST_PROGRAMS = 4000


def find_root(path: str) -> str:
  """Returns the folder that holds the project of a file or of a folder.

  It is that of `trees.find_root`. If no folder around the path has a marker, it
  is the outermost one that belongs to the path's own: its files import the
  folder below, or are imported from there. A folder of very many programs
  belongs to none.

  Args:
    path: The absolute path. A folder's own is itself, a file's is that which
      the file is in.
  """
  files = [] if os.path.isdir(path) else [path]
  root = own = os.path.dirname(path) if files else path
  found = trees.find_root(os.path.join(own, ""))
  if trees.has_marker(found):
    return found
  names = _list_names([*files, *_list_python(own)])
  for _ in range(_DEEPEST):
    outer = next(_list_outer(root, own, names), None)
    if outer is None or _has_many_programs(outer):
      break
    root = outer
    names = _list_names(_list_python(root))
  return root


def _list_outer(root: str, own: str, names: set[str]) -> Iterator[str]:
  """Yields the folders around a folder that belong to the same project.

  Args:
    root: The folder.
    own: The folder that the user gives, or that of the file.
    names: The first parts of what the files in `root` import.
  """
  below = root
  for folder in trees.list_around(root):
    if folder == os.path.expanduser("~") or os.path.dirname(folder) == folder:
      return
    if folder == root:
      continue
    is_package = os.path.isfile(os.path.join(below, "__init__.py"))
    if (
      is_package
      or _is_imported(below)
      or any(_is_module(folder, n) and not _is_module(own, n) for n in names)
    ):
      yield folder
    below = folder


def _has_many_programs(folder: str) -> bool:
  """Returns whether a folder holds more than `_MOST_PROGRAMS`."""
  programs = trees.list_files(folder)
  return any(True for _ in itertools.islice(programs, _MOST_PROGRAMS, None))


def _is_imported(folder: str) -> bool:
  """Returns whether files import modules from a folder beside them.

  The files may also be in other folders beside it that have no module of that
  name themselves. Of very many files in these, the first are read.
  """
  around, name = os.path.split(folder)
  if name in _list_names(_list_python(around), name):
    return True
  places = (
    os.path.join(around, beside)
    for beside in _list_names_in(around)
    if beside != name and not beside.startswith(".")
  )
  paths = (
    path
    for place in itertools.islice(places, _MOST_FILES)
    if not _is_module(place, name)
    for path in _list_python(place)
  )
  few = list(itertools.islice(paths, _MOST_FILES))
  return name in _list_names(few, name)


def _is_module(folder: str, name: str) -> bool:
  """Returns whether a folder has a module, or a folder of modules."""
  place = os.path.join(folder, name)
  return os.path.isfile(f"{place}.py") or bool(_list_python(place))


def _list_python(folder: str) -> list[str]:
  """Returns the Python files and notebooks right in a folder.

  A folder with very many of them counts as one without.
  """
  found = [
    path
    for name in _list_names_in(folder)
    if name.endswith((".py", ".ipynb"))
    and os.path.isfile(path := os.path.join(folder, name))
  ]
  return found if len(found) <= _MOST_FILES else []


def _list_names_in(folder: str) -> list[str]:
  """Returns the names in a folder; none if it cannot be read."""
  try:
    return sorted(os.listdir(folder))
  except OSError:
    return []


def _list_names(paths: list[str], wanted: str = "") -> set[str]:
  """Returns the first parts of the modules that files import.

  Args:
    paths: The files.
    wanted: A name that is looked for: files without it are skipped.
  """
  found = set[str]()
  for path in paths:
    try:
      data = documents.load(path)
    except documents.DocumentError:
      continue
    if os.fsencode(wanted) in data:
      imports = outlines.read(path, data).imports
      found |= {name.partition(".")[0] for name in imports}
  return {n for n in found if n and n not in sys.stdlib_module_names}
