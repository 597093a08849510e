# SPDX-License-Identifier: Apache-2.0
"""`--list`: the codes."""

from __future__ import annotations

from tf_compat_lossscale.cli import terminal
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
