# SPDX-License-Identifier: Apache-2.0
"""`tf-lossscale migrate`: edits sources so that they use this package."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from typing import TYPE_CHECKING

from tf_compat_lossscale._core import whole_files
from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import scan
from tf_compat_lossscale.cli import selection
from tf_compat_lossscale.cli import terminal

if TYPE_CHECKING:
  from tf_compat_lossscale.migration import findings

SUMMARY = "edit old sources so that they use this package"

# After these, no other file can be written either.
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_NO_NEWLINE = "\\ No newline at end of file\n"


def add_arguments(parser: errors.Parser) -> None:
  """Adds the subcommand's description and arguments to its parser."""
  parser.description = (
    "Shows the edits that `scan` lists as a unified diff, or makes them. Each "
    "file is written as a whole or not at all. What is left to do by hand is "
    "listed on stderr. The exit status is 0, 1 with --check if a file would "
    "change, and 2 for a mistake, or if a file could not be read or written. "
    "With the PATH -, the edited source is printed."
  )
  selection.add_arguments(parser)
  parser.add_flag("--diff", "show the edits as a diff (the default)")
  parser.add_flag(
    "--check",
    "name each file that would change, and exit with 1 if there is one; "
    "with --diff, show the edits, too",
  )
  parser.add_flag("--write", "edit the files and show no diff")
  parser.add_flag(
    "--offered",
    "make the edits that `scan` calls offered, too; read them afterwards",
  )


def execute(arguments: argparse.Namespace) -> int:
  """Prints or makes the edits and returns the exit status."""
  if arguments.list:
    return scan.list_codes()
  from tf_compat_lossscale.cli import reports
  from tf_compat_lossscale.migration import findings

  for option in ("check", "diff"):
    if arguments.write and getattr(arguments, option):
      raise errors.Mistake(f"--write edits the files, and --{option} does not")
  if arguments.write and selection.STANDARD_INPUT in arguments.paths:
    raise errors.Mistake("--write needs a file, and - is standard input")
  data = selection.read_standard_input(arguments)
  edited = (findings.MIGRATE, *([findings.OFFERED] * arguments.offered))
  report = selection.read(arguments, data, edited)
  run = _Run(arguments)
  with terminal.allow_closed_pipe():
    run.take(report, data)
    if arguments.reportfile or run.is_json:
      reports.write(report, arguments, run.done if arguments.write else ())
  run.print_rest(report)
  reports.warn(report)
  if run.failed or report.errors:
    return 2
  return 1 if arguments.check and run.done else 0


class _Run:
  """The work of `migrate` on all files, or on standard input.

  Attributes:
    done: The changes that are made or shown.
    failed: Whether a file could not be written.
    is_json: Whether standard output gets a JSON object alone.
  """

  def __init__(self, arguments: argparse.Namespace):
    self._arguments = arguments
    self._printer = terminal.Printer(sys.stdout)
    self._is_filter = selection.STANDARD_INPUT in arguments.paths
    self.done: list[findings.Change] = []
    self.failed = False
    self.is_json = arguments.format == "json" and not arguments.reportfile

  def take(self, report: findings.ScanReport, data: bytes) -> None:
    """Writes or shows the changes; `data` is what standard input had."""
    for change in report.changes:
      if change.before == change.after:
        continue
      if self._arguments.write:
        self._write(change)
      else:
        self.done.append(change)
        self._show(change)
    shows_source = self._is_filter and not (
      self._arguments.check or self._arguments.diff or self.is_json
    )
    if shows_source and not (self.done or report.errors):
      self._printer.write_bytes(data)

  def print_rest(self, report: findings.ScanReport) -> None:
    """Prints what is left to do on stderr, and on a terminal a count."""
    from tf_compat_lossscale.cli import reports
    from tf_compat_lossscale.migration import findings

    printer = terminal.Printer(sys.stderr)
    left = [finding for change in report.changes for finding in change.left]
    for group in reports.group_findings(left):
      printer.print(*reports.format_findings(group, "not made"))
    by_hand = [f for f in report.findings if f.state == findings.BY_HAND]
    for group in reports.group_findings(by_hand):
      printer.print(*reports.format_findings(group))
    # A reader of a pipe who sees nothing must not take that for success.
    is_told = self.done or self.failed or report.findings or report.errors
    if not self._is_filter and not is_told:
      reports.write_summary(report, "", printer)
    if self._is_filter or self.is_json or not self._printer.is_terminal:
      return
    verb = "Rewrote" if self._arguments.write else "Would rewrite"
    edits = terminal.number(sum(each.edits for each in self.done), "edit")
    line = f"{verb} {terminal.number(len(self.done), 'file')}: {edits}"
    offered = reports.count_states(report.findings)[findings.OFFERED]
    if offered and not self._arguments.offered:
      line += f", {offered} more offered (--offered)"
    rest = len(by_hand) + len(left)
    self._printer.print((f"{line}, {rest} left to do by hand.", "bold"))

  def _show(self, change: findings.Change) -> None:
    """Prints a diff, the name of a file that would change, or its new text."""
    if self.is_json:
      return
    if self._arguments.diff or not (self._is_filter or self._arguments.check):
      diff = make_diff(change.path, change.before, change.after)
      self._printer.print_diff(diff)
    elif not self._is_filter:
      self._printer.print((change.path, "bold"), ": would change")
    elif not self._arguments.check:
      self._printer.write_bytes(change.after)

  def _write(self, change: findings.Change) -> None:
    """Writes a file, and prints its name.

    Raises:
      Mistake: No file can be written any more.
    """
    problem = "left alone: another program changed it"
    try:
      # Opened for writing, too, so that a write-protected file is an error.
      with open(change.path, "rb+") as file:
        is_current = file.read() == change.before
      if is_current:
        whole_files.replace_file(change.path, change.after)
    except OSError as error:
      is_current, problem = False, f"not written: {error.strerror}"
      if error.errno in _NO_SPACE:
        raise errors.Mistake(f"{change.path}: {problem}") from error
    if not is_current:
      errors.warn(f"{change.path}: {problem}")
      self.failed = True
      return
    self.done.append(change)
    if not self.is_json:
      self._printer.print((change.path, "bold"), ": rewritten")


def make_diff(path: str, before: bytes, after: bytes) -> bytes:
  """Returns a unified diff that `patch` and `git apply` understand.

  The lines of the diff are the bytes of the file, whatever its encoding. As
  `patch` does, we take a line feed alone for the end of a line.
  """
  import difflib  # Slow to import.

  path = os.path.normpath(path).lstrip("/")
  name = os.fsencode(path).decode("latin-1")
  old, new = (
    io.StringIO(x.decode("latin-1")).readlines() for x in (before, after)
  )
  lines = []
  for line in difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"):
    lines.append(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}")
  return "".join(lines).encode("latin-1")
