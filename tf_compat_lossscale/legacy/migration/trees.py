# SPDX-License-Identifier: Apache-2.0
"""Lists the files in trees, and groups them into projects.

A project is a folder with entry points of its own. Files that import each other
belong together, whatever their folders are.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import os
from typing import NamedTuple

from tf_compat_lossscale.legacy import programs
from tf_compat_lossscale.legacy.migration import documents
from tf_compat_lossscale.legacy.migration import outlines

_SKIPPED = ("__pycache__", "node_modules", "site-packages")
_SUFFIXES = (".py", ".pyw", ".ipynb")
# A folder with one of these is the root of a project.
_MARKERS = (".git", ".hg", "pyproject.toml", "setup.py", "setup.cfg")
# Folders from which programs import by other means than their place.
_ROOTS = ("src", "lib", "python")


class Group(NamedTuple):
  """The files of a project.

  Attributes:
    folder: The project's folder.
    files: The outlines of its files.
    imported: The paths of the files that other files of the tree import.
  """

  folder: str
  files: tuple[outlines.Outline, ...]
  imported: frozenset[str]


def list_files(
  path: str, is_excluded: Callable[[str], bool] = lambda path: False
) -> Iterator[str]:
  """Yields a file itself, or the Python files and notebooks in a folder.

  Args:
    path: A file or a folder. Hidden folders in it, virtual environments and
      installed packages are left out. Links to folders are not followed.
    is_excluded: A function that tells which paths below `path` to leave out.
  """
  if not os.path.isdir(path):
    yield path
    return
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
      is_python = name.endswith(_SUFFIXES) or (
        "." not in name and _is_script(file)
      )
      if is_python and not is_excluded(file):
        yield file


def _is_script(path: str) -> bool:
  """Returns whether a file without a suffix is a script for Python."""
  try:
    if not os.path.isfile(path):
      return False
    with open(path, "rb") as file:
      return documents.is_script(file.read(80))
  except OSError:
    return False


def find_root(path: str) -> str:
  """Returns the folder that holds the project of a file: that of a marker.

  Without a marker in the folders around the file, this is its own folder. A
  home folder that is a repository holds much more than a project.
  """
  own = folder = os.path.dirname(path)
  while folder != os.path.expanduser("~"):
    if any(os.path.exists(os.path.join(folder, name)) for name in _MARKERS):
      return folder
    parent = os.path.dirname(folder)
    if parent == folder:
      break
    folder = parent
  return own


def list_roots(folder: str) -> list[str]:
  """Returns the folders from which programs in a folder import: it is first."""
  return [folder, *(os.path.join(folder, root) for root in _ROOTS)]


def group(files: Iterable[outlines.Outline]) -> list[Group]:
  """Groups files into projects.

  Returns:
    The projects, by folder.
  """
  known = {outline.path: outline for outline in files}
  modules = _Modules(known)
  imports = {
    path: set(modules.find_imported(outline)) for path, outline in known.items()
  }
  imported = frozenset(path for paths in imports.values() for path in paths)
  parts = _join(_find_components(imports), known)
  return [
    Group(folder, tuple(known[path] for path in sorted(paths)), imported)
    for folder, paths in sorted(parts.items())
  ]


class _Modules:
  """The modules that known files are, by the folders that imports start from.

  A program may import from its own folder and from the folders around it.
  """

  def __init__(self, known: Iterable[str]):
    self._known = frozenset(known)
    # Folder -> the first parts of the names that an import finds in it.
    self._names: dict[str, set[str]] = {}
    self._places: dict[str, list[str]] = {}
    for path in self._known:
      folder, name = os.path.split(path)
      self._names.setdefault(folder, set()).add(os.path.splitext(name)[0])
      while name := os.path.basename(folder):
        folder = os.path.dirname(folder)
        names = self._names.setdefault(folder, set())
        if name in names:
          break
        names.add(name)

  def find_imported(self, outline: outlines.Outline) -> Iterator[str]:
    """Yields the known files that a file imports."""
    folder = os.path.dirname(outline.path)
    for name in outline.imports:
      dots = len(name) - len(name.lstrip("."))
      parts = name[dots:].split(".") if name[dots:] else []
      if dots:
        base = os.path.abspath(os.path.join(folder, *[".."] * (dots - 1)))
        found = self._list_files(base, parts, is_relative=True)
      else:
        found = self._find_absolute(folder, parts)
      yield from (path for path in found if path != outline.path)

  def _find_absolute(self, folder: str, parts: Sequence[str]) -> list[str]:
    """Returns the files that an absolute import runs."""
    for place in self._list_places(folder):
      if parts[0] in self._names.get(place, ()):
        found = self._list_files(place, parts, is_relative=False)
        if found:
          return found
    return []

  def _list_places(self, folder: str) -> list[str]:
    """Returns the folders from which a file in a folder may import."""
    if folder not in self._places:
      places = []
      around = folder
      while True:
        places += list_roots(around)
        parent = os.path.dirname(around)
        if parent == around:
          break
        around = parent
      self._places[folder] = [place for place in places if place in self._names]
    return self._places[folder]

  def _list_files(
    self, place: str, parts: Sequence[str], is_relative: bool
  ) -> list[str]:
    """Returns the files that the import of a module from a folder runs."""
    paths = programs.list_candidates(place, parts, is_relative)
    return [path for path in paths if path in self._known]


def _find_components(imports: Mapping[str, set[str]]) -> list[set[str]]:
  """Returns the sets of files that are connected by imports."""
  neighbors: dict[str, set[str]] = {path: set() for path in imports}
  for path, others in imports.items():
    for other in others:
      neighbors[path].add(other)
      neighbors[other].add(path)
  components, seen = [], set[str]()
  for path in imports:
    if path in seen:
      continue
    component, waiting = set[str](), [path]
    while waiting:
      each = waiting.pop()
      if each not in component:
        component.add(each)
        waiting += neighbors[each]
    seen |= component
    components.append(component)
  return components


def _join(
  components: Iterable[set[str]], known: Mapping[str, outlines.Outline]
) -> dict[str, set[str]]:
  """Joins components whose folders belong together; returns them by folder.

  A component lies in another one's project if that one has files in the same
  folder or below, or if nothing in it starts a program.
  """
  projects: dict[str, set[str]] = {}
  ordered = sorted(
    components, key=lambda paths: (len(_find_common(paths)), -len(paths))
  )
  for paths in ordered:
    folder = _find_common(paths)
    starts = any(known[path].starts for path in paths)
    home = _find_home(folder, starts, projects)
    projects.setdefault(home or folder, set()).update(paths)
  return projects


def _find_home(
  folder: str, starts: bool, projects: Mapping[str, set[str]]
) -> str | None:
  """Returns the folder of the project around a component, if there is one."""
  home = folder
  while True:
    if home in projects:
      below = os.path.join(folder, "")
      if not starts or any(path.startswith(below) for path in projects[home]):
        return home
    parent = os.path.dirname(home)
    if parent == home:
      return None
    home = parent


def _find_common(paths: Iterable[str]) -> str:
  """Returns the folder that holds all paths."""
  return os.path.commonpath([os.path.dirname(path) for path in paths])
