# SPDX-License-Identifier: Apache-2.0
"""Reads the files of a program: those that start it, and what they import.

`train.py` and `-m package.train` name one file. For runners of tests, debuggers
and profilers, such as `-m pytest tests/`, the files, folders and modules among
the words count. Of the modules that a file imports, the program's own are read:
those beside it, in the working folder and in PYTHONPATH. After all these come
modules that strings name, because programs import such by `importlib`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import functools
import glob
import os
import re
import sys
import sysconfig
from typing import Any
from typing import NamedTuple

from tf_compat_lossscale._core import installation
from tf_compat_lossscale.programs import sources

_LEVELS = 3
# The folders in which Python's package managers install libraries.
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]([^/\\]*)")
_LIBRARY = os.path.dirname(os.__file__) + os.sep  # Python's own.
# Files of tests, of which folders may have many others.
_TESTS = re.compile(r"(test.*|.*_test|conftest)\.py")
_FINDS_TESTS = ("pytest", "unittest")  # In the working folder, if told of none.
# A text that may name a module, or with a dot at its end a package's modules.
_MODULE = re.compile(r"[a-zA-Z_]\w*(\.[a-zA-Z_]\w*)*\.?")
_IMPORTERS = ("__import__", "import_module")


class Program(NamedTuple):
  """What was read of a program.

  Attributes:
    levels: The sources that start the program; then those that these import,
      and so on, up to three levels of imports. Then those that strings in all
      these name, and in the same way what those import.
    packages: The installed packages that are the program's own.
    errors: What is wrong with files that cannot be read.
  """

  levels: Sequence[Sequence[sources.SourceFile]]
  packages: Sequence[str] = ()
  errors: Sequence[str] = ()

  @property
  def python_2(self) -> str:
    """The first error of a file that may be Python 2, or ""."""
    return next((x for x in self.errors if x.endswith(sources.TO_3)), "")

  def list_sources(self) -> list[sources.SourceFile]:
    """Returns the sources of all levels."""
    return [source for level in self.levels for source in level]

  def uses(self, pattern: re.Pattern[str]) -> bool:
    """Returns whether a full name that the program uses fits a pattern."""
    found = (use.name for source in self.list_sources() for use in source.uses)
    return any(map(pattern.match, found))


def read_program(words: Sequence[str]) -> Program:
  """Reads the program that `python WORDS...` runs; imports nothing.

  Args:
    words: SCRIPT, -m MODULE or -c CODE, and the program's arguments.

  Returns:
    The program, without levels if no file that starts it can be read. Files
    that cannot be read are left out: Python reports the error when it comes to
    them.
  """
  path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
  search = [os.getcwd(), *(os.path.abspath(each) for each in path if each)]
  errors = [f"there is no module {each!r}" for each in words[1:2]]
  start, read = words[1:2], sources.read
  if words[0] == "-c":
    read = functools.partial(sources.read_text, "-c")
  elif words[0] != "-m":
    main = os.path.join(words[0], "__main__.py")
    start = [main if os.path.isfile(main) else words[0]]
  elif start:
    start = _find_of_module(words[1], words[2:], search)
  first = _read_all(start, errors, read)
  scripts = os.path.realpath(sysconfig.get_path("scripts"))
  names = {find_package(source.path) for source in first}
  for source in first:
    folder = os.path.dirname(os.path.abspath(source.path))
    if os.path.realpath(folder) == scripts:  # Of pip.
      names |= {module.partition(".")[0] for module in source.modules}
    search.insert(0, folder)
    while os.path.isfile(os.path.join(folder, "__init__.py")):
      folder = os.path.dirname(folder)
    search.append(folder)
  own = []
  for name in sorted(filter(None, names)):
    folder = installation.find_folder(name) or ""
    if find_package(folder) == name != "tensorflow":
      own.append(name)
      search.append(os.path.dirname(folder))
  levels = _read_levels(first, search, own, errors)
  known = [source for level in levels for source in level]
  named = {path for each in known for path in _find_named(each, search)}
  named -= {os.path.abspath(source.path) for source in known}
  named = {path for path in named if _is_own(path, own)}
  others = _read_levels(_read_all(sorted(named), errors), search, own, errors)
  return Program([*levels, *others], own, errors)


@functools.cache
def find_package(path: str) -> str | None:
  """Returns the installed package that a file belongs to, or None."""
  match = _INSTALLED.search(path)
  return match[1].removesuffix(".py") if match else None


def _read_levels(
  first: Sequence[sources.SourceFile],
  search: Sequence[str],
  own: Iterable[str],
  errors: list[str],
) -> list[Sequence[sources.SourceFile]]:
  levels = [first]
  seen = {os.path.abspath(source.path) for source in first}
  for _ in range(_LEVELS):
    paths = {
      path: None
      for source in levels[-1]
      for module in source.modules
      for path in _find_module(module, source.path, search)
      if path not in seen and _is_own(path, own)
    }
    seen |= paths.keys()
    levels.append(_read_all(paths, errors))
  return [level for level in levels if level]


def _is_own(path: str, own: Iterable[str]) -> bool:
  """Returns whether a file is the program's, not one of a library."""
  package = find_package(path)
  return package in own if package else not path.startswith(_LIBRARY)


def _read_all(
  paths: Iterable[str],
  errors: list[str],
  read: Callable[[str], sources.SourceFile] = sources.read,
) -> list[sources.SourceFile]:
  """Reads files; adds to `errors` why some cannot be read."""
  found = []
  for path in paths:
    try:
      found.append(read(path))
    except sources.SourceError as error:
      errors.append(str(error))
  return found


def _find_module(
  module: str, importer: str, search: Sequence[str]
) -> Iterator[str]:
  """Yields the files that an import runs: a module's, and its packages'."""
  name = module.lstrip(".")
  dots = len(module) - len(name)
  if name.partition(".")[0] in ("tensorflow", "tf_compat_lossscale"):
    return
  up = os.path.abspath(os.path.join(importer, *[".."] * dots))
  for folder in [up] if dots else search:
    base = folder
    for part in name.split("."):
      base = os.path.join(base, part)
      for path in (f"{base}.py", os.path.join(base, "__init__.py")):
        if os.path.isfile(path):
          yield path


def _find_named(
  source: sources.SourceFile, search: Sequence[str]
) -> Iterator[str]:
  """Yields the program's files that strings in a source name."""
  constants = [str(node.value) for node in source.list_nodes(ast.Constant)]
  texts = {text for text in constants if "." in text and text[-3:] != ".py"}
  for call in source.list_nodes(ast.Call):
    function: Any = call.func
    if getattr(function, "attr", getattr(function, "id", "")) in _IMPORTERS:
      texts |= {str(getattr(each, "value", "")) for each in call.args[:1]}
  for text in filter(_MODULE.fullmatch, texts):
    yield from _find_module(text.rstrip("."), source.path, search)
    for folder in search if text[-1] == "." else ():
      yield from glob.iglob(os.path.join(folder, *text.split("."), "*.py"))


def _find_of_module(
  name: str, words: Sequence[str], search: list[str]
) -> list[str]:
  """Returns the files that `python -m NAME WORDS...` runs.

  If the module is installed, it may run the files among the words.
  """
  if path := _find_start(name.removesuffix(".__main__"), search):
    return [path]
  places = [_find_place(word.partition("::")[0], search) for word in words]
  named = [file for place in places for file in _list_files(place)]
  if not named and name in _FINDS_TESTS:
    named = [*_list_files(os.getcwd())]
  return named or [*filter(None, [_find_start(name, sys.path)])]


def _find_place(word: str, search: Sequence[str]) -> str:
  """Returns the path that a word may mean: `a/b`, module `a.b`, `a.b.Class`."""
  module = word if _MODULE.fullmatch(word) and not os.path.exists(word) else ""
  while module:
    spec = installation.find_spec(module, search)
    if spec is not None:
      folders = spec.submodule_search_locations or [str(spec.origin)]
      return next(iter(folders))
    module = module.rpartition(".")[0]
  return os.path.abspath(word)


def _list_files(place: str) -> Iterator[str]:
  """Yields a file of Python, or the files of tests in a folder and below."""
  if place.endswith(".py") and os.path.isfile(place):
    yield place
  for path, folders, files in os.walk(place):
    folders[:] = sorted(
      name for name in folders if name[0] not in "._" and name != "build"
    )
    for name in sorted(files):
      if _TESTS.fullmatch(name):
        yield os.path.join(path, name)


def _find_start(name: str, search: Sequence[str]) -> str | None:
  """Returns the file that `python -m NAME` runs; imports nothing."""
  spec = installation.find_spec(name, search)
  if spec is not None and spec.submodule_search_locations is not None:
    return _find_start(f"{name}.__main__", search)
  return spec.origin if spec is not None and spec.has_location else None
