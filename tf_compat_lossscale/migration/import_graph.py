# SPDX-License-Identifier: Apache-2.0
"""Which files import which, by the names in import statements alone."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import os
import re

_IMPORT = re.compile(r"import[ \t]+")
# What stands before that in its line, and the names after it.
_MODULE = re.compile(r"[ \t]*(?:from[ \t]+([.\w]+)[ \t]+)?")
_NAMES = re.compile(r"\([^)]*\)|[^\r\n#]*")
_COMMENT = re.compile(r"#[^\r\n]*")


class ImportGraph:
  """The imports among some files.

  A module is looked for in the folder of the importing file, in the folders
  around it, and in the folders right below those, such as `src`. If several
  files fit, those count whose path has most folders in common with that of the
  importing file.

  Attributes:
    imports: Path -> the files that the file imports, each with the names of
      modules that lead there, as written.
    importers: Path -> the files that import the file.
  """

  def __init__(self, texts: Mapping[str, str]):
    """Reads the import statements of texts, by their paths."""
    # Last part of a module's name -> the files of such modules, with the parts
    # of their paths.
    self._files: dict[str, list[tuple[list[str], str]]] = {}
    folders = {}
    for path in texts:
      parts = _split_path(path)
      folders[path] = parts
      if os.path.basename(path).startswith("__init__."):
        parts = parts[:-1]
      self._files.setdefault(parts[-1], []).append((parts, path))
    self.imports: dict[str, dict[str, list[str]]] = {}
    self.importers: dict[str, list[str]] = {}
    for path, text in texts.items():
      found: dict[str, list[str]] = {}
      for module in dict.fromkeys(_find_modules(text)):
        if module.rpartition(".")[2] in self._files or module[0] == ".":
          for other in self._find_files(module, folders[path][:-1]):
            if other != path:
              found.setdefault(other, []).append(module)
      self.imports[path] = found
      for other in found:
        self.importers.setdefault(other, []).append(path)

  def find_above(self, paths: Iterable[str]) -> set[str]:
    """Returns files, and all that lead to them by imports."""
    return _reach(paths, self.importers)

  def find_below(self, paths: Iterable[str]) -> set[str]:
    """Returns files, and all that they import, also by way of others."""
    return _reach(paths, self.imports)

  def _find_files(self, module: str, folder: list[str]) -> Iterator[str]:
    """Yields the files of a module, and of the packages that it is in."""
    name = module.lstrip(".")
    level = len(module) - len(name)
    parts = name.split(".") if name else []
    packages = 1 if level else len(parts)
    if level:
      parts = [*folder[: len(folder) - level + 1], *parts]
    fitting: dict[int, list[list[str]]] = {}
    for place, _ in self._files.get(parts[-1] if parts else "", ()):
      if place == parts if level else place[-len(parts) :] == parts:
        common = len(os.path.commonprefix([place, folder]))
        # Programs seldom import from far away.
        if level or common >= len(place) - len(parts) - 1:
          fitting.setdefault(common, []).append(place)
    for place in fitting[max(fitting)] if fitting else ():
      for end in range(len(place), len(place) - packages, -1):
        for other, path in self._files.get(place[end - 1], ()):
          if other == place[:end]:
            yield path


def _find_modules(text: str) -> Iterator[str]:
  """Yields the names of the modules that a text imports.

  Of `from a import b` they are "a" and "a.b", which may be a module, too.
  """
  for match in _IMPORT.finditer(text):  # Few lines have the word.
    line = text.rfind("\n", 0, match.start()) + 1
    start = _MODULE.fullmatch(text, line, match.start())
    if start is None:
      continue
    module = start[1] or ""
    if module:
      yield module
    joint = "" if not module or module.endswith(".") else "."
    listed = _NAMES.match(text, match.end())
    names = _COMMENT.sub("", listed[0] if listed else "")
    for part in names.strip("() \t\r\n").split(","):
      words = part.split()
      if words:
        yield f"{module}{joint}{words[0]}"


def _reach(
  start: Iterable[str], leads: Mapping[str, Iterable[str]]
) -> set[str]:
  """Returns what some paths lead to, themselves included."""
  reached, waiting = set[str](), list(start)
  while waiting:
    each = waiting.pop()
    if each not in reached:
      reached.add(each)
      waiting += leads.get(each, ())
  return reached


def _split_path(path: str) -> list[str]:
  base, _ = os.path.splitext(os.path.abspath(path))
  return [part for part in base.split(os.sep) if part]
