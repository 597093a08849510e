# SPDX-License-Identifier: Apache-2.0
"""Errors of the command line: one line on stderr instead of a traceback."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn


class Mistake(Exception):
  """An error that the user can mend; the message is one line."""


class Parser(argparse.ArgumentParser):
  """A parser that reports an error in one line, without a page of usage."""

  def error(self, message: str) -> NoReturn:
    self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def as_line(error: BaseException) -> str:
  """Returns an error's message in one line.

  A path or a library may have put line ends into the message.
  """
  if isinstance(error, OSError) and error.strerror:
    name = f"{error.filename}: " if error.filename else ""
    return " ".join(f"{name}{error.strerror}".split())
  return " ".join(str(error).split())


def warn(message: str, command: str = "") -> None:
  """Prints a line on stderr that begins with the name of the command."""
  print(f"{f'tf-lossscale {command}'.strip()}: {message}", file=sys.stderr)
