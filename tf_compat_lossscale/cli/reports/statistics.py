# SPDX-License-Identifier: Apache-2.0
"""`--statistics`: how often each code was found."""

from __future__ import annotations

import json

from tf_compat_lossscale.cli import terminal
from tf_compat_lossscale.cli.reports import counts
from tf_compat_lossscale.migration import findings


def write(report: findings.Report, printer: terminal.Printer) -> None:
  """Prints a line for each code, the most frequent first."""
  rows = counts.count_codes(report.findings)
  width = len(str(rows[0].total)) if rows else 0
  for row in rows:
    states = ", ".join(f"{n} {state}" for state, n in row.states.items() if n)
    printer.print(
      f"{row.total:>{width}} ", (row.code, "bold red"), f" {row.name}: {states}"
    )


def write_json(report: findings.Report, printer: terminal.Printer) -> None:
  """Prints the same as a JSON list."""
  rows = [row._asdict() for row in counts.count_codes(report.findings)]
  printer.write(json.dumps(rows, indent=2) + "\n")
