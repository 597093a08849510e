# SPDX-License-Identifier: Apache-2.0
"""Reads a program: its file, and the modules of its own that it imports."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import os

from tf_compat_lossscale.legacy import sources


class Program:
  """A program's sources, and the folders from which it imports them.

  Attributes:
    sources: The sources that can be read, the program itself first.
  """

  def __init__(
    self,
    path: str,
    search: Sequence[str],
    read: Callable[[str], sources.Source] = sources.read_source,
  ):
    """Reads a program.

    Args:
      path: The program's file.
      search: Folders that hold the program's own modules. Those that the
        program adds to Python's path are found in its source.
      read: The function that reads a file.
    """
    self._read = read
    self.sources: list[sources.Source] = []
    self._search = list(search)
    self._files: dict[str, bool] = {}
    self._read_all(path)

  def _read_all(self, path: str) -> None:
    """Reads the program and all that it imports, and what these import."""
    seen, waiting = {path}, [path]
    unfound: list[tuple[str, str]] = []
    while waiting:
      try:
        source = self._read(waiting.pop(0))
      except sources.SourceError:
        continue  # Python reports the error if the program imports the module.
      self.sources.append(source)
      imports = [(module, source.path) for module in source.modules]
      folders = self._find_new_folders(source)
      if folders:
        # Modules that were not found so far may be in the new folders.
        self._search += folders
        imports += unfound
        unfound = []
      for module, importer in imports:
        files = list(self.find_files(module, importer))
        if not files:
          unfound.append((module, importer))
        for file in files:
          if file not in seen:
            seen.add(file)
            waiting.append(file)

  def _find_new_folders(self, source: sources.Source) -> list[str]:
    """Returns the folders that a source adds to Python's path."""
    if not {"sys", "sys.path", "site"} & set(source.modules):
      return []
    from tf_compat_lossscale.legacy import search_paths  # Seldom needed.

    folders = search_paths.find_folders(source.path, source.tree)
    return [folder for folder in folders if folder not in self._search]

  def find_files(self, module: str, importer: str) -> Iterator[str]:
    """Yields the files of the program that the import of a module would run.

    Args:
      module: The module's dotted name; a relative one begins with dots.
      importer: The file that imports the module.
    """
    dots = len(module) - len(module.lstrip("."))
    parts = [part for part in module.split(".") if part]
    folders = self._search
    if dots:
      folders = [os.path.abspath(os.path.join(importer, *[".."] * dots))]
    for folder in folders:
      for i in range(0 if dots else 1, len(parts) + 1):
        base = os.path.join(folder, *parts[:i])
        for path in (f"{base}.py", os.path.join(base, "__init__.py")):
          if (i or path.endswith("__init__.py")) and self._is_file(path):
            yield path

  def _is_file(self, path: str) -> bool:
    """Returns whether a path is a file. Programs import a module many times."""
    if path not in self._files:
      self._files[path] = os.path.isfile(path)
    return self._files[path]


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
