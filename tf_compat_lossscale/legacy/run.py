"""Runs a program that was written for an older TensorFlow, as it stands.

`python SCRIPT` itself is what runs it, so that arguments, exit status, signals
and tracebacks are Python's. The environment has it start with this package:
Python imports `sitecustomize` (ours is in `_site/`) before anything else, and
every Python process started from there inherits that.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
import importlib.machinery
import importlib.util
import os
import sys
from typing import NamedTuple
from typing import NoReturn

from tf_compat_lossscale import _requirements
from tf_compat_lossscale.legacy import sources as legacy_sources
from tf_compat_lossscale.legacy import which_keras

_MODE = "TF_COMPAT_LOSSSCALE_RUN"  # "tf1" or "tf2", for `_site/`.
_SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_site")


class LaunchError(Exception):
  """Why a program cannot be run as asked; one line."""


class Choice(NamedTuple):
  """What a program runs on.

  Attributes:
    tensorflow: 1 or 2: what `import tensorflow` is to it.
    keras: 2 or 3: what `tf.keras` is to it; None leaves that as it is.
    reason: What in the program the choice rests on, in words.
    uses_keras: Whether the program uses Keras, or what is built on it.
  """

  tensorflow: int
  keras: int | None
  reason: str = ""
  uses_keras: bool = False

  def __str__(self) -> str:
    keras = f" --keras{self.keras}" if self.keras else ""
    return f"--tf{self.tensorflow}{keras}"


def choose(
  path: str | None,
  search: Sequence[str],
  tensorflow: int | None = None,
  keras: int | None = None,
) -> Choice:
  """Decides by its source what a program is to run on.

  Args:
    path: The program's file; None if it has none.
    search: Folders from which it imports modules of its own.
    tensorflow: 1 or 2, to have that decided already.
    keras: 2 or 3, likewise.

  Returns:
    The choice. TensorFlow 1 is for programs that use, on plain `tensorflow`,
    what TensorFlow 2 has in `tf.compat.v1` alone. Keras 2 goes with it, and
    with all that uses a legacy name.
  """
  sources = read_program(path, search) if path else []
  evidence = [
    f"{use.written}, {os.path.basename(source.path)} line {use.line}"
    for source in sources
    for use in source.tensorflow1[:1]
  ]
  reason = ""
  if tensorflow is None:
    tensorflow = 1 if evidence else 2
    if sources:  # Else there is nothing to go by, and Python will say why.
      shown = f" ({evidence[0]})" if evidence else ""
      reason = f"TensorFlow {tensorflow} code{shown}"
  legacy = any(source.uses for source in sources)
  if keras is None and (tensorflow == 1 or legacy):
    keras = 2
  uses_keras = any(source.keras for source in sources)
  return Choice(tensorflow, keras, reason, uses_keras)


def read_program(
  path: str, search: Sequence[str]
) -> list[legacy_sources.Source]:
  """Reads a program and the modules of its own that it imports.

  Args:
    path: Its file.
    search: Folders in which its own modules are.

  Returns:
    What could be read, the program itself first.
  """
  sources, seen, waiting = [], {path}, [path]
  while waiting:
    current = waiting.pop(0)
    try:
      source = legacy_sources.parse(current)
    except legacy_sources.SourceError:
      continue  # Python will say so, if it comes to that.
    sources.append(source)
    for module in source.modules:
      dots = len(module) - len(module.lstrip("."))
      folders = list(search)
      if dots:
        folders = [os.path.abspath(os.path.join(current, *[".."] * dots))]
      for found in _files(module.lstrip("."), folders):
        if found not in seen:
          seen.add(found)
          waiting.append(found)
  return sources


def _files(module: str, folders: Sequence[str]) -> Iterator[str]:
  """The files that the import of a module would run."""
  parts = [part for part in module.split(".") if part]
  for folder in folders:
    for i in range(len(parts) + 1):
      base = os.path.join(folder, *parts[:i])
      for path in (f"{base}.py", os.path.join(base, "__init__.py")):
        if i and os.path.isfile(path):
          yield path


def environment(choice: Choice) -> dict[str, str]:
  """The environment in which Python runs a program as chosen.

  Raises:
    ImportError: The Keras of that choice is not installed.
  """
  env = dict(os.environ)
  env[_MODE] = f"tf{choice.tensorflow}"
  path = env.get("PYTHONPATH", "")
  if path.partition(os.pathsep)[0] != _SITE:  # It is there in a child's run.
    env["PYTHONPATH"] = _SITE + (os.pathsep + path if path else "")
  if choice.keras is not None:
    env.update(which_keras.environment(choice.keras))
  return env


def find_module(name: str, search: Sequence[str]) -> str | None:
  """The file that `python -m name` runs; nothing is imported."""
  path: Sequence[str] | None = [*search, *sys.path]
  parts = name.split(".")
  for i in range(len(parts)):
    spec = importlib.machinery.PathFinder.find_spec(
      ".".join(parts[: i + 1]), path
    )
    if spec is None:
      return None
    path = spec.submodule_search_locations
  if path is not None:
    return find_module(f"{name}.__main__", search)
  return spec.origin if spec and spec.has_location else None


def run(
  program: Sequence[str],
  tensorflow: int | None = None,
  keras: int | None = None,
  quiet: bool = False,
) -> NoReturn:
  """Becomes `python PROGRAM…`, with the legacy names in place.

  Args:
    program: SCRIPT or -m MODULE, and the arguments that it gets.
    tensorflow: 1 or 2; by default its source decides.
    keras: 2 or 3; by default its source decides.
    quiet: Says nothing of what was decided.

  Raises:
    LaunchError: It cannot be run as asked.
  """
  if sys.flags.ignore_environment or sys.flags.no_site:
    raise LaunchError(
      "run works through the environment, which Python's -E, -I and -S ignore: "
      "leave them out"
    )
  if importlib.util.find_spec("tensorflow") is None:
    raise LaunchError(_requirements.MISSING)
  if program[0] == "-m":
    search = [os.getcwd()]
    path = find_module(program[1], search)
  else:
    path = program[0]
    if os.path.isdir(path):
      path = os.path.join(path, "__main__.py")
    search = [os.path.dirname(os.path.abspath(path))]
  choice = choose(path, search, tensorflow, keras)
  try:
    env = environment(choice)
  except ImportError as error:
    if keras is not None or choice.uses_keras:
      raise LaunchError(str(error)) from None
    choice = choice._replace(keras=None)
    env = environment(choice)
  if choice.reason and not quiet:
    print(
      f"tf-lossscale: {' '.join(program[: 1 + (program[0] == '-m')])} is "
      f"{choice.reason}: run with {choice}; --quiet leaves this line out",
      file=sys.stderr,
    )
  for stream in (sys.stdout, sys.stderr):
    if stream is not None:  # What a `sitecustomize` has printed, for instance.
      stream.flush()
  command = [sys.executable, *_interpreter_flags(sys.orig_argv), *program]
  os.execve(sys.executable, command, env)


def _interpreter_flags(command: Sequence[str]) -> list[str]:
  """Python's own options in the command that started it."""
  flags: list[str] = []
  words = iter(command[1:])
  for word in words:
    if not word.startswith("-") or word[:2] in ("-c", "-m"):
      break
    flags.append(word)
    if word in ("-W", "-X"):
      flags.append(next(words))
  return flags
