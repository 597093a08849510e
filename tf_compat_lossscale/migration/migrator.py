# SPDX-License-Identifier: Apache-2.0
"""Plans the edits of old programs."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
import os
from typing import NamedTuple

from tf_compat_lossscale.migration import application
from tf_compat_lossscale.migration import checker
from tf_compat_lossscale.migration import findings as findings_lib
from tf_compat_lossscale.migration import reading
from tf_compat_lossscale.migration import scanner
from tf_compat_lossscale.migration import trees
from tf_compat_lossscale.programs import source_facts

# Edits that overlap are made one after the other.
_MANY_ROUNDS = 8


class Change(NamedTuple):
  """The edits of a file.

  Attributes:
    path: The file.
    before: Its bytes.
    after: Its bytes with the edits.
    made: The findings whose edits are made.
    left: The findings whose edits are wanted, and cannot be made.
  """

  path: str
  before: bytes
  after: bytes
  made: tuple[findings_lib.Finding, ...]
  left: tuple[findings_lib.Finding, ...]


def plan(
  project: findings_lib.Project,
  options: scanner.Options = scanner.DEFAULT,
  offered: bool = False,
) -> Iterator[Change]:
  """Yields the files of a project that change, and those with edits left.

  The edited project is scanned again: an edit counts as made if its finding is
  gone.

  Args:
    project: A project that was scanned.
    options: What the user asks for.
    offered: Whether to make the edits that are offered, too.
  """
  group = project.group
  if group is None:
    return
  shown = {os.path.abspath(f.path): f.path for f in project.findings}
  for path in group.starters:  # These files are not edited.
    shown.pop(path, None)
  if not shown:
    return
  reader = reading.Reader()
  if any(reader.make_digest(path) != old for path, old in project.digests):
    # Another program has changed a file since the scan.
    project = checker.check(group, shown, options, reader).project
  with source_facts.allow_depth():
    yield from _plan(group, shown, project, options, offered, reader)


def edit_text(
  data: bytes,
  name: str,
  options: scanner.Options = scanner.DEFAULT,
  offered: bool = False,
) -> Change | None:
  """Returns the edits of a program that is not in a file, or None.

  Args:
    data: The program's bytes.
    name: As of `scanner.scan_text`.
    options: As of `plan`.
    offered: As of `plan`.
  """
  group, reader = scanner.read_text(data, name)
  shown = {name: name}
  project = checker.check(group, shown, options, reader).project
  return next(_plan(group, shown, project, options, offered, reader), None)


def _plan(
  group: trees.Group,
  shown: dict[str, str],
  project: findings_lib.Project,
  options: scanner.Options,
  offered: bool,
  reader: reading.Reader,
) -> Iterator[Change]:
  """Yields the changes of a project, as `plan` does."""
  states = {findings_lib.APPLIED}
  if offered:
    states.add(findings_lib.OFFERED)
  hidden = {written: path for path, written in shown.items()}
  before: dict[str, bytes] = {}
  first = [
    f for f in project.findings if f.state in states and f.path in hidden
  ]
  findings = first
  for _ in range(_MANY_ROUNDS):
    after: dict[str, bytes] = {}
    for written, own in _group_by_path(findings).items():
      path = hidden[written]
      read = reader.read(path)
      old = read.document.replace([])
      before.setdefault(path, old)
      data = application.edit(read, sorted(own, key=lambda f: f.code))
      if data != old:
        after[path] = data
    if not after:
      break
    reader = reader.copy(after)
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
    data = reader.read(path).document.replace([])
    if data != before[path] or left:
      stays = {(f.code, f.name) for f in left}
      wanted = all_wanted.get(written, ())
      made = tuple(f for f in wanted if (f.code, f.name) not in stays)
      yield Change(written, before[path], data, made, left)


def _group_by_path(
  findings: Iterable[findings_lib.Finding],
) -> dict[str, list[findings_lib.Finding]]:
  """Returns path -> the findings in that file, in their order."""
  groups: dict[str, list[findings_lib.Finding]] = {}
  for finding in findings:
    groups.setdefault(finding.path, []).append(finding)
  return groups
