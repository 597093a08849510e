# SPDX-License-Identifier: Apache-2.0
"""Runs a program that was written for an older TensorFlow, unchanged.

`python SCRIPT` runs the program, so that its arguments, exit status, signals
and tracebacks are Python's. An environment variable puts `_site/` first on
Python's path. Python imports the `sitecustomize` there before anything else,
and that module loads this package. Python processes that the program starts
inherit the variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import importlib.util
import os
import sys
from typing import NoReturn

from tf_compat_lossscale import _requirements
from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.programs import choices
from tf_compat_lossscale.programs import program_files
from tf_compat_lossscale.programs.choices import RunError

# "tf1", "tf2", or "auto" for a program that does not import TensorFlow: then
# each Python process that the program starts decides for itself. `_site/` reads
# the variable.
_MODE = "TF_COMPAT_LOSSSCALE_RUN"
_OPTIMIZERS = "TF_COMPAT_LOSSSCALE_KERAS_OPTIMIZERS"  # `_site/` reads it, too.
_WATCH = "TF_COMPAT_LOSSSCALE_WATCH"  # The folder of `--watch`, for `_site/`.
_SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_site")

# Windows has `os.execve`, too, but there it starts another process and ends
# this one at once, so that a shell would not wait for the program.
_CAN_REPLACE_PROCESS = os.name == "posix"


def make_environment(choice: choices.Choice) -> dict[str, str]:
  """Returns the environment in which Python runs a program as chosen.

  Raises:
    ImportError: The Keras of that choice is not installed.
  """
  env = dict(os.environ)
  env[_MODE] = f"tf{choice.tensorflow}"
  path = env.get("PYTHONPATH", "")
  # A program that was itself started by `run` has the folder already.
  if path.partition(os.pathsep)[0] != _SITE:
    env["PYTHONPATH"] = _SITE + (os.pathsep + path if path else "")
  env.pop(_OPTIMIZERS, None)
  if choice.optimizers is not None:
    env[_OPTIMIZERS] = choice.optimizers
  if choice.keras is not None:
    env.update(which_keras.make_environment(choice.keras))
  return env


def run(
  program: Sequence[str],
  options: choices.Options,
  quiet: bool = False,
  watch: str | None = None,
) -> NoReturn:
  """Runs `python PROGRAM…` with the legacy names, in place of this process.

  Args:
    program: SCRIPT, -m MODULE or -c CODE, and the program's arguments.
    options: What the user chose.
    quiet: Whether to print no line about the choice.
    watch: The folder for the scalars of the loss scales, or None.

  Raises:
    RunError: The program cannot be run as asked.
  """
  _check(program)
  if sys.flags.ignore_environment or sys.flags.no_site:
    raise RunError(
      "run sets environment variables, which Python's options -E, -I and -S "
      "ignore: run without these options"
    )
  env = _decide_environment(program, options, quiet)
  if watch is not None:
    env[_WATCH] = os.path.abspath(watch)
  for stream in (sys.stdout, sys.stderr):
    # A `sitecustomize` may have printed something. Windows has programs without
    # these streams.
    if stream is not None:
      stream.flush()
  flags = _find_interpreter_flags(sys.orig_argv)
  _replace_process([sys.executable, *flags, *program], env)


def explain(program: Sequence[str], options: choices.Options) -> str:
  """Returns what `run` would do with a program, and why; runs nothing.

  The arguments and the error are those of `run`. A program that cannot be read
  is an error, too.
  """
  _check(program)
  read = program_files.read_program(program)
  if not read.levels:
    raise RunError(read.error)
  choice = choices.choose(read, options)
  lines = choices.explain(read, choice)
  return "\n".join([f"{' '.join(program)}: run with {choice}", *lines])


def _check(program: Sequence[str]) -> None:
  """Checks that there is a TensorFlow, and that the program is no notebook."""
  if program[0].endswith(".ipynb"):
    raise RunError(
      f"{program[0]} is a notebook: run `tf-lossscale migrate --write "
      f"{program[0]}` once, or execute it by `tf-lossscale run --tf1 -m "
      f"nbconvert --to notebook --execute {program[0]}`"
    )
  if importlib.util.find_spec("tensorflow") is None:
    raise RunError(_requirements.MISSING)


def decide_in_process() -> None:
  """Decides for this process, which a program under `run` has started.

  The environment variables change for this process and those that it starts.

  Raises:
    RunError: The Keras that the process needs is not installed.
  """
  flags = _find_interpreter_flags(sys.orig_argv)
  program = sys.orig_argv[1 + len(flags) :]
  if program and program[0] != "-" and not program[0].startswith("-c"):
    if program[0].startswith("-m"):
      program = ["-m", *filter(None, [program[0][2:]]), *program[1:]]
    quiet = os.environ.get(legacy_names.QUIET) == "1"
    os.environ.update(_decide_environment(program, choices.Options(), quiet))


def _decide_environment(
  program: Sequence[str], options: choices.Options, quiet: bool
) -> dict[str, str]:
  """Returns the environment for a program; says what was decided.

  The arguments and the error are those of `run`.
  """
  read = program_files.read_program(program)
  choice = choices.choose(read, options)
  try:
    env = make_environment(choice)
  except ImportError as error:
    if any(options[1:]) or choice.uses_keras:
      raise RunError(str(error)) from None
    choice = choice._replace(keras=None, optimizers=None)
    env = make_environment(choice)
  env[legacy_names.QUIET] = str(int(quiet))
  env[legacy_names.PACKAGES] = os.pathsep.join(read.packages)
  if choice.decision is not None:
    if not quiet:
      print(
        f"tf-lossscale: {' '.join(program[: 1 + (program[0] == '-m')])} is "
        f"{choice.explain()}: run with {choice}; --quiet omits this line",
        file=sys.stderr,
      )
  elif not any(options):
    env[_MODE] = "auto"
  return env


def _replace_process(command: list[str], env: Mapping[str, str]) -> NoReturn:
  """Runs a command in place of this process; ends with its exit status."""
  if _CAN_REPLACE_PROCESS:
    os.execve(command[0], command, env)
  import signal
  import subprocess

  # The console sends Ctrl-C to both processes;
  # the program decides what happens.
  signal.signal(signal.SIGINT, lambda *_: None)
  sys.exit(subprocess.call(command, env=env))


def _find_interpreter_flags(command: Sequence[str]) -> list[str]:
  """Returns Python's own options in the command that started this process."""
  flags: list[str] = []
  words = iter(command[1:])
  for word in words:
    if not word.startswith("-") or word[:2] in ("-c", "-m"):
      break
    flags.append(word)
    if word in ("-W", "-X"):
      flags.append(next(words))
  return flags
