# SPDX-License-Identifier: Apache-2.0
"""Finds the files that a command of Python runs, by the command's words.

`train.py` and `-m package.train` name one file. `-m pytest tests/` and other
runners of tests name files, folders or modules, and `-m cProfile train.py` and
the like name another program.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import fnmatch
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
    collected: The files whose functions and classes a runner of tests calls.
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


class _Wrapper(NamedTuple):
  """A module that runs another program.

  Attributes:
    valued: The options that take the next word as their value.
    command: The word before the program's own; "" if there is none.
    module: The options that take a module to run, as Python's own -m does.
    runs_modules: Whether the program is always named as a module.
  """

  valued: str = ""
  command: str = ""
  module: str = "-m --module"
  runs_modules: bool = False


_WRAPPERS = {
  "cProfile": _Wrapper("-o -s --outfile --sort"),
  "coverage": _Wrapper(
    "--concurrency --context --data-file --include --omit --rcfile --source",
    "run",
  ),
  "debugpy": _Wrapper("--listen --connect --log-to"),
  "ipdb": _Wrapper("-c --command"),
  "kernprof": _Wrapper("-o --outfile -s --setup -u --unit -p --prof-mod -i"),
  "memory_profiler": _Wrapper("-o --precision --backend"),
  "pdb": _Wrapper("-c --command"),
  "profile": _Wrapper("-o -s --outfile --sort"),
  "pudb": _Wrapper("--log-errors"),
  "pyinstrument": _Wrapper("-o --outfile -r --renderer -i --interval"),
  "runpy": _Wrapper(runs_modules=True),
  "scalene": _Wrapper("--outfile --profile-interval --cpu-sampling-rate"),
  "trace": _Wrapper(
    "-f --file -C --coverdir --ignore-module --ignore-dir", module="--module"
  ),
  "viztracer": _Wrapper("-o --output_file --tracer_entries"),
}
_UNITTEST_OPTIONS = "-k --durations"
_DISCOVER_OPTIONS = "-k --durations -s --start-directory -p --pattern -t \
    --top-level-directory"
_NOSE2_OPTIONS = "-s --start-dir -t --top-level-directory -c --config -A -E \
    --log-level --plugin --exclude-plugin"
_TIMEIT_OPTIONS = "-n --number -r --repeat -s --setup -u --unit"
_TRIAL_OPTIONS = "-r --reactor --reporter -j --jobs --temp-directory --order"
_PYTEST_OPTIONS = "-k -m -c -p -o -W -n -r --rootdir --ignore --ignore-glob \
    --deselect --confcutdir --basetemp --maxfail --tb --durations --color \
    --log-level --log-cli-level --log-file --junitxml --junit-xml --cov \
    --cov-report --cov-config --timeout --override-ini --import-mode --dist \
    --numprocesses --capture --config-file --durations-min --verbosity \
    --cov-fail-under --reruns --seed --randomly-seed --markexpr --lfnf"

_TESTS = "test*.py"  # unittest and nose2
_PYTEST_TESTS = "test_*.py *_test.py"
_SKIPPED = {"__pycache__", "build", "dist", "node_modules", "venv"}


def find_files(words: Sequence[str]) -> Files:
  """Returns the files that `python WORDS...` runs.

  Args:
    words: SCRIPT, -m MODULE or -c CODE, and the program's arguments.

  Returns:
    The files. Words that name none of them are passed over: they may be values
    of options that a plugin adds, and a runner reports what is missing.
  """
  if words[0] == "-c":
    return Files("-c", (), [os.getcwd()], code="".join(words[1:2]))
  if words[0] != "-m":
    path = words[0]
    if os.path.isdir(path):
      path = os.path.join(path, "__main__.py")
    folder = os.path.dirname(os.path.abspath(path))
    name = os.path.basename(path).removesuffix(".exe")
    if _is_scripts_folder(folder):
      # pip wrote the script for an installed package.
      if _is_known(name):
        return _find_of_module(name, words[1:], [os.getcwd()])
      return Files(path, (), [folder], _find_packages_of_script(name))
    return Files(path, (), [folder])
  if len(words) < 2:
    return Files(None)
  return _find_of_module(words[1], words[2:], [os.getcwd()])


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


def _is_known(name: str) -> bool:
  return name in _WRAPPERS or name in _RUNNERS


def _find_of_module(
  name: str, words: Sequence[str], search: Sequence[str]
) -> Files:
  """Returns the files that `python -m NAME WORDS...` runs."""
  name = name.removesuffix(".__main__")
  if name in _WRAPPERS:
    return _find_wrapped(_WRAPPERS[name], words)
  if name in _RUNNERS:
    return _RUNNERS[name](words, [*search])
  path = find_module(name, search)
  package = name.partition(".")[0]
  packages = _find_installed(package) if path else {}
  return Files(path, (), search, packages)


def _find_wrapped(wrapper: _Wrapper, words: Sequence[str]) -> Files:
  """Returns the files of the program that a debugger or profiler runs."""
  words = list(words)
  if wrapper.command:
    if words[:1] != [wrapper.command]:
      return Files(None)
    del words[0]
  modules = wrapper.module.split()
  valued = [*wrapper.valued.split(), *modules]
  while words:
    word = words.pop(0)
    if not word.startswith("-"):
      prefix = ["-m"] if wrapper.runs_modules else []
      return find_files([*prefix, word, *words])
    option, value = _read_option(word, valued)
    if option in modules:
      return find_files(["-m", *([value] if value else []), *words])
    if value is None:
      del words[:1]
  return Files(None)


class _Arguments(NamedTuple):
  """The arguments of a runner: options with their values, and other words.

  Attributes:
    options: Option -> its value.
    words: The other words.
  """

  options: dict[str, str]
  words: list[str]

  def get(self, *names: str) -> str | None:
    """Returns the value of the first option that is given."""
    return next((self.options[n] for n in names if n in self.options), None)


def _read_arguments(words: Sequence[str], valued: str) -> _Arguments:
  """Reads the arguments of a runner.

  Args:
    words: The arguments.
    valued: The options that take the next word as their value.
  """
  known = valued.split()
  found = _Arguments({}, [])
  rest = iter(words)
  for word in rest:
    if word == "--":
      found.words.extend(rest)
    elif not word.startswith("-"):
      found.words.append(word)
    else:
      option, value = _read_option(word, known)
      found.options[option] = next(rest, "") if value is None else value
  return found


def _read_option(word: str, valued: Sequence[str]) -> tuple[str, str | None]:
  """Returns an option and its value; None if that is the next word.

  Args:
    word: The option, such as `-k`, `-kname` or `--key=name`. Options of one
      letter may stand together: `-vk` is `-v -k`, and its option is `-k`.
    valued: The options that take a value.
  """
  if word.startswith("--"):
    option, is_given, value = word.partition("=")
    return option, None if option in valued and not is_given else value
  for i, letter in enumerate(word[1:], 2):
    if f"-{letter}" in valued:
      return f"-{letter}", word[i:] or None
  return word, ""


def _find_of_unittest(words: Sequence[str], search: list[str]) -> Files:
  """Returns the files of `python -m unittest WORDS...`."""
  if words[:1] == ["discover"]:
    given = _read_arguments(words[1:], _DISCOVER_OPTIONS)
    places = [*given.words, *[""] * 3]
    start = given.get("-s", "--start-directory") or places[0] or "."
    pattern = given.get("-p", "--pattern") or places[1] or _TESTS
    top = given.get("-t", "--top-level-directory") or places[2] or start
    return _discover(start, pattern, top, search)
  given = _read_arguments(words, _UNITTEST_OPTIONS)
  named = _find_named(given, search)
  return named if named.collected else _discover(".", _TESTS, ".", search)


def _find_of_nose2(words: Sequence[str], search: list[str]) -> Files:
  """Returns the files of `python -m nose2 WORDS...`."""
  given = _read_arguments(words, _NOSE2_OPTIONS)
  paths = [given.get("-c", "--config") or "unittest.cfg", "nose2.cfg"]
  section = _read_section(paths, ["unittest"]) or {}
  start = given.get("-s", "--start-dir") or section.get("start-dir", ".")
  pattern = section.get("test-file-pattern", _TESTS)
  top = given.get("-t", "--top-level-directory") or "."
  named = _find_named(given, [*search, os.path.abspath(top)])
  return named if named.collected else _discover(start, pattern, top, search)


def _find_of_timeit(words: Sequence[str], search: list[str]) -> Files:
  """Returns the code of `python -m timeit WORDS...`."""
  given = _read_arguments(words, _TIMEIT_OPTIONS)
  lines = [given.get("-s", "--setup") or "", *given.words]
  return Files("timeit", (), search, code="\n".join(lines))


def _find_of_trial(words: Sequence[str], search: list[str]) -> Files:
  """Returns the files of `python -m twisted.trial WORDS...`."""
  return _find_named(_read_arguments(words, _TRIAL_OPTIONS), search)


def _find_of_pytest(words: Sequence[str], search: list[str]) -> Files:
  """Returns the files of `python -m pytest WORDS...`."""
  given = _read_arguments(words, _PYTEST_OPTIONS)
  patterns, places = _read_pytest_settings(given)
  by_name = "--pyargs" in given.options
  found: list[str] = []
  for word in given.words:
    place = word.partition("::")[0]
    found += _list_tests(place, patterns)
    if by_name and not os.path.exists(place):
      found += _find_tests_of(place, search, patterns)
  if not found:
    found = [file for place in places for file in _list_tests(place, patterns)]
  collected: list[str] = []
  for file in map(os.path.abspath, found):
    folders = list(program_modules.list_package_folders(os.path.dirname(file)))
    search += [folder for folder in folders[-1:] if folder not in search]
    for folder in folders:
      settings = os.path.join(folder, "conftest.py")
      if settings not in collected and os.path.isfile(settings):
        collected.append(settings)
    collected.append(file)
  return Files(None, collected, search)


def _read_pytest_settings(given: _Arguments) -> tuple[str, list[str]]:
  """Returns the patterns of test files, and where they are by default."""
  chosen = given.get("-c", "--config-file")
  names = ["pytest", "tool:pytest"]
  for path in [chosen] if chosen else ["pytest.ini", "tox.ini", "setup.cfg"]:
    section = _read_section([path], names)
    if section is not None:
      places = section.get("testpaths", "").split()
      return section.get("python_files", _PYTEST_TESTS), places or ["."]
  return _PYTEST_TESTS, ["."]


def _read_section(
  paths: Sequence[str], names: Sequence[str]
) -> dict[str, str] | None:
  """Returns the first section of configuration files that is there, or None."""
  import configparser  # Seldom needed.

  config = configparser.ConfigParser(interpolation=None, strict=False)
  # The runner reports the error.
  with contextlib.suppress(configparser.Error, UnicodeDecodeError):
    config.read(paths, "utf-8")
  return next((dict(config[name]) for name in names if name in config), None)


def _discover(start: str, pattern: str, top: str, search: list[str]) -> Files:
  """Returns the test files in a folder, or in a package."""
  search = list(dict.fromkeys([*search, os.path.abspath(top)]))
  if os.path.isdir(start):
    found = [os.path.abspath(path) for path in _list_tests(start, pattern)]
  else:
    found = _find_tests_of(start, search, pattern)
  return Files(None, found, search)


def _find_named(given: _Arguments, search: list[str]) -> Files:
  """Returns the test files that names of modules, classes and tests mean."""
  collected: list[str] = []
  for word in given.words:
    if os.path.isfile(word) or (os.path.isdir(word) and os.sep in word):
      collected += map(os.path.abspath, _list_tests(word, _TESTS))
    else:
      name = word.partition(":")[0]
      collected += _find_tests_of(name, search, "*test*.py")
  return Files(None, collected, search)


def _find_tests_of(
  name: str, search: Sequence[str], patterns: str
) -> list[str]:
  """Returns the files of a module, class or test by its dotted name.

  Of a package, these are its `__init__.py` and the test files in its folder.
  """
  parts = name.split(".")
  if not all(part.isidentifier() for part in parts):
    return []
  for i in range(len(parts), 0, -1):
    spec = _find_spec(".".join(parts[:i]), search)
    if spec is None:
      continue
    found = [spec.origin] if spec.has_location and spec.origin else []
    if i == len(parts):  # Else a class or function in the file is meant.
      for folder in spec.submodule_search_locations or ():
        found += _list_tests(folder, patterns)
    return found
  return []


def _list_tests(place: str, patterns: str) -> Iterator[str]:
  """Yields the test files in a folder and those below, or the file itself."""
  if os.path.isfile(place) and place.endswith(".py"):
    yield place
  names = patterns.split()
  for path, folders, files in os.walk(place):
    folders[:] = sorted(
      each for each in folders if each not in _SKIPPED and each[0] != "."
    )
    for file in sorted(files):
      if file.endswith(".py") and any(
        fnmatch.fnmatch(file, name) for name in names
      ):
        yield os.path.join(path, file)


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


_RUNNERS: dict[str, Callable[[Sequence[str], list[str]], Files]] = {
  "green": _find_of_trial,
  "nose2": _find_of_nose2,
  "nose": _find_of_nose2,
  "py.test": _find_of_pytest,
  "pytest": _find_of_pytest,
  "testtools.run": _find_of_unittest,
  "timeit": _find_of_timeit,
  "trial": _find_of_trial,
  "twisted.trial": _find_of_trial,
  "unittest": _find_of_unittest,
  "xmlrunner": _find_of_unittest,
}
