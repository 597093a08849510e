# SPDX-License-Identifier: Apache-2.0
"""Prints what `scan` found: as lines for people and editors, or as JSON."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from collections.abc import Sequence
import contextlib
import json
import sys
from typing import Any
from typing import TextIO

from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import selection
from tf_compat_lossscale.cli import terminal
from tf_compat_lossscale.migration import findings

_STYLES = {
  findings.MIGRATE: "green",
  findings.OFFERED: "yellow",
  findings.BY_HAND: "red",
}
_MOST_LINES = 12


def write(
  report: findings.ScanReport,
  arguments: argparse.Namespace,
  written: Sequence[findings.Change] | None = None,
) -> None:
  """Writes a report in the wanted format, to standard output or a file.

  `migrate` adds which changes it has written.

  Raises:
    OSError: The file cannot be written.
  """
  command = selection.make_command(arguments)
  with contextlib.ExitStack() as stack:
    stream: TextIO = sys.stdout
    if arguments.reportfile:
      stream = stack.enter_context(
        open(arguments.reportfile, "w", encoding="utf-8")
      )
    printer = terminal.Printer(stream)
    if arguments.format == "json":
      value = _make_object(report, command)
      if written is not None:
        value["changes"] = [
          {"path": x.path, "edits": x.edits, "written": x in written}
          for x in report.changes
          if x.before != x.after
        ]
      print(json.dumps(value, indent=2), file=stream)
      return
    for group in group_findings(report.findings):
      printer.print(*format_findings(group))
    write_summary(report, command, printer)
  if arguments.reportfile and written is None:
    write_summary(report, command, terminal.Printer(sys.stdout))


def warn(report: findings.ScanReport) -> None:
  """Prints a line for each file that could not be read."""
  for line in report.errors:
    errors.warn(line)


def group_findings(
  found: Iterable[findings.Finding],
) -> list[list[findings.Finding]]:
  """Returns findings, those of one file together that say the same."""
  groups: dict[tuple[str, ...], list[findings.Finding]] = {}
  for each in found:
    key = (each.path, each.code, each.name, each.message, each.state, each.note)
    groups.setdefault(key, []).append(each)
  return list(groups.values())


def format_findings(
  group: Sequence[findings.Finding], state: str = ""
) -> list[terminal.Part]:
  """Returns the line of findings that say the same.

  Another text may stand for their state.
  """
  finding, *others = group
  arrow = ": " if finding.state == findings.BY_HAND else " -> "
  parts = [
    (finding.place, "bold"),
    (": ", ""),
    (finding.code, "bold red"),
    (f" {finding.name}{arrow}{finding.message}", ""),
    (f" ({finding.note})" if finding.note else "", "dim"),
    (f" [{state or finding.state}]", _STYLES[finding.state]),
  ]
  if others:
    lines = []
    for each in others[:_MOST_LINES]:
      cell = f" of cell {each.cell}" if each.cell != finding.cell else ""
      lines.append(f"{each.line}{cell}")
    rest = len(others) - len(lines)
    more = f" and {rest} more" if rest else ""
    parts.append((f" (also in line {', '.join(lines)}{more})", "dim"))
  return parts


def write_summary(
  report: findings.ScanReport, command: str, printer: terminal.Printer
) -> None:
  """Prints what was found in all, and the command that makes the edits.

  Nothing is printed if no file could be read.
  """
  if not report.files:
    return
  line = terminal.number(report.files, "file")
  if report.tensorflow is not None:
    line += f", TensorFlow {report.tensorflow}"
    line += f" ({report.reason})" if report.reason else ""
  if not report.uses_loss_scaling:
    line += (
      ", no loss scaling: nothing to change; `tf-lossscale run` runs "
      "TensorFlow 1 programs as they are"
    )
  elif not report.findings:
    line += ", nothing to change"
  else:
    touched = len({finding.path for finding in report.findings})
    places = terminal.number(len(report.findings), "place")
    states = ", ".join(
      f"{count} {state}"
      for state, count in count_states(report.findings).items()
      if count
    )
    line += f": {places} in {terminal.number(touched, 'file')}: {states}"
  if report.findings:
    code = min(finding.code for finding in report.findings)
    printer.print(f"what the codes mean: tf-lossscale explain {code}")
  printer.print((line, "bold"))
  made = count_states(report.findings)[findings.MIGRATE]
  if made:
    printer.print(f"`{command}` settles {made} of them")


def _make_object(report: findings.ScanReport, command: str) -> dict[str, Any]:
  """Returns a report as a JSON object."""
  return {
    "findings": [
      {
        name: getattr(finding, name)
        for name in (
          *("path", "cell", "line", "column", "end_line", "end_column"),
          *("code", "name", "message", "note", "state"),
        )
      }
      for finding in report.findings
    ],
    "unreadable": list(report.errors),
    "files": report.files,
    "tensorflow": report.tensorflow,
    "reason": report.reason,
    "uses_loss_scaling": report.uses_loss_scaling,
    "states": count_states(report.findings),
    "command": command,
  }


def count_states(found: Iterable[findings.Finding]) -> dict[str, int]:
  """Returns state -> the number of findings, for each state."""
  counts = dict.fromkeys(findings.STATES, 0)
  for finding in found:
    counts[finding.state] += 1
  return counts
