# SPDX-License-Identifier: Apache-2.0
"""`--format=text`: a line for each finding, which people and editors read."""

from __future__ import annotations

from collections.abc import Sequence

from tf_compat_lossscale.cli import terminal
from tf_compat_lossscale.cli.reports import counts
from tf_compat_lossscale.migration import findings

_STYLES = {
  findings.APPLIED: "green",
  findings.OFFERED: "yellow",
  findings.BY_HAND: "red",
}


def write(report: findings.Report, printer: terminal.Printer) -> None:
  """Prints the findings, the projects, and on a terminal a closing count."""
  for finding in report.findings:
    printer.print(*format_finding(finding))
  if len(report.projects) > 1 or printer.is_terminal:
    for project in report.projects:
      printer.print(*format_project(project))
  if printer.is_terminal:
    printer.print(*format_count(report.projects))


def format_finding(
  finding: findings.Finding, state: str = ""
) -> list[terminal.Part]:
  """Returns the line of a finding.

  Args:
    finding: The finding.
    state: What to print as its state; by default that state.
  """
  return [
    (finding.place, "bold"),
    (": ", ""),
    (finding.code, "bold red"),
    (f" {describe_edit(finding)}", ""),
    (f" ({finding.note})" if finding.note else "", "dim"),
    (f" [{state or finding.state}]", _STYLES[finding.state]),
  ]


def describe_edit(finding: findings.Finding) -> str:
  """Returns what was found, and what to write or to do instead."""
  arrow = ": " if finding.state == findings.BY_HAND else " -> "
  name = " ".join(finding.name.split())
  return arrow.join(part for part in (name, finding.message) if part)


def format_project(project: findings.Project) -> list[terminal.Part]:
  """Returns the line of a project."""
  facts = [counts.number(project.files, "file")]
  if project.tensorflow is not None:
    reason = f" ({project.reason})" if project.reason else ""
    facts.append(f"TensorFlow {project.tensorflow}{reason}")
  else:
    facts.append("no TensorFlow")
  if project.findings:
    facts.append(counts.describe_states(project.findings))
  elif project.uses_loss_scaling:
    facts.append("nothing to change")
  else:
    facts.append("does not use loss scaling")
  return [(project.path, "bold"), (f": {', '.join(facts)}", "")]


def format_count(projects: Sequence[findings.Project]) -> list[terminal.Part]:
  """Returns the closing line."""
  found = [finding for project in projects for finding in project.findings]
  files = sum(project.files for project in projects)
  if not found:
    text = f"Nothing to change in {counts.number(files, 'file')}."
    return [(text, "bold green")]
  touched = len({finding.path for finding in found})
  return [
    (f"Found {counts.number(len(found), 'place')}", "bold red"),
    (f" in {touched} of {counts.number(files, 'file')}: ", ""),
    (f"{counts.describe_states(found)}.", ""),
  ]
