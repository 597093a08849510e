# SPDX-License-Identifier: Apache-2.0
"""`tf-lossscale scan`: lists what has to change in old sources."""

from __future__ import annotations

import argparse
import sys

from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import selection
from tf_compat_lossscale.cli import terminal

SUMMARY = "list what has to change in old sources, and the edits"


def add_arguments(parser: errors.Parser) -> None:
  """Adds the subcommand's description and arguments to its parser."""
  parser.description = (
    "Lists the places in Python sources and notebooks that have to change, "
    "with what to write instead, for programs that use TensorFlow's legacy "
    "loss scaling. Each place is one of these: migrate (`migrate --write` "
    "makes the edit), offered (`migrate --offered` makes it), or by hand. The "
    "exit status is 0 if there is nothing to change, 1 if there is, and 2 for "
    "a mistake, or if there is nothing to change but a file could not be read."
  )
  selection.add_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
  """Prints the findings and returns the exit status."""
  if arguments.list:
    return list_codes()
  from tf_compat_lossscale.cli import reports

  data = selection.read_standard_input(arguments)
  report = selection.read(arguments, data)
  with terminal.allow_closed_pipe():
    reports.write(report, arguments)
  if arguments.format == "text":
    reports.warn(report)
  return 1 if report.findings else 2 if report.errors else 0


def list_codes() -> int:
  """Prints each code, its name, states and summary; returns the exit status."""
  from tf_compat_lossscale.migration import rules
  from tf_compat_lossscale.migration import scanner

  printer = terminal.Printer(sys.stdout)
  rows = [
    (rule.code, rule.name, ", ".join(scanner.find_states(rule)), rule.summary)
    for rule in rules.list_rules()
  ]
  widths = [max(len(row[i]) for row in rows) for i in range(3)]
  for code, name, states, summary in rows:
    printer.print(
      (f"{code:<{widths[0]}}  ", "bold red"),
      f"{name:<{widths[1]}}  {states:<{widths[2]}}  {summary}",
    )
  return 0
