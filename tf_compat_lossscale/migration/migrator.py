# SPDX-License-Identifier: Apache-2.0
"""Plans the edits of old programs."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
import os

from tf_compat_lossscale.migration import application
from tf_compat_lossscale.migration import checker
from tf_compat_lossscale.migration import document_base
from tf_compat_lossscale.migration import findings as findings_lib
from tf_compat_lossscale.migration import reading
from tf_compat_lossscale.migration import trees

# Edits that overlap are made one after the other.
_MANY_ROUNDS = 8


@checker.read_trees()
def check(
  group: trees.Group,
  shown: dict[str, str],
  options: checker.Options,
  reader: reading.Reader | None = None,
  offered: bool = False,
) -> checker.Checked:
  """Checks a project, as `checker.check` does, and plans its changes.

  The edited files are checked again: an edit counts as made if its finding is
  gone.

  Args:
    group: As of `checker.check`, like the others.
    shown: As of `checker.check`.
    options: What the user asks for.
    reader: The reader of the files.
    offered: Whether to make the edits that are offered, too.
  """
  reader = reader or reading.Reader()
  checked = checker.check(group, shown, options, reader)
  with_findings = {finding.path for finding in checked.project.findings}
  # The files that start programs, and are not Python, are not edited.
  edited = {
    path: written
    for path, written in shown.items()
    if written in with_findings and path not in group.starters
  }
  changes = [
    *_plan(group, edited, checked.project, options, offered, reader),
    *_find_left(group, shown, checked.project, options, reader),
  ]
  warnings = list(checked.warnings)
  if changes or not checked.errors:
    warnings += _warn_of_others(group, shown, options, offered, reader)
  return checked._replace(changes=tuple(changes), warnings=tuple(warnings))


def _warn_of_others(
  group: trees.Group,
  shown: dict[str, str],
  options: checker.Options,
  offered: bool,
  reader: reading.Reader,
) -> Iterator[str]:
  """Yields a line if files that are not asked for need edits, too.

  Args:
    group: As of `check`, like the others.
    shown: As of `check`.
    options: As of `check`.
    offered: As of `check`.
    reader: The reader of the edited files.
  """
  others = {o.path: o.path for o in group.files if o.path not in shown}
  if not others:
    return
  again = checker.check(group, {**others, **shown}, options, reader).project
  states = _list_states(offered)
  count = len(
    {
      finding.path
      for finding in again.findings
      if finding.path in others
      and finding.state in states
      and (finding.edits or finding.opening)
    }
  )
  if count:
    is_absolute = any(map(os.path.isabs, shown.values()))
    folder = group.folder if is_absolute else os.path.relpath(group.folder)
    files = "file" if count == 1 else "files"
    need = "needs" if count == 1 else "need"
    yield (
      f"{count} more {files} of this project {need} edits: migrate the folder "
      f"{document_base.show_path(folder)}"
    )


def _list_states(offered: bool) -> set[str]:
  """Returns the states of the findings whose edits are wanted."""
  return {findings_lib.APPLIED, *([findings_lib.OFFERED] if offered else ())}


def _find_left(
  group: trees.Group,
  shown: dict[str, str],
  project: findings_lib.Project,
  options: checker.Options,
  reader: reading.Reader,
) -> Iterator[findings_lib.Change]:
  """Yields the files that start programs, and whose edits are not made.

  The edits are in the programs, and the user did not give all of these.

  Args:
    group: As of `check`, like the others.
    shown: As of `check`.
    project: The project as it was.
    options: As of `check`.
    reader: The reader of the edited files.
  """
  starters = {shown[path] for path in shown.keys() & group.starters}
  if not starters.intersection(f.path for f in project.findings):
    return
  again = checker.check(group, shown, options, reader).project
  left = [
    finding
    for finding in again.findings
    if finding.path in starters and finding.state == findings_lib.APPLIED
  ]
  for written, own in _group_by_path(left).items():
    yield findings_lib.Change(written, b"", b"", (), tuple(own))


def _plan(
  group: trees.Group,
  shown: dict[str, str],
  project: findings_lib.Project,
  options: checker.Options,
  offered: bool,
  reader: reading.Reader,
) -> Iterator[findings_lib.Change]:
  """Yields the files of a project that change, and those with edits left."""
  states = _list_states(offered)
  hidden = {written: path for path, written in shown.items()}
  before: dict[str, bytes] = {}
  first = [
    f for f in project.findings if f.state in states and f.path in hidden
  ]
  findings = first
  for _ in range(_MANY_ROUNDS):
    is_changed = False
    for written, own in _group_by_path(findings).items():
      path = hidden[written]
      read = reader.read(path)
      before.setdefault(path, read.document.data)
      new = application.edit(read, sorted(own, key=lambda f: f.code))
      if new.document.data != read.document.data:
        reader.replace(path, new)
        is_changed = True
    if not is_changed:
      break
    checked = checker.check(group, shown, options, reader)
    findings = [
      f
      for f in checked.project.findings
      if f.state in states and f.path in hidden
    ]
    if not findings:
      break
  all_wanted, all_left = _group_by_path(first), _group_by_path(findings)
  for path, written in shown.items():
    if path not in before:
      continue
    left = tuple(all_left.get(written, ()))
    data = reader.read(path).document.data
    if data != before[path] or left:
      stays = {(f.code, f.name) for f in left}
      wanted = all_wanted.get(written, ())
      made = tuple(f for f in wanted if (f.code, f.name) not in stays)
      yield findings_lib.Change(written, before[path], data, made, left)


def _group_by_path(
  findings: Iterable[findings_lib.Finding],
) -> dict[str, list[findings_lib.Finding]]:
  """Returns path -> the findings in that file, in their order."""
  groups: dict[str, list[findings_lib.Finding]] = {}
  for finding in findings:
    groups.setdefault(finding.path, []).append(finding)
  return groups
