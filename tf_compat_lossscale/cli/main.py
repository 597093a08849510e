# SPDX-License-Identifier: Apache-2.0
"""The entry point of `tf-lossscale`: reads arguments and runs a subcommand.

A subcommand is a module of this folder. It imports what it needs when it runs,
so that `--help` and `run` start fast and need no TensorFlow.
"""

from __future__ import annotations

from collections.abc import Sequence
import importlib
import os
import sys
from typing import Any
from typing import TYPE_CHECKING

from tf_compat_lossscale._version import __version__

if TYPE_CHECKING:
  from tf_compat_lossscale.cli import errors

_MISTAKE = 2
_INTERRUPTED = 130  # 128 plus the number of SIGINT, as shells report it.
_INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h.


# Each is a module that has `SUMMARY`, a line of `tf-lossscale --help`;
# `add_arguments`, which takes the subcommand's parser; and `execute`, which
# takes the arguments, runs the subcommand and returns the exit status. They are
# imported in `main`, so that Ctrl-C meanwhile is no traceback.
_COMMANDS = (
  *("version", "run", "scan", "migrate", "explain"),
  *("inspect", "convert", "doctor", "plot"),
)

# Option of other tools -> what to do instead, in the commands that report.
_MEANT = {
  **dict.fromkeys(
    ("--fix", "--write", "--in-place", "--inplace", "-w", "-i"),
    "tf-lossscale migrate --write makes the edits",
  ),
  "--dry-run": "nothing but migrate --write edits files",
  "--json": "use --format=json",
}


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command line of the process, or another; returns the exit status.

  Raises:
    SystemExit: An argument, or the file that it names, is wrong (status 2), or
      there is an error in this package (status 70).
  """
  words = list(sys.argv[1:] if argv is None else argv)
  _open_closed_streams()
  try:
    return _run_command(words)
  except BrokenPipeError:
    from tf_compat_lossscale.cli import terminal

    terminal.drop_output()  # Its reader, such as `head`, has ended.
    return 0
  except KeyboardInterrupt:
    if "--traceback" in words:
      raise
    print("tf-lossscale: interrupted", file=sys.stderr)
    return _INTERRUPTED


def _run_command(argv: Sequence[str]) -> int:
  """Runs a command line and returns the exit status."""
  from tf_compat_lossscale.cli import errors
  from tf_compat_lossscale.cli import run
  from tf_compat_lossscale.cli import terminal

  words, program = run.split_words(argv)
  parser, subparsers = _make_parsers()
  if "_ARGCOMPLETE" in os.environ:  # The shell asks for completions.
    import argcomplete

    argcomplete.autocomplete(parser)
  arguments, others = parser.parse_known_args(words)
  name = arguments.command
  if others:
    meant = "the program's options go after it" if name == "run" else ""
    if name in ("scan", "migrate", "inspect", "doctor"):
      meant = _MEANT.get(others[0].partition("=")[0], "")
    reporting, another = subparsers.get(name, parser), parser
    if name and others[0] in words[: words.index(name)]:
      reporting, another = another, reporting
    reporting.refuse(others, another, meant)
  if name is None:
    parser.error("the following arguments are required: COMMAND")
  arguments.program = program
  prefix = f"{parser.prog} {name}"
  try:
    status: int = _import_command(name).execute(arguments)
    sys.stdout.flush()
  except BrokenPipeError:
    raise
  except Exception as error:
    if arguments.traceback:
      raise
    terminal.drop_output()
    status, message = _describe(error)
    if status == _INTERNAL_ERROR:
      message += f"; {parser.prog} --traceback {name} shows where"
    elif not errors.is_of_machine(error):
      message += f"; see {prefix} --help"
    parser.exit(status, f"{prefix}: {message}\n")
  return status


def _import_command(name: str) -> Any:
  """Returns the module of a subcommand."""
  return importlib.import_module(f"tf_compat_lossscale.cli.{name}")


def _open_closed_streams() -> None:
  """Opens the null device for a closed standard output or standard error.

  Otherwise the next file that is opened would get the stream's descriptor.
  """
  for name in ("stdout", "stderr"):
    if getattr(sys, name) is None:
      setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115


def _describe(error: Exception) -> tuple[int, str]:
  """Returns the exit status and the message for an error of a subcommand."""
  from tf_compat_lossscale import _requirements
  from tf_compat_lossscale.cli import errors

  if isinstance(error, (errors.Mistake, OSError, MemoryError)):
    return _MISTAKE, errors.as_line(error)
  try:
    _requirements.explain(error)
  except ImportError as clearer:
    return _MISTAKE, str(clearer)
  kind = type(error).__name__
  return _INTERNAL_ERROR, f"internal error: {kind}: {errors.as_line(error)}"


def _make_parsers() -> tuple[errors.Parser, dict[str, errors.Parser]]:
  """Returns the parser of the command line, and those of the subcommands."""
  from tf_compat_lossscale.cli import errors

  parser = errors.Parser(
    prog="tf-lossscale",
    description="TensorFlow's deprecated loss-scaling API as a package of its "
    "own: runs and migrates old programs, inspects and converts checkpoints, "
    "shows and judges the loss scale of runs.",
  )
  parser.add_argument(
    "-V",
    "--version",
    action="version",
    version=f"tf_compat_lossscale {__version__}",
    help="print this package's version; the command `version` prints more",
  )
  parser.add_flag("--traceback", "show Python's traceback of an error")
  commands = parser.add_subparsers(dest="command", metavar="COMMAND")
  subparsers = {}
  for name in _COMMANDS:
    command = _import_command(name)
    subparsers[name] = commands.add_parser(name, help=command.SUMMARY)
    command.add_arguments(subparsers[name])
  return parser, subparsers
