"""The command line, `tf-lossscale`: thin subcommands over the package.

Errors are one line on stderr, and exit status 2.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import importlib.metadata
import os
import platform
import sys
from typing import NoReturn

from tf_compat_lossscale._version import __version__


class _Parser(argparse.ArgumentParser):
  """Says what is wrong in one line, not under a page of usage."""

  def error(self, message: str) -> NoReturn:
    self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command line.

  Args:
    argv: The arguments; by default those of the process.

  Returns:
    The exit status.
  """
  parser = _Parser(
    prog="tf-lossscale",
    description="TensorFlow's deprecated loss-scaling API, standing alone.",
  )
  commands = parser.add_subparsers(
    dest="command", required=True, metavar="COMMAND"
  )
  version = commands.add_parser(
    "version", help="print the versions of this package and what it runs on"
  )
  version.set_defaults(run=_version)
  arguments = parser.parse_args(argv)
  try:
    status = arguments.run()
    sys.stdout.flush()
  except BrokenPipeError:  # The reader has seen enough, as `head` does.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    status = 0
  return status


def _version() -> int:
  print(f"tf_compat_lossscale {__version__}")
  for package in ("tensorflow", "tf_keras", "absl-py"):
    try:
      print(package, importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
      print(package, "is not installed")
  print("Python", platform.python_version())
  return 0
