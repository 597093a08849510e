# SPDX-License-Identifier: Apache-2.0
"""`--format=text`: a line for each finding, which people and editors read."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence

from tf_compat_lossscale.cli import terminal
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
  for project in report.projects:
    write_project(project, printer)
  if printer.is_terminal:
    printer.print(*format_count(report.projects))


def write_project(project: findings.Project, printer: terminal.Printer) -> None:
  """Prints the line of a project; none if all its files are unreadable."""
  if project.unreadable < project.files or not project.files:
    printer.print(*format_project(project))


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
  facts = [number(project.files, "file")]
  if project.unreadable:
    facts.append(f"{project.unreadable} cannot be read")
  if project.tensorflow is not None:
    reason = f" ({project.reason})" if project.reason else ""
    facts.append(f"TensorFlow {project.tensorflow}{reason}")
  else:
    facts.append("no TensorFlow")
  if project.findings:
    facts.append(describe_states(project.findings))
  elif project.unreadable:
    pass  # Nobody knows what is in these files.
  elif project.uses_loss_scaling:
    facts.append("nothing to change")
  elif project.speaks_of_it:
    facts.append("does not use TensorFlow's legacy loss scaling")
  else:
    facts.append("does not use loss scaling")
  notes = f": {'; '.join(project.notes)}" if project.notes else ""
  return [(project.path, "bold"), (f": {', '.join(facts)}{notes}", "")]


def format_count(projects: Sequence[findings.Project]) -> list[terminal.Part]:
  """Returns the closing line."""
  found = [finding for project in projects for finding in project.findings]
  files = sum(project.files for project in projects)
  if not found:
    where = f"in {number(files, 'file')}"
    unreadable = sum(project.unreadable for project in projects)
    if unreadable:
      text = f"Nothing found {where}, but {unreadable} cannot be read."
      return [(text, "bold red")]
    if any(project.uses_loss_scaling for project in projects):
      return [(f"Nothing to change {where}.", "bold green")]
    return [(f"No loss scaling {where}.", "bold green")]
  touched = len({finding.path for finding in found})
  return [
    (f"Found {number(len(found), 'place')}", "bold red"),
    (f" in {touched} of {number(files, 'file')}: ", ""),
    (f"{describe_states(found)}.", ""),
  ]


def count_states(found: Iterable[findings.Finding]) -> dict[str, int]:
  """Returns state -> the number of findings, for each state."""
  counts = dict.fromkeys(findings.STATES, 0)
  for finding in found:
    counts[finding.state] += 1
  return counts


def describe_states(found: Iterable[findings.Finding]) -> str:
  """Returns the numbers of findings in words, such as "3 applied"."""
  counts = count_states(found)
  return ", ".join(
    f"{count} {state}" for state, count in counts.items() if count
  )


def number(count: int, noun: str) -> str:
  """Returns a number with a noun, such as "1 file" and "2 files"."""
  return f"{count} {noun}{'' if count == 1 else 's'}"
