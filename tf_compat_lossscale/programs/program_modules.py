# SPDX-License-Identifier: Apache-2.0
"""Reads a program: its file, and the modules of its own that it imports."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import os
from typing import Any

from tf_compat_lossscale.programs import scopes
from tf_compat_lossscale.programs import source_facts

_PACKAGE = "tf_compat_lossscale"


class Memory:
  """A memory of what programs find that import from the same folders.

  Attributes:
    files: (module, folder of a relative name) -> the files of the import.
    references: (id of a module, reference) -> the module, and what the
      reference names.
  """

  def __init__(self) -> None:
    self.files: dict[tuple[str, str | None], Sequence[str]] = {}
    self.references: dict[tuple[int, str], tuple[Any, list[Any]]] = {}


class Program:
  """A program's sources, and the folders from which it imports them.

  Attributes:
    main: The file that runs as `__main__`, or None.
    collected: The files whose functions and classes a runner of tests calls.
    sources: The sources that can be read: the program itself first, or the
      collected ones.
    memory: What was found so far.
  """

  def __init__(
    self,
    path: str | None,
    search: Sequence[str],
    read: Callable[[str], source_facts.Source] = source_facts.read_source,
    is_file: Callable[[str], bool] = os.path.isfile,
    memory: Memory | None = None,
    packages: Mapping[str, str] | None = None,
    collected: Sequence[str] = (),
  ):
    """Reads a program.

    Args:
      path: The program's file; None if it has none.
      search: Folders that hold the program's own modules. Those that the
        program adds to Python's path are found in its source.
      read: The function that reads a file.
      is_file: A function that tells which paths are files.
      memory: What other programs with the same folders have found.
      packages: Package -> its folder, if that has another name.
      collected: The files whose functions and classes a runner of tests calls.
    """
    self.main, self.collected = path, collected
    self._packages = packages or {}
    self._is_file = is_file
    self.memory = memory or Memory()
    self._read = read
    self.sources: list[source_facts.Source] = []
    self._search = list(search)
    self._read_all([*([path] if path else []), *collected])

  def _read_all(self, waiting: list[str]) -> None:
    """Reads files and all that they import, and what these import."""
    waiting = list(dict.fromkeys(waiting))
    seen = set(waiting)
    unfound: list[tuple[str, str]] = []
    while waiting:
      try:
        source = self._read(waiting.pop(0))
      except source_facts.SourceError:
        continue  # Python reports the error if the program imports the module.
      self.sources.append(source)
      imports = [(module, source.path) for module in source.modules]
      folders = self._find_new_folders(source)
      if folders:
        # Modules that were not found so far may be in the new folders.
        self._search += folders
        self.memory = Memory()  # Other programs do not have these folders.
        imports += unfound
        unfound = []
      for module, importer in imports:
        files = self.find_files(module, importer)
        if not files:
          unfound.append((module, importer))
        for file in files:
          if file not in seen:
            seen.add(file)
            waiting.append(file)

  def _find_new_folders(self, source: source_facts.Source) -> list[str]:
    """Returns the folders that a source adds to Python's path."""
    if not {"sys", "sys.path", "site"} & set(source.modules):
      return []
    from tf_compat_lossscale.programs import search_paths  # Seldom needed.

    folders = search_paths.find_folders(source.path, source.tree)
    return [folder for folder in folders if folder not in self._search]

  def find_files(self, module: str, importer: str) -> Sequence[str]:
    """Returns the files of the program that the import of a module would run.

    Args:
      module: The module's dotted name; a relative one begins with dots.
      importer: The file that imports the module.
    """
    dots = len(module) - len(module.lstrip("."))
    base = None
    if dots:
      base = os.path.abspath(os.path.join(importer, *[".."] * dots))
    # Programs import a module many times.
    key = module[dots:], base
    files = self.memory.files
    if key not in files:
      files[key] = list(self._list_files(*key))
    return files[key]

  def _list_files(self, module: str, base: str | None) -> Iterator[str]:
    """Yields the files that an import would run.

    Args:
      module: The module's dotted name, without dots before it.
      base: The folder that a relative name starts from; None for others.
    """
    parts = [part for part in module.split(".") if part]
    if parts[:1] == [_PACKAGE] and base is None:
      return  # This package is never a program's own.
    for folder in self._search if base is None else [base]:
      paths = list_candidates(folder, parts, base is not None)
      yield from filter(self._is_file, paths)
    for package, folder in self._packages.items() if base is None else ():
      yield from filter(self._is_file, list_named(package, folder, module))


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
