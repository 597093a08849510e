# SPDX-License-Identifier: Apache-2.0
"""`tf-lossscale scan`: lists the legacy names in sources."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tf_compat_lossscale.cli import errors

if TYPE_CHECKING:
  from tf_compat_lossscale.legacy import scan

SUMMARY = "list the legacy names in old sources, and their edits"


def add_arguments(parser: errors.Parser) -> None:
  """Adds the subcommand's description and arguments to its parser."""
  parser.description = (
    "Lists the legacy names in Python sources and what to write instead. The "
    "exit status is 1 if there are legacy names, 2 if there are none but a "
    "file could not be read, and 0 otherwise."
  )
  parser.add_argument(
    "paths", nargs="+", metavar="PATH", help="a file or folder"
  )
  parser.add_argument("--format", choices=("text", "json"), default="text")


def execute(arguments: argparse.Namespace) -> int:
  """Prints the findings and returns the exit status."""
  code = read_code(arguments.paths)
  findings = list(code.list_findings())
  if arguments.format == "json":
    import json  # Slow to import.

    report = {
      "findings": [finding._asdict() for finding in findings],
      "unreadable": list(code.errors),
    }
    print(json.dumps(report, indent=2))
  else:
    for f in findings:
      note = f" ({f.note})" if f.note else ""
      print(f"{f.path}:{f.line}:{f.column}: {f.name} -> {f.edit}{note}")
    warn_of_unreadable(code)
  return 1 if findings else 2 if code.errors else 0


def read_code(paths: Sequence[str]) -> scan.CodeBase:
  """Reads sources for a subcommand.

  Raises:
    Mistake: There is no such file or folder.
  """
  from tf_compat_lossscale.legacy import scan

  try:
    return scan.read_paths(paths)
  except FileNotFoundError as error:
    raise errors.Mistake(str(error)) from None


def warn_of_unreadable(code: scan.CodeBase) -> None:
  """Prints a line for each source that could not be read."""
  for error in code.errors:
    errors.warn(error)
