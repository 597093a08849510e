# SPDX-License-Identifier: Apache-2.0
"""Reads a program: its file, and the modules of its own that it imports."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import os
from typing import Any

from tf_compat_lossscale.programs import scopes
from tf_compat_lossscale.programs import source_facts

_PACKAGE = "tf_compat_lossscale"


class _Tree:
  """The files that imports find, as long as no file comes or goes."""

  def __init__(self) -> None:
    self._names: dict[str, frozenset[str]] = {}
    self._files: dict[tuple[str, str], list[str]] = {}

  def list_names(self, folder: str) -> frozenset[str]:
    """Returns the names in a folder; none if there is no such folder."""
    if folder not in self._names:
      try:
        self._names[folder] = frozenset(os.listdir(folder or "."))
      except (OSError, ValueError):
        self._names[folder] = frozenset()
    return self._names[folder]

  def find_in(self, folder: str, module: str) -> list[str]:
    """Returns the files that the import of a module from a folder runs.

    Args:
      folder: The folder.
      module: The module's dotted name, without dots before it.
    """
    key = folder, module
    if key not in self._files:
      self._files[key] = list(self._list_files(folder, module.split(".")))
    return self._files[key]

  def _list_files(self, folder: str, parts: Sequence[str]) -> Iterator[str]:
    """Yields the files of the packages around a module, and its own."""
    for part in list(filter(None, parts))[: scopes.MOST_PARTS]:
      path = os.path.join(folder, part)
      names = self.list_names(folder)
      if f"{part}.py" in names and os.path.isfile(f"{path}.py"):
        yield f"{path}.py"
      if part not in names:
        return
      yield from self.find_init(path)
      folder = path

  def find_init(self, folder: str) -> list[str]:
    """Returns the `__init__.py` of a folder, if there is one."""
    path = os.path.join(folder, "__init__.py")
    is_there = "__init__.py" in self.list_names(folder) and os.path.isfile(path)
    return [path] if is_there else []


class Folders:
  """The folders from which programs import, with what they find there.

  Attributes:
    paths: The folders, in their order.
    links: Unit of `unit_names` -> the `Links` of `reach`.
  """

  def __init__(
    self, paths: tuple[str, ...], tree: _Tree, packages: Mapping[str, str]
  ):
    """Finds nothing yet.

    Args:
      paths: The folders.
      tree: What is found in each folder.
      packages: Package -> its folder, if that has another name.
    """
    self.paths, self._tree, self._packages = paths, tree, packages
    self._files: dict[tuple[str, str], list[str]] = {}
    # File -> the files that it imports, and the modules that are not found.
    self._imports: dict[str, tuple[list[str], list[str]]] = {}
    self._own_files: dict[tuple[str, str], list[str]] = {}
    self.links: dict[Any, Any] = {}

  @functools.cached_property
  def first_names(self) -> frozenset[str]:
    """The first parts of the names that an import may find in the folders."""
    names = (n for path in self.paths for n in self._tree.list_names(path))
    packages = (each.partition(".")[0] for each in self._packages)
    return frozenset([*(n.removesuffix(".py") for n in names), *packages])

  def find_files(self, module: str, importer: str) -> list[str]:
    """Returns the files that the import of a module would run.

    Args:
      module: The module's dotted name; a relative one begins with dots.
      importer: The file that imports the module.
    """
    key = module, importer if module[:1] == "." else ""
    if key not in self._files:
      self._files[key] = list(self._list_files(*key))
    return self._files[key]

  def find_module(self, module: str, importer: str) -> list[str]:
    """Returns those of `find_files` that are the module's own.

    Args:
      module: As of `find_files`; dots alone are a package.
      importer: As of `find_files`.
    """
    key = module, importer if module[:1] in ("", ".") else ""
    if key not in self._own_files:
      name = module if module.strip(".") else f"{module}."
      self._own_files[key] = [
        path
        for path in self.find_files(name, importer)
        if is_file_of(path, module.split("."))
      ]
    return self._own_files[key]

  def _list_files(self, module: str, importer: str) -> Iterator[str]:
    """Yields what `find_files` returns."""
    name = module.lstrip(".")
    dots = len(module) - len(name)
    if dots:
      base = os.path.abspath(os.path.join(importer, *[".."] * dots))
      yield from self._tree.find_init(base)
      yield from self._tree.find_in(base, name)
      return
    if name.partition(".")[0] == _PACKAGE:
      return  # This package is never a program's own.
    for folder in self.paths:
      yield from self._tree.find_in(folder, name)
    for package, folder in self._packages.items():
      yield from filter(os.path.isfile, list_named(package, folder, name))

  def find_imports(
    self, source: source_facts.Source
  ) -> tuple[list[str], list[str]]:
    """Returns the files that a file imports, and the modules without files."""
    if source.path not in self._imports:
      files: dict[str, None] = {}
      lacking = []
      for module in dict.fromkeys(source.modules):
        found = self.find_files(module, source.path)
        files.update(dict.fromkeys(found))
        if not found:
          lacking.append(module)
      self._imports[source.path] = list(files), lacking
    return self._imports[source.path]


class Memory:
  """A memory of what the programs of a project find.

  Attributes:
    signs: Unit of `unit_names` -> the `Signs` of `which_tensorflow`.
  """

  def __init__(self, packages: Mapping[str, str] | None = None):
    """Remembers nothing yet.

    Args:
      packages: Package -> its folder, if that has another name.
    """
    self._packages = packages or {}
    self._tree = _Tree()
    self._folders: dict[tuple[str, ...], Folders] = {}
    self.signs: dict[Any, Any] = {}

  def open(self, paths: Iterable[str]) -> Folders:
    """Returns what the programs find that import from some folders."""
    key = tuple(paths)
    if key not in self._folders:
      self._folders[key] = Folders(key, self._tree, self._packages)
    return self._folders[key]


class Program:
  """A program's sources, and the folders from which it imports them.

  Attributes:
    main: The file that runs as `__main__`, or None.
    collected: The files whose functions and classes a runner of tests calls.
    sources: The sources that can be read: the program itself first, or the
      collected ones.
    memory: What was found so far.
    folders: The folders that hold the program's own modules.
  """

  def __init__(
    self,
    path: str | None,
    search: Iterable[str],
    read: Callable[[str], source_facts.Source] = source_facts.read_source,
    memory: Memory | None = None,
    collected: Sequence[str] = (),
  ):
    """Reads a program.

    Args:
      path: The program's file; None if it has none.
      search: Folders that hold the program's own modules. Those that the
        program adds to Python's path are found in its source.
      read: The function that reads a file.
      memory: What other programs have found.
      collected: The files whose functions and classes a runner of tests calls.
    """
    self.main, self.collected = path, collected
    self.memory = memory or Memory()
    self._read = read
    self.sources: list[source_facts.Source] = []
    self.folders = self.memory.open(search)
    self._read_all([*([path] if path else []), *collected])

  def _read_all(self, waiting: Iterable[str]) -> None:
    """Reads files and all that they import, and what these import."""
    seen = dict.fromkeys(waiting)
    files = list(seen)
    lacking: list[tuple[str, str]] = []
    for file in files:  # The list grows meanwhile.
      try:
        source = self._read(file)
      except source_facts.SourceError:
        continue  # Python reports the error if the program imports the module.
      self.sources.append(source)
      again = []
      known = self.folders.paths
      new = [folder for folder in source.folders if folder not in known]
      if new:
        # Modules that were not found so far may be in the new folders.
        self.folders = self.memory.open([*known, *new])
        again, lacking = lacking, []
      found, unfound = self.folders.find_imports(source)
      lacking += [(module, file) for module in unfound]
      for module, importer in again:
        late = self.folders.find_files(module, importer)
        if not late:
          lacking.append((module, importer))
        found = [*found, *late]
      for each in found:
        if each not in seen:
          seen[each] = None
          files.append(each)


def list_candidates(
  folder: str, parts: Sequence[str], is_relative: bool
) -> Iterator[str]:
  """Yields the paths that the import of a module runs if they are files.

  Args:
    folder: The folder that the import starts from.
    parts: The parts of the module's name.
    is_relative: Whether the import is relative: then the folder's own
      `__init__.py` is one of them.
  """
  if is_relative:
    yield os.path.join(folder, "__init__.py")
  for i in range(1, min(len(parts), scopes.MOST_PARTS) + 1):
    start = os.path.join(folder, *parts[:i])
    yield f"{start}.py"
    yield os.path.join(start, "__init__.py")


def list_named(package: str, folder: str, module: str) -> Iterator[str]:
  """Yields the paths of a module's import in a package with another folder.

  Args:
    package: The package's dotted name.
    folder: Its folder, whatever its name.
    module: The module's dotted name.
  """
  if module != package and not module.startswith(f"{package}."):
    return
  rest = module[len(package) + 1 :]
  yield from list_candidates(folder, rest.split(".") if rest else [], True)


def is_file_of(path: str, parts: Sequence[str]) -> bool:
  """Returns whether a file is that of a module, not of a package around it."""
  last = next((part for part in reversed(parts) if part), None)
  stem = path.removesuffix(".py").replace("\\", "/").removesuffix("/__init__")
  return last is None or stem.rpartition("/")[2] == last


def list_package_folders(folder: str) -> Iterator[str]:
  """Yields a folder, and those above it up to where its package is found."""
  yield folder
  while os.path.isfile(os.path.join(folder, "__init__.py")):
    folder, before = os.path.dirname(folder), folder
    if folder == before:
      return
    yield folder


def find_python_path() -> list[str]:
  """Returns the folders of PYTHONPATH that may hold a program's own modules.

  Folders in which packages are installed are left out.
  """
  found = []
  for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    if folder and os.path.isdir(folder):
      entries = os.listdir(folder)
      if not any(entry.endswith(".dist-info") for entry in entries):
        found.append(os.path.abspath(folder))
  return found
