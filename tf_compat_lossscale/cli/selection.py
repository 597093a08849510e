# SPDX-License-Identifier: Apache-2.0
"""The arguments that `scan` and `migrate` share: what to read, and how."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from typing import TYPE_CHECKING

from tf_compat_lossscale import _releases
from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import terminal

if TYPE_CHECKING:
  from tf_compat_lossscale.migration import findings

STANDARD_INPUT = "-"
_TARGET = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?")
_LISTS = {
  "select": "only these codes, such as LS101, or LS1 for all that begin so",
  "ignore": "not these codes",
  "exclude": "not the files and folders of these names (*_pb2.py), or, with a "
  "slash, of these paths (old/*.py)",
}


def add_arguments(parser: errors.Parser) -> None:
  """Adds the shared arguments to the parser of a subcommand."""
  parser.add_argument(
    "paths",
    nargs="*",
    default=["."],
    metavar="PATH",
    help="a file, a folder, or - for standard input (default: the working "
    "folder); all are taken for the files of one program, or of programs that "
    "belong together",
  )
  parser.add_argument(
    "--stdin-filename",
    metavar="NAME",
    help="the name of the file that standard input is the text of; with "
    ".ipynb, a notebook",
  )
  for name, meaning in _LISTS.items():
    parser.add_argument(
      f"--{name}",
      action="append",
      default=[],
      metavar="CODES" if name != "exclude" else "PATTERNS",
      help=f"{meaning}; separate several by commas",
    )
  meaning = "the files mean TensorFlow {}, whatever they say"
  parser.add_releases("tf", (1, 2), meaning)
  parser.add_flag(
    "--nvidia-switch",
    "the programs start with TF_ENABLE_AUTO_MIXED_PRECISION=1, whatever "
    "sets it: each must call tfl.honor_environment()",
  )
  parser.add_argument(
    "--target",
    type=_parse_target,
    metavar="RELEASE",
    help="the TensorFlow to move to, such as 2.15 (default: the installed one)",
  )
  parser.add_format()
  parser.add_argument(
    "--reportfile",
    type=_parse_report_file,
    metavar="FILE",
    help="write the report that `scan` prints into FILE",
  )
  parser.add_flag("--list", "list the codes, and do nothing else")


def _parse_report_file(path: str) -> str:
  """Returns the path of a report, unless it is that of a program."""
  if path.endswith((".py", ".ipynb")):  # `--reportfile *.py`, for instance.
    raise argparse.ArgumentTypeError(
      f"a report does not replace a program, but got {path}: name another file"
    )
  return path


def read(
  arguments: argparse.Namespace, data: bytes = b"", edited: tuple[str, ...] = ()
) -> findings.ScanReport:
  """Reads the sources that the command line selects.

  The bytes are those of standard input, if that is selected. The edits of
  findings with the states `edited` are planned.

  Raises:
    Mistake: An argument is wrong, or there is no such file or folder.
  """
  from tf_compat_lossscale.migration import findings
  from tf_compat_lossscale.migration import rules
  from tf_compat_lossscale.migration import scanner

  lists = {name: _split(getattr(arguments, name)) for name in _LISTS}
  for name in ("select", "ignore"):
    try:
      rules.check_codes(lists[name])
    except rules.CodeError as error:
      raise errors.Mistake(f"--{name}: {error}") from None
  options = scanner.ScanOptions(
    **lists,
    tensorflow=arguments.tf,
    target=arguments.target,
    nvidia_switch=arguments.nvidia_switch,
    edited=edited,
  )
  try:
    if STANDARD_INPUT in arguments.paths:
      name = arguments.stdin_filename or STANDARD_INPUT
      return scanner.scan_text(data, name, options)
    with terminal.show_progress("Reading") as progress:
      return scanner.scan(arguments.paths, options, progress)
  except findings.ScanError as error:
    raise errors.Mistake(errors.as_line(error)) from None


def read_standard_input(arguments: argparse.Namespace) -> bytes:
  """Returns the bytes of standard input; b"" if it is not selected.

  Raises:
    Mistake: Standard input is closed, or the paths are wrong.
  """
  paths = arguments.paths
  is_piped = STANDARD_INPUT in paths
  if is_piped and len(paths) > 1:
    raise errors.Mistake("give PATH or -, for standard input, but not both")
  if arguments.stdin_filename and not is_piped:
    raise errors.Mistake("--stdin-filename goes with the PATH -")
  if not is_piped:
    return b""
  if sys.stdin is None:
    raise errors.Mistake("standard input is closed")
  return sys.stdin.buffer.read()


def make_command(arguments: argparse.Namespace) -> str:
  """Returns the command that makes the edits that a command line found."""
  words = [f"--tf{arguments.tf}"] if arguments.tf else []
  words += ["--nvidia-switch"] if arguments.nvidia_switch else []
  if arguments.target:
    words.append("--target={}.{}".format(*arguments.target))
  for name in _LISTS:
    words += [f"--{name}={value}" for value in getattr(arguments, name)]
  if STANDARD_INPUT not in arguments.paths:
    words.insert(0, "--write")
  return shlex.join(["tf-lossscale", "migrate", *words, *arguments.paths])


def _split(values: list[str]) -> tuple[str, ...]:
  """Returns the words of an option that may be given several times."""
  return tuple(word.strip() for value in values for word in value.split(","))


def _parse_target(text: str) -> tuple[int, int]:
  """Returns the release of `--target`, such as "2.15"."""
  match = _TARGET.fullmatch(text)
  release = (int(match[1]), int(match[2])) if match else None
  if release is None or release[0] != 2 or release < _releases.OLDEST:
    raise argparse.ArgumentTypeError(
      f"{text!r} is no TensorFlow release from "
      f"{_releases.show(_releases.OLDEST)} on, such as 2.15"
    )
  return release
