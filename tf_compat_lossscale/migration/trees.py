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
import functools
import os
import re
import sys
from typing import NamedTuple

from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import outlines
from tf_compat_lossscale.migration import settings
from tf_compat_lossscale.programs import program_modules
from tf_compat_lossscale.programs import scopes

_SKIPPED = ("__pycache__", "node_modules", "site-packages")
_SUFFIXES = (".py", ".pyw", ".ipynb")
# A folder with one of these, or with a setup.py, is the root of a project.
_MARKERS = (".git", ".hg", "pyproject.toml", "setup.cfg")
# A module of a program may have the name setup.py by chance.
_SETUP = re.compile(rb"setuptools|distutils|\bimport setup\b|\A\s*\Z")
# Folders from which programs import by other means than their place.
_ROOTS = ("src", "lib", "python")
# Folders of programs that import packages beside the folder.
_BESIDE = ("bin", "examples", "notebooks", "scripts", "test", "tests", "tools")


class Group(NamedTuple):
  """The files of a project.

  Attributes:
    folder: The project's folder.
    files: The outlines of its files.
    imported: Path -> the files of the tree that import the file.
    called: The files that console scripts import.
    roots: Folder -> the folders from which files in it import, besides those
      around it.
    packages: Package -> its folder, if that has another name.
    borrowed: Folders of other projects -> a module that a file here imports,
      and that only the other project has.
  """

  folder: str
  files: tuple[outlines.Outline, ...]
  imported: Mapping[str, frozenset[str]]
  called: frozenset[str] = frozenset()
  roots: Mapping[str, tuple[str, ...]] = {}
  packages: Mapping[str, str] = {}
  borrowed: Mapping[str, str] = {}


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
      if _is_program(file) and not is_excluded(file):
        yield file


def _is_program(path: str) -> bool:
  """Returns whether a file is Python or a notebook, by its name or start."""
  name = os.path.basename(path)
  if name.endswith(_SUFFIXES):
    return True
  return "." not in name and documents.is_script(documents.load_start(path, 80))


def find_root(path: str) -> str:
  """Returns the folder that holds the project of a file: that of a marker.

  Without a marker in the folders around the file, this is its own folder. The
  search ends below the home folder: a home folder that is a repository holds
  more than one project.
  """
  own = os.path.dirname(path)
  for folder in list_around(own):
    if folder == os.path.expanduser("~"):
      break
    if has_marker(folder):
      return folder
  return own


def has_marker(folder: str) -> bool:
  """Returns whether a folder is the root of a project by what is in it."""
  if any(os.path.exists(os.path.join(folder, name)) for name in _MARKERS):
    return True
  path = os.path.join(folder, "setup.py")
  return os.path.isfile(path) and bool(
    _SETUP.search(documents.load_start(path, 1 << 20))
  )


def list_roots(folder: str) -> list[str]:
  """Returns the folders from which programs in a folder import: it is first."""
  return [folder, *(os.path.join(folder, root) for root in _ROOTS)]


def group(files: Iterable[outlines.Outline]) -> list[Group]:
  """Groups files into projects.

  Args:
    files: The outlines of the files.

  Returns:
    The projects, by folder.
  """
  known = {outline.path: outline for outline in files}
  modules = _Modules(known)
  imports = modules.find_all_imported()
  imported: dict[str, set[str]] = {}
  for path, others in imports.items():
    for other in others:
      imported.setdefault(other, set()).add(path)
  called = modules.list_called()
  parts = _join(_find_components(imports), known)
  groups = [
    Group(
      folder,
      tuple(known[path] for path in sorted(paths)),
      {path: frozenset(imported[path]) for path in paths & imported.keys()},
      called & paths,
      modules.list_roots(paths),
      modules.list_packages(map(os.path.dirname, paths)),
    )
    for folder, paths in sorted(parts.items())
  ]
  owners = {o.path: i for i, each in enumerate(groups) for o in each.files}
  for i, each in enumerate(groups):
    borrowed = {
      groups[owners[path]].folder: module
      for outline in each.files
      for module, path in modules.find_elsewhere(outline)
      if owners[path] != i
    }
    groups[i] = each._replace(borrowed=borrowed)
  return groups


def _is_below(path: str, folder: str) -> bool:
  """Returns whether a path is in a folder, at any depth."""
  return path.startswith(os.path.join(folder, ""))


class _Modules:
  """The modules that known files are, by the folders that imports start from.

  A program may import from its own folder, from the folders around it, and from
  those that its project's `setup.py` or `sys.path` names.
  """

  def __init__(self, known: Mapping[str, outlines.Outline]):
    self._known = known
    # Folder -> the first parts of the names that an import finds in it.
    self._names: dict[str, set[str]] = {}
    self._places: dict[str, list[str]] = {}
    # Folder -> the folders from which files in it import besides.
    self._roots: dict[str, dict[str, None]] = {}
    # Folder -> what its project's settings tell.
    self._settings: dict[str, settings.Settings] = {}
    self._has_packages = False  # Whether settings name packages.
    # Folder of a file -> the folders found by the name alone.
    self._guessed: dict[str, dict[str, None]] = {}
    for path, outline in known.items():
      folder, name = os.path.split(path)
      self._names.setdefault(folder, set()).add(os.path.splitext(name)[0])
      if outline.folders:
        self._roots.setdefault(folder, {}).update(
          dict.fromkeys(outline.folders)
        )
      while name := os.path.basename(folder):
        folder = os.path.dirname(folder)
        names = self._names.setdefault(folder, set())
        if name in names:
          break
        names.add(name)
    self.find_root = functools.lru_cache(None)(
      lambda folder: find_root(os.path.join(folder, "x"))
    )
    for folder in {os.path.dirname(path) for path in known}:
      root = self.find_root(folder)
      for around in list_around(folder):
        self._read_settings(around)
        if around == root:
          break

  def _read_settings(self, folder: str) -> None:
    """Reads the settings of a folder, once."""
    if folder in self._settings:
      return
    self._settings[folder] = found = settings.read(folder)
    self._has_packages |= any(package for package, _ in found.packages)
    if found.packages:
      roots = {place: None for package, place in found.packages if not package}
      self._roots.setdefault(folder, {}).update(roots)

  def find_all_imported(self) -> dict[str, set[str]]:
    """Returns path -> the known files that the file imports."""
    found: dict[str, set[str]] = {}
    count = -1
    # If a module was found by its name alone, in some folder, then all files
    # beside the one that imports it may import from that folder.
    while count != (count := sum(map(len, self._guessed.values()))):
      for folder, places in self._guessed.items():
        below = {p: None for p in places if _is_below(p, folder)}
        self._roots.setdefault(folder, {}).update(below)
      self._places.clear()
      found = {
        path: set(self.find_imported(outline))
        for path, outline in self._known.items()
      }
    return found

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

  def list_called(self) -> frozenset[str]:
    """Returns the files of the modules that console scripts call."""
    return frozenset(
      path
      for folder, found in self._settings.items()
      for module in found.called
      for path in self._find_absolute(folder, module.split("."))[-1:]
    )

  def list_roots(self, paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Returns folder of a file -> the folders that it imports from besides."""
    found = {}
    for folder in {os.path.dirname(path) for path in paths}:
      roots = dict.fromkeys(
        root
        for around in list_around(folder)
        for root in self._roots.get(around, ())
      )
      roots |= self._guessed.get(folder, {})
      if roots:
        found[folder] = tuple(roots)
    return found

  def list_packages(self, folders: Iterable[str]) -> dict[str, str]:
    """Returns package -> its folder, of those that files in folders import."""
    if not self._has_packages:
      return {}
    around = {each for folder in folders for each in list_around(folder)}
    return {
      package: place
      for folder in sorted(self._settings.keys() & around)
      for package, place in self._settings[folder].packages
      if package
    }

  def _find_absolute(self, folder: str, parts: Sequence[str]) -> list[str]:
    """Returns the files that an absolute import runs."""
    for place in self._list_places(folder):
      if parts[0] in self._names.get(place, ()):
        found = self._list_files(place, parts, is_relative=False)
        if found:
          return found
    module = ".".join(parts)
    for package, place in self.list_packages([folder]).items():
      found = [
        path
        for path in program_modules.list_named(package, place, module)
        if path in self._known
      ]
      if found:
        return found
    return self._guess(folder, parts)

  def _guess(self, folder: str, parts: Sequence[str]) -> list[str]:
    """Returns the files of a module that lies elsewhere in the project.

    The user may have set PYTHONPATH, or installed the package. If several
    folders have such a module, none of its files is returned.
    """
    first = parts[0]
    if first in sys.stdlib_module_names or scopes.if_tensorflow(first):
      return []
    found = []
    for place in self._holders.get(first, ()):
      is_below = _is_below(place, folder)
      # Of a name such as "utils", there may be hundreds.
      if not is_below and (
        len(parts) == 1 or not self._is_of_project(place, folder)
      ):
        continue
      files = self._list_files(place, parts, is_relative=False)
      if not files or os.path.join(place, "__init__.py") in self._known:
        continue  # Imports of a package's module name the package first.
      is_whole = any(
        program_modules.is_file_of(path, [part])
        for path in files
        for part in parts[1 : scopes.MOST_PARTS]
      )
      if is_below or is_whole:
        found.append((place, files))
    if len(found) != 1:
      return []
    self._guessed.setdefault(folder, {})[found[0][0]] = None
    return found[0][1]

  def _is_of_project(self, place: str, folder: str) -> bool:
    """Returns whether a folder belongs to the project of another one."""
    return self.find_root(place) == self.find_root(folder) or (
      os.path.basename(folder) in _BESIDE
      and _is_below(place, os.path.dirname(folder))
    )

  def find_elsewhere(
    self, outline: outlines.Outline
  ) -> Iterator[tuple[str, str]]:
    """Yields the modules that a file imports, and only another project has.

    The program may find them by PYTHONPATH.

    Yields:
      Each module with its file.
    """
    folder = os.path.dirname(outline.path)
    for name in outline.imports:
      parts = name.split(".")
      if (
        not parts[0]
        or parts[0] not in self._holders
        or parts[0] in sys.stdlib_module_names
        or scopes.if_tensorflow(name)
        or any(each.startswith(f"{name}.") for each in outline.imports)
        or self._find_absolute(folder, parts)
      ):
        continue
      found = [
        path
        for place in self._holders[parts[0]]
        for path in self._list_files(place, parts, is_relative=False)[-1:]
        if program_modules.is_file_of(path, parts)
        and os.path.join(place, "__init__.py") not in self._known
      ]
      if len(found) == 1:
        yield name, found[0]

  @functools.cached_property
  def _holders(self) -> dict[str, list[str]]:
    """First part of a name -> the folders in which an import finds it."""
    holders: dict[str, list[str]] = {}
    for folder, names in self._names.items():
      for name in names:
        holders.setdefault(name, []).append(folder)
    return holders

  def _list_places(self, folder: str) -> list[str]:
    """Returns the folders from which a file in a folder may import."""
    if folder not in self._places:
      places: dict[str, None] = {}
      for around in list_around(folder):
        places |= dict.fromkeys(list_roots(around))
        places |= self._roots.get(around, {})
      self._places[folder] = [place for place in places if place in self._names]
    return self._places[folder]

  def _list_files(
    self, place: str, parts: Sequence[str], is_relative: bool
  ) -> list[str]:
    """Returns the files that the import of a module from a folder runs."""
    paths = program_modules.list_candidates(place, parts, is_relative)
    return [path for path in paths if path in self._known]


def list_around(folder: str) -> Iterator[str]:
  """Yields a folder and the folders around it."""
  yield folder
  while (parent := os.path.dirname(folder)) != folder:
    folder = parent
    yield folder


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
  for home in list_around(folder):
    if home in projects and (
      not starts or any(_is_below(path, folder) for path in projects[home])
    ):
      return home
  return None


def _find_common(paths: Iterable[str]) -> str:
  """Returns the folder that holds all paths."""
  return os.path.commonpath([os.path.dirname(path) for path in paths])
