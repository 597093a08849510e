# SPDX-License-Identifier: Apache-2.0
"""`--format=json`: everything, for programs."""

from __future__ import annotations

import json
from typing import Any

from tf_compat_lossscale.cli import terminal
from tf_compat_lossscale.cli.reports import text
from tf_compat_lossscale.migration import findings


def write(report: findings.Report, printer: terminal.Printer) -> None:
  """Prints the report as a JSON object."""
  value = {
    "findings": [_make_finding(finding) for finding in report.findings],
    "unreadable": list(report.errors),
    "projects": [_make_project(project) for project in report.projects],
  }
  printer.write(json.dumps(value, indent=2) + "\n")


def _make_finding(finding: findings.Finding) -> dict[str, Any]:
  """Returns a finding as a JSON object."""
  return {
    "path": finding.path,
    "cell": finding.cell,
    "line": finding.line,
    "column": finding.column,
    "end_line": finding.end_line,
    "end_column": finding.end_column,
    "code": finding.code,
    "name": finding.name,
    "message": finding.message,
    "note": finding.note,
    "state": finding.state,
  }


def _make_project(project: findings.Project) -> dict[str, Any]:
  """Returns the summary of a project as a JSON object."""
  return {
    "path": project.path,
    "files": project.files,
    "tensorflow": project.tensorflow,
    "reason": project.reason,
    "uses_loss_scaling": project.uses_loss_scaling,
    "unreadable": project.unreadable,
    "notes": list(project.notes),
    "missing": list(project.missing),
    "findings": len(project.findings),
    "states": text.count_states(project.findings),
  }
