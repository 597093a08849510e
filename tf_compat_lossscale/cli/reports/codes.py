# SPDX-License-Identifier: Apache-2.0
"""`--list` and `--statistics`: the codes, and how often each was found."""

from __future__ import annotations

from collections.abc import Iterable
import json
from typing import NamedTuple

from tf_compat_lossscale.cli import terminal
from tf_compat_lossscale.cli.reports import counts
from tf_compat_lossscale.migration import findings as findings_lib
from tf_compat_lossscale.migration import rule_states
from tf_compat_lossscale.migration import rules


def write(printer: terminal.Printer) -> None:
  """Prints a line for each code: its name, what happens to it, its summary."""
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


class _CodeCount(NamedTuple):
  """How often a code was found.

  Attributes:
    code: The code.
    name: The rule's name in words.
    total: The number of findings.
    states: State -> how many of them are in that state.
  """

  code: str
  name: str
  total: int
  states: dict[str, int]


def write_statistics(
  report: findings_lib.Report, printer: terminal.Printer
) -> None:
  """Prints a line for each code, the most frequent first."""
  rows = _count_codes(report.findings)
  width = len(str(rows[0].total)) if rows else 0
  for row in rows:
    states = ", ".join(f"{n} {state}" for state, n in row.states.items() if n)
    printer.print(
      f"{row.total:>{width}} ", (row.code, "bold red"), f" {row.name}: {states}"
    )


def write_statistics_json(
  report: findings_lib.Report, printer: terminal.Printer
) -> None:
  """Prints the same as a JSON list."""
  rows = [row._asdict() for row in _count_codes(report.findings)]
  printer.write(json.dumps(rows, indent=2) + "\n")


def _count_codes(findings: Iterable[findings_lib.Finding]) -> list[_CodeCount]:
  """Returns the codes that were found, the most frequent first."""
  names = {rule.code: rule.name for rule in rules.list_rules()}
  by_code: dict[str, list[findings_lib.Finding]] = {}
  for finding in findings:
    by_code.setdefault(finding.code, []).append(finding)
  rows = [
    _CodeCount(
      code, names.get(code, ""), len(group), counts.count_states(group)
    )
    for code, group in by_code.items()
  ]
  return sorted(rows, key=lambda row: (-row.total, row.code))
