# SPDX-License-Identifier: Apache-2.0
"""`tf-lossscale scan`: lists what has to change in old sources."""

from __future__ import annotations

import argparse
from collections.abc import Callable
import sys
from typing import TYPE_CHECKING

from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import selection
from tf_compat_lossscale.cli import terminal

if TYPE_CHECKING:
  from tf_compat_lossscale.migration import findings

SUMMARY = "list what has to change in old sources, and the edits"


def add_arguments(parser: errors.Parser) -> None:
  """Adds the subcommand's description and arguments to its parser."""
  parser.description = (
    "Lists the places in Python sources and notebooks that have to change, "
    "with what to write instead, for programs that use TensorFlow's legacy "
    "loss scaling. Each place is one of these: applied (`migrate` makes the "
    "edit), offered (`migrate --offered` makes it), or by hand. The exit "
    "status is 0 if there is nothing to change, 1 if there is, and 2 for a "
    "mistake, or if there is nothing to change but a file could not be read."
  )
  selection.add_arguments(parser)
  parser.add_argument(
    "--format",
    choices=("text", "json"),
    default="text",
    help="the format of the report (default: text)",
  )


def execute(arguments: argparse.Namespace) -> int:
  """Prints the findings and returns the exit status."""
  if arguments.list:
    return list_codes()
  from tf_compat_lossscale.cli.reports import json
  from tf_compat_lossscale.cli.reports import text

  write = text.write if arguments.format == "text" else json.write
  selected = selection.select(arguments)
  report = read(selected)
  status = 1 if report.findings else 2 if report.errors else 0
  with terminal.allow_closed_pipe():
    write(report, terminal.Printer(sys.stdout))
  if arguments.format == "text":
    warn(report)
  return status


def list_codes() -> int:
  """Prints each code with its name, its states and its summary.

  Returns:
    The exit status.
  """
  from tf_compat_lossscale.migration import rule_states
  from tf_compat_lossscale.migration import rules

  printer = terminal.Printer(sys.stdout)
  rows = [
    (
      rule.code,
      rule.name,
      ", ".join(rule_states.find_states(rule)),
      rule.summary,
    )
    for rule in rules.list_rules()
  ]
  widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
  for code, name, states, summary in rows:
    printer.print(
      (f"{code:<{widths[0]}}  ", "bold red"),
      f"{name:<{widths[1]}}  {states:<{widths[2]}}  {summary}",
    )
  return 0


def read(
  selected: selection.Selection,
  data: bytes | None = None,
  check: Callable[..., findings.Report] | None = None,
) -> findings.Report:
  """Reads the sources for a subcommand.

  Args:
    selected: What to read.
    data: What standard input was; None if it was not read so far.
    check: The function that checks a project; by default, `checker.check`.

  Raises:
    Mistake: There is no such file or folder.
  """
  from tf_compat_lossscale.migration import checker
  from tf_compat_lossscale.migration import findings
  from tf_compat_lossscale.migration import scanner

  check = check or checker.check
  try:
    if not selected.paths:
      if data is None:
        data = selection.read_standard_input()
      return scanner.scan_text(data, selected.name, selected.options, check)
    with terminal.show_progress("Reading") as progress:
      return scanner.scan(selected.paths, selected.options, progress, check)
  except (FileNotFoundError, findings.ScanError) as error:
    raise errors.Mistake(errors.as_line(error)) from None


def warn(report: findings.Report) -> None:
  """Prints a line for each unknown code, and for each unreadable source."""
  for line in (*report.warnings, *report.errors):
    errors.warn(line)
