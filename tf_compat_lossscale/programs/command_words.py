# SPDX-License-Identifier: Apache-2.0
"""Finds the files that a command of Python runs, by the command's words.

`train.py` and `-m package.train` name one file. For runners of tests, debuggers
and profilers, such as `-m pytest tests/`, the files and folders among the words
count.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import importlib.machinery
import os
import re
import sys
import types
from typing import NamedTuple

from tf_compat_lossscale.programs import program_modules
from tf_compat_lossscale.programs import told_version


class Files(NamedTuple):
  """The files that a command runs.

  Attributes:
    program: The file that is run as `__main__`; None if there is none.
    collected: The files whose functions and classes a runner calls.
    search: The folders from which these files import modules of their own.
    packages: Installed package of the program -> its folder.
    code: The program's text, if the command has it; then `program` is no file,
      but what messages call it.
  """

  program: str | None
  collected: Sequence[str] = ()
  search: Sequence[str] = ()
  packages: Mapping[str, str] = types.MappingProxyType({})
  code: str | None = None


# Modules that run the programs and tests which their arguments name.
_RUNNERS = (
  *("cProfile", "coverage", "debugpy", "green", "ipdb", "kernprof"),
  *("memory_profiler", "nose", "nose2", "pdb", "profile", "pudb", "py.test"),
  *("pyinstrument", "pytest", "scalene", "testtools.run", "trace", "trial"),
  *("twisted.trial", "unittest", "viztracer", "xmlrunner"),
)
# Files of tests, of which folders may have many others.
_TESTS = re.compile(r"(test.*|.*_test|conftest)\.py$")
_SKIPPED = {"__pycache__", "build", "dist", "node_modules", "venv"}


def find_files(words: Sequence[str]) -> Files:
  """Returns the files that `python WORDS...` runs.

  Args:
    words: SCRIPT, -m MODULE or -c CODE, and the program's arguments.
  """
  if words[0] == "-c":
    return Files("-c", (), [os.getcwd()], code="".join(words[1:2]))
  if words[0] == "-m":
    return _find_of_module(words[1], words[2:]) if words[1:] else Files(None)
  path = words[0]
  if os.path.isdir(path):
    path = os.path.join(path, "__main__.py")
  folder = os.path.dirname(os.path.abspath(path))
  name = os.path.basename(path).removesuffix(".exe")
  packages = {}
  if _is_scripts_folder(folder):
    # pip wrote the script for an installed package.
    if name in _RUNNERS:
      return _find_of_module(name, words[1:])
    packages = _find_packages_of_script(name)
  return Files(path, (), [folder], packages)


def _find_of_module(name: str, words: Sequence[str]) -> Files:
  """Returns the files that `python -m NAME WORDS...` runs."""
  name = name.removesuffix(".__main__")
  search = [os.getcwd()]
  if name in _RUNNERS:
    return _find_named(words, search)
  path = find_module(name, search)
  packages = _find_installed(name.partition(".")[0]) if path else {}
  return Files(path, (), search, packages)


def _find_named(words: Sequence[str], search: list[str]) -> Files:
  """Returns the files among words, and the tests in the folders among them."""
  places = [os.path.abspath(word.partition("::")[0]) for word in words]
  collected = [file for place in places for file in _list_files(place)]
  program = next(
    (p for p in places if p in collected and not _is_test(p)), None
  )
  for file in collected:
    *_, folder = program_modules.list_package_folders(os.path.dirname(file))
    search += [folder] if folder not in search else []
  return Files(program, collected, search)


def _is_test(path: str) -> bool:
  return _TESTS.match(os.path.basename(path)) is not None


def _list_files(place: str) -> Iterator[str]:
  """Yields a file of Python, or the files of tests in a folder and below."""
  if place.endswith(".py") and os.path.isfile(place):
    yield place
  for path, folders, files in os.walk(place):
    folders[:] = sorted(
      each for each in folders if each not in _SKIPPED and each[0] != "."
    )
    yield from (os.path.join(path, f) for f in sorted(files) if _is_test(f))


def find_module(name: str, search: Sequence[str]) -> str | None:
  """Returns the file that `python -m name` runs; imports nothing."""
  spec = _find_spec(name, search)
  if spec is None:
    return None
  if spec.submodule_search_locations is not None:
    return find_module(f"{name}.__main__", search)
  return spec.origin if spec.has_location else None


def _find_spec(
  name: str, search: Sequence[str]
) -> importlib.machinery.ModuleSpec | None:
  """Returns the spec of a module that is not imported, or None."""
  path: Sequence[str] | None = [*search, *sys.path]
  spec = None
  parts = name.split(".")
  for i in range(len(parts)):
    if path is None:
      return None  # The parent is no package.
    spec = importlib.machinery.PathFinder.find_spec(
      ".".join(parts[: i + 1]), path
    )
    if spec is None:
      return None
    path = spec.submodule_search_locations
  return spec


def _is_scripts_folder(folder: str) -> bool:
  """Returns whether pip puts the scripts of packages into a folder."""
  if os.path.basename(folder) not in ("bin", "Scripts"):
    return False
  import sysconfig  # Seldom needed.

  return os.path.realpath(folder) == os.path.realpath(
    sysconfig.get_path("scripts")
  )


def _find_packages_of_script(name: str) -> dict[str, str]:
  """Returns the packages that pip installed together with a script."""
  from importlib import metadata  # Seldom needed.

  script = re.compile(rf"/(?:bin|Scripts)/{re.escape(name)}(?:\.exe)?[,\n]")
  for distribution in metadata.distributions():
    # TensorFlow has many files: `distribution.files` would take a second.
    text = distribution.read_text("RECORD") or ""
    if script.search(text):
      firsts = dict.fromkeys(re.findall(r"^(\w+)/", text, re.MULTILINE))
      found = [_find_installed(first) for first in firsts]
      return {name: path for each in found for name, path in each.items()}
  return {}


def _find_installed(package: str) -> dict[str, str]:
  """Returns {package: folder} if a package of a program is installed."""
  if package == "tensorflow":
    return {}  # It is no program's own, and takes minutes to read.
  spec = _find_spec(package, [])
  folders = spec.submodule_search_locations if spec is not None else None
  for folder in folders or ():
    if told_version.find_package(folder) == package:
      return {package: folder}
  return {}
