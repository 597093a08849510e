# SPDX-License-Identifier: Apache-2.0
"""The arguments that `scan` and `migrate` share: what to read, and how."""

from __future__ import annotations

import argparse
import os
import re
import sys
from typing import NamedTuple
from typing import TYPE_CHECKING

from tf_compat_lossscale.cli import errors

if TYPE_CHECKING:
  from tf_compat_lossscale.migration import scanner

STANDARD_INPUT = "-"
_TARGET = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?")
_OLDEST = (2, 12)


class Selection(NamedTuple):
  """What a command line selects.

  Attributes:
    paths: The files and folders; () for standard input.
    name: The name that standard input goes by.
    options: How to read the sources.
  """

  paths: tuple[str, ...]
  name: str
  options: scanner.Options


def add_arguments(parser: errors.Parser) -> None:
  """Adds the shared arguments to the parser of a subcommand."""
  parser.add_argument(
    "paths",
    nargs="*",
    metavar="PATH",
    help="a file, a folder, or - for standard input",
  )
  parser.add_argument(
    "--stdin-filename",
    metavar="NAME",
    help="the name of the file that standard input is the text of; with "
    ".ipynb, a notebook",
  )
  for name, meaning in (
    ("select", "only these codes, such as LS101, or LS1 for all that begin so"),
    ("ignore", "not these codes"),
    (
      "exclude",
      "not the files and folders of these names (*_pb2.py), or, with a slash, "
      "of these paths (old/*.py)",
    ),
  ):
    parser.add_argument(
      f"--{name}",
      action="append",
      default=[],
      metavar="CODES" if name != "exclude" else "PATTERNS",
      help=f"{meaning}; separate several by commas",
    )
  tensorflow = parser.add_mutually_exclusive_group()
  for release in (1, 2):
    tensorflow.add_argument(
      f"--tf{release}",
      dest="tf",
      action="store_const",
      const=release,
      help=f"the programs mean TensorFlow {release}, whatever they say",
    )
  parser.add_argument(
    "--nvidia-switch",
    action="store_true",
    help="the programs start with TF_ENABLE_AUTO_MIXED_PRECISION=1, whatever "
    "sets it: each must call tfl.honor_environment()",
  )
  parser.add_argument(
    "--target",
    type=_parse_target,
    metavar="RELEASE",
    help="the TensorFlow to move to, such as 2.15 (default: the installed one)",
  )
  parser.add_argument(
    "-j",
    "--jobs",
    type=parse_count,
    metavar="N",
    help="read the files in N processes (default: as many as there are cores)",
  )
  parser.add_argument(
    "--list", action="store_true", help="list the codes, and do nothing else"
  )


def select(arguments: argparse.Namespace) -> Selection:
  """Returns what the command line selects.

  Raises:
    Mistake: An argument is wrong.
  """
  from tf_compat_lossscale.migration import excludes
  from tf_compat_lossscale.migration import scanner

  paths = tuple(arguments.paths)
  name = arguments.stdin_filename or STANDARD_INPUT
  is_piped = STANDARD_INPUT in paths
  if not paths:
    raise errors.Mistake("name a PATH, or - for standard input")
  if is_piped and len(paths) > 1:
    raise errors.Mistake("give PATH or -, for standard input, but not both")
  if arguments.stdin_filename and not is_piped:
    raise errors.Mistake("--stdin-filename goes with the PATH -")
  for path in paths:
    if not is_piped and not os.path.lexists(path):
      raise errors.Mistake(f"{path!r} is not there")
  options = scanner.Options(
    select=_read_codes("select", arguments.select),
    ignore=_read_codes("ignore", arguments.ignore),
    exclude=excludes.make_absolute(_split(arguments.exclude)),
    tensorflow=arguments.tf,
    target=arguments.target,
    jobs=arguments.jobs,
    nvidia_switch=arguments.nvidia_switch,
  )
  return Selection(() if is_piped else paths, name, options)


def read_standard_input() -> bytes:
  """Returns the bytes of standard input.

  Raises:
    Mistake: Standard input is closed.
  """
  if sys.stdin is None:
    raise errors.Mistake("standard input is closed")
  return sys.stdin.buffer.read()


def parse_count(text: str) -> int:
  """Returns the number of an option such as `--jobs`."""
  if not text.isascii() or not text.isdecimal() or int(text) < 1:
    raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
  return int(text)


def _read_codes(option: str, values: list[str]) -> tuple[str, ...]:
  """Returns the codes of an option.

  Raises:
    Mistake: One of them is no code.
  """
  from tf_compat_lossscale.migration import rules

  words = _split(values)
  try:
    rules.check_codes(words)
  except rules.CodeError as error:
    raise errors.Mistake(f"--{option}: {error}") from None
  return words


def _split(values: list[str]) -> tuple[str, ...]:
  """Returns the words of an option that may be given several times."""
  return tuple(word.strip() for value in values for word in value.split(","))


def _parse_target(text: str) -> tuple[int, int]:
  """Returns the release of `--target`, such as "2.15"."""
  match = _TARGET.fullmatch(text)
  release = (int(match[1]), int(match[2])) if match else None
  if release is None or release[0] != _OLDEST[0] or release < _OLDEST:
    raise argparse.ArgumentTypeError(
      f"{text!r} is no TensorFlow release from 2.12 on, such as 2.15"
    )
  return release
