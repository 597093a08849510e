# SPDX-License-Identifier: Apache-2.0
"""`tf-lossscale migrate`: edits sources so that they use this package."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from typing import Any
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
  run = _Run(arguments, terminal.Printer(sys.stdout))
  with terminal.allow_closed_pipe():
    if selection.STANDARD_INPUT not in arguments.paths:
      run.take_changes(report)
    elif not report.errors:
      run.take_text(data, report)
    if arguments.reportfile or run.is_json:
      reports.write(report, arguments, run.changes)
  run.print_rest(report)
  reports.warn(report)
  if run.failed or report.errors:
    return 2
  return 1 if arguments.check and run.done else 0


class _Run:
  """The work of `migrate` on all files.

  Args:
    arguments: The arguments of the command line.
    printer: The printer of standard output.

  Attributes:
    done: The changes that are made or shown.
    failed: Whether a file could not be written.
    is_json: Whether standard output gets a JSON object alone.
    changes: What was done with each file that changes, for JSON.
  """

  def __init__(self, arguments: argparse.Namespace, printer: terminal.Printer):
    self._arguments = arguments
    self._printer = printer
    self.done: list[findings.Change] = []
    self.failed = False
    self.is_json = arguments.format == "json" and not arguments.reportfile
    self.changes: list[dict[str, Any]] = []

  def take_changes(self, report: findings.ScanReport) -> None:
    """Writes or shows the changes, file by file."""
    for change in report.changes:
      if change.before == change.after:
        continue
      is_written = self._arguments.write and self._write(change)
      if not self._arguments.write:
        self.done.append(change)
        if not self.is_json:
          self._show(change)
      self.changes.append(
        {"path": change.path, "edits": change.edits, "written": is_written}
      )

  def take_text(self, data: bytes, report: findings.ScanReport) -> None:
    """Prints the source of standard input with its edits."""
    self.done = [each for each in report.changes if each.before != each.after]
    if not self._arguments.check and not self._arguments.diff:
      self._printer.write_bytes(self.done[0].after if self.done else data)
    elif self._arguments.diff:
      for change in self.done:
        self._show(change)

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
    is_filter = selection.STANDARD_INPUT in self._arguments.paths
    is_told = self.done or self.failed or report.findings or report.errors
    if not is_filter and not is_told:
      reports.write_summary(report, "", printer)
    if is_filter or self.is_json or not self._printer.is_terminal:
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
    """Names a file that would change, or prints its diff."""
    if self._arguments.check and not self._arguments.diff:
      self._printer.print((change.path, "bold"), ": would change")
    else:
      diff = make_diff(change.path, change.before, change.after)
      self._printer.print_diff(diff)

  def _write(self, change: findings.Change) -> bool:
    """Writes a file, prints its name, and returns whether it is written.

    Raises:
      Mistake: No file can be written any more.
    """
    try:
      # Opened for writing, too, so that a write-protected file is an error.
      with open(change.path, "rb+") as file:
        is_current = file.read() == change.before
      if is_current:
        whole_files.replace_file(change.path, change.after)
    except OSError as error:
      line = f"{change.path}: not written: {error.strerror}"
      if error.errno in _NO_SPACE:
        raise errors.Mistake(line) from error
      errors.warn(line)
      self.failed = True
      return False
    if is_current:
      self.done.append(change)
      if not self.is_json:
        self._printer.print((change.path, "bold"), ": rewritten")
    else:
      errors.warn(f"{change.path}: left alone: another program changed it")
      self.failed = True
    return is_current


def make_diff(path: str, before: bytes, after: bytes) -> bytes:
  """Returns a unified diff that `patch` and `git apply` understand.

  The lines of the diff are the bytes of the file, whatever its encoding. As
  `patch` does, we take a line feed alone for the end of a line.
  """
  import difflib  # Slow to import.

  path = os.path.normpath(path).lstrip("/")
  name = os.fsencode(path).decode("latin-1")
  old, new = _split(before.decode("latin-1")), _split(after.decode("latin-1"))
  lines = []
  for line in difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"):
    lines.append(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}")
  return "".join(lines).encode("latin-1")


def _split(text: str) -> list[str]:
  """Returns the lines of a text with their ends."""
  lines = text.split("\n")
  last = lines.pop()
  return [f"{line}\n" for line in lines] + ([last] if last else [])
