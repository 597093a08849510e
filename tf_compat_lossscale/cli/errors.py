# SPDX-License-Identifier: Apache-2.0
"""Errors of the command line: one line on stderr instead of a traceback."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import errno
import re
import sys
from typing import Any
from typing import NoReturn

from tf_compat_lossscale._core import wrong_values
from tf_compat_lossscale.cli import terminal


class Mistake(Exception):
  """An error that the user can mend; the message is one line."""


class _Formatter(argparse.HelpFormatter):
  """A help page whose lines end at blanks, not within `--nvidia-switch`.

  argparse has no public hook for this.
  """

  def _split_lines(self, text: str, width: int) -> list[str]:
    return terminal.fill(" ".join(text.split()), width).split("\n")

  def _fill_text(self, text: str, width: int, indent: str) -> str:
    lines = self._split_lines(text, width - len(indent))
    return "\n".join(f"{indent}{line}" for line in lines)


class Parser(argparse.ArgumentParser):
  """A parser that reports an error in one line, without a page of usage."""

  def __init__(self, **kwargs: Any):
    super().__init__(formatter_class=_Formatter, **kwargs)

  def add_flag(self, name: str, help: str) -> None:
    """Adds an option without a value."""
    self.add_argument(name, action="store_true", help=help)

  def add_format(self) -> None:
    """Adds the option `--format`."""
    self.add_argument(
      "--format",
      choices=("text", "json"),
      default="text",
      help="the format of what is printed (default: text)",
    )

  def add_releases(self, name: str, releases: Sequence[int], help: str) -> None:
    """Adds an option for each release, such as `--tf1`; one may be given.

    The help has "{}" where the release belongs.
    """
    group = self.add_mutually_exclusive_group()
    for release in releases:
      group.add_argument(
        f"--{name}{release}",
        dest=name,
        action="store_const",
        const=release,
        help=help.format(release),
      )

  def error(self, message: str) -> NoReturn:
    self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")

  def list_options(self) -> list[str]:
    """Returns the options that the help page names."""
    return re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", self.format_help())

  def refuse(
    self, words: Sequence[str], others: Parser, hint: str = ""
  ) -> NoReturn:
    """Reports words that no parser takes, though `others` may take them.

    The hint is for a word that is like no option.
    """
    option = words[0].partition("=")[0]
    meant = ""
    if others is not self and option in others.list_options():
      place = "before" if others.prog in self.prog else "after"
      name = max(self.prog, others.prog, key=len).rpartition(" ")[2]
      meant = f" ({option} goes {place} {name})"
    elif option.startswith("-"):
      # Without dashes, which all options have, only near names are close.
      options = {each.lstrip("-"): each for each in self.list_options()}
      close = wrong_values.find_close(option.lstrip("-"), options)
      meant = f" (did you mean {options[close]!r}?)" if close else ""
    if hint and not meant:
      meant = f" ({hint})"
    self.error(f"unrecognized arguments: {' '.join(words)}{meant}")

  def _check_value(self, action: argparse.Action, value: Any) -> None:
    """Raises an ArgumentError if a value is none of the choices.

    argparse has no public hook for this. In a Python without this method, the
    message names the choices, and no near word.
    """
    if action.choices is not None and value not in action.choices:
      words = [str(choice) for choice in action.choices]
      raise argparse.ArgumentError(
        action,
        f"invalid choice: {wrong_values.show(value, words)}: choose from "
        f"{', '.join(words)}",
      )


# Nothing that the user could write otherwise helps after these.
_OF_MACHINE = (
  *(errno.EDQUOT, errno.EIO, errno.EMFILE),
  *(errno.ENFILE, errno.ENOMEM, errno.ENOSPC),
)


def is_of_machine(error: BaseException | None) -> bool:
  """Returns whether the machine caused an error, such as a full disk."""
  while error is not None:
    number = getattr(error, "errno", None)
    if isinstance(error, MemoryError) or number in _OF_MACHINE:
      return True
    error = error.__cause__ or error.__context__
  return False


def as_line(error: BaseException) -> str:
  """Returns an error's message in one line.

  A path or a library may have put line ends into the message.
  """
  if isinstance(error, MemoryError):
    return "there is not enough memory"
  if isinstance(error, OSError) and error.strerror:
    name = f"{error.filename}: " if error.filename else ""
    return " ".join(f"{name}{error.strerror}".split())
  return " ".join(str(error).split())


def warn(message: str, command: str = "") -> None:
  """Prints a line on stderr that begins with the name of the command."""
  print(f"{f'tf-lossscale {command}'.strip()}: {message}", file=sys.stderr)
