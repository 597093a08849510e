# SPDX-License-Identifier: Apache-2.0
"""`--format=github`: commands that GitHub Actions shows beside the code."""

from __future__ import annotations

from tf_compat_lossscale.cli import terminal
from tf_compat_lossscale.cli.reports import text
from tf_compat_lossscale.migration import findings

_ESCAPES = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY_ESCAPES = _ESCAPES | {":": "%3A", ",": "%2C"}


def write(report: findings.Report, printer: terminal.Printer) -> None:
  """Prints workflow commands: findings, notices and unreadable files."""
  for finding in report.findings:
    printer.write(format_finding(finding) + "\n")
  for notice in text.list_notices(report):
    printer.write(f"::notice title=no loss scaling::{_escape(notice)}\n")
  for error in report.errors:
    printer.write(f"::error title=unreadable::{_escape(error)}\n")


def format_finding(finding: findings.Finding) -> str:
  """Returns the workflow command for a finding."""
  properties = {"file": finding.path}
  if finding.cell is None:  # GitHub knows no cells.
    properties |= {
      "line": str(finding.line),
      "col": str(finding.column),
      "endLine": str(finding.end_line),
      "endColumn": str(finding.end_column),
    }
  properties["title"] = finding.code
  pairs = ",".join(
    f"{key}={_escape_property(value)}" for key, value in properties.items()
  )
  message = "".join(part for part, _ in text.format_finding(finding))
  return f"::error {pairs}::{_escape(message)}"


def _escape(value: str) -> str:
  """Returns a message as a workflow command may have it."""
  return "".join(_ESCAPES.get(character, character) for character in value)


def _escape_property(value: str) -> str:
  """Returns a property as a workflow command may have it."""
  return "".join(
    _PROPERTY_ESCAPES.get(character, character) for character in value
  )
