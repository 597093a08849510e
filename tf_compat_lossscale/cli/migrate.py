# SPDX-License-Identifier: Apache-2.0
"""`tf-lossscale migrate`: edits sources so that they use this package."""

from __future__ import annotations

import argparse
import sys

from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import scan

SUMMARY = "edit old sources so that they use this package"


def add_arguments(parser: errors.Parser) -> None:
  """Adds the subcommand's description and arguments to its parser."""
  parser.description = (
    "Shows the edits that `scan` lists as a unified diff, or makes them."
  )
  parser.add_argument(
    "paths", nargs="+", metavar="PATH", help="a file or folder"
  )
  parser.add_argument(
    "--write", action="store_true", help="edit the files and show no diff"
  )


def execute(arguments: argparse.Namespace) -> int:
  """Prints or makes the edits and returns the exit status."""
  from tf_compat_lossscale.legacy import migrate

  code = scan.read_code(arguments.paths)
  keras_2 = code.needs_keras_2  # Computed from all sources, so only once.
  for source in code.touched:
    try:
      before, after = migrate.edit_source(source, keras_2)
      if before == after:
        continue
      if arguments.write:
        migrate.replace_file(source.path, after)
        print(f"{source.path}: rewritten")
      else:
        print(migrate.make_diff(source.path, before, after), end="")
    except OSError as error:
      raise errors.Mistake(f"{source.path}: {error.strerror}") from error
    except ImportError as error:
      raise errors.Mistake(str(error)) from error
  for finding in code.list_findings():
    if finding.edit.startswith("by hand"):
      position = f"{finding.path}:{finding.line}"
      print(f"{position}: {finding.name}: {finding.edit}", file=sys.stderr)
  scan.warn_of_unreadable(code)
  return 2 if code.errors else 0
