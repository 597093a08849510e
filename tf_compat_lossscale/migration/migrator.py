# SPDX-License-Identifier: Apache-2.0
"""Plans the edits of old programs."""

from __future__ import annotations

from collections.abc import Container
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
) -> findings_lib.Report:
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
  return _Plan(group, shown, options, reader, offered).run()


class _Plan:
  """The plan of a project's changes; its arguments are those of `check`."""

  def __init__(
    self,
    group: trees.Group,
    shown: dict[str, str],
    options: checker.Options,
    reader: reading.Reader | None,
    offered: bool,
  ):
    self._group, self._shown, self._options = group, shown, options
    self._reader = reader or reading.Reader()
    # The states of the findings whose edits are wanted.
    self._states = {findings_lib.APPLIED}
    if offered:
      self._states.add(findings_lib.OFFERED)

  def _check(self, shown: dict[str, str]) -> findings_lib.Report:
    """Checks files of the project, with the edits that are made so far."""
    return checker.check(self._group, shown, self._options, self._reader)

  def run(self) -> findings_lib.Report:
    """Returns the report of the project as it was, with its changes."""
    checked = self._check(self._shown)
    changes = tuple(self._edit(checked.findings))
    warnings: tuple[str, ...] = ()
    if changes or not checked.errors:
      warnings = tuple(self._warn_of_others())
    return checked._replace(changes=changes, warnings=warnings)

  def _edit(
    self, findings: Iterable[findings_lib.Finding]
  ) -> Iterator[findings_lib.Change]:
    """Makes the edits; yields the files that change or have edits left."""
    with_findings = {finding.path for finding in findings}
    edited = {
      path: written
      for path, written in self._shown.items()
      if written in with_findings
    }
    hidden = {written: path for path, written in edited.items()}
    before: dict[str, bytes] = {}
    first = left = self._group_by_path(findings, hidden)
    for _ in range(_MANY_ROUNDS):
      is_changed = False
      for written, own in left.items():
        path = hidden[written]
        read = self._reader.read(path)
        before.setdefault(path, read.document.data)
        new = application.edit(read, sorted(own, key=lambda f: f.code))
        if new.document.data != read.document.data:
          self._reader.replace(path, new)
          is_changed = True
      if not is_changed:
        break
      again = self._check(edited)
      left = self._group_by_path(again.findings, hidden)
    for path, written in edited.items():
      if path not in before:
        continue
      data = self._reader.read(path).document.data
      rest = tuple(left.get(written, ()))
      if data != before[path] or rest:
        stays = {(f.code, f.name) for f in rest}
        wanted = first.get(written, ())
        made = tuple(f for f in wanted if (f.code, f.name) not in stays)
        yield findings_lib.Change(written, before[path], data, made, rest)

  def _group_by_path(
    self, findings: Iterable[findings_lib.Finding], paths: Container[str]
  ) -> dict[str, list[findings_lib.Finding]]:
    """Returns path -> the findings there whose edits are wanted, in order."""
    groups: dict[str, list[findings_lib.Finding]] = {}
    for finding in findings:
      if finding.path in paths and finding.state in self._states:
        groups.setdefault(finding.path, []).append(finding)
    return groups

  def _warn_of_others(self) -> Iterator[str]:
    """Yields a line if files that are not asked for need edits, too."""
    shown, files = self._shown, self._group.files
    others = {o.path: o.path for o in files if o.path not in shown}
    if not others:
      return
    again = self._check({**others, **shown})
    count = len(
      {
        finding.path
        for finding in again.findings
        if finding.path in others
        and finding.state in self._states
        and (finding.edits or finding.opening)
      }
    )
    if count:
      is_absolute = any(map(os.path.isabs, shown.values()))
      folder = self._group.folder
      folder = folder if is_absolute else os.path.relpath(folder)
      need = "file of this project needs"
      if count > 1:
        need = "files of this project need"
      yield (
        f"{count} more {need} edits: migrate the folder "
        f"{document_base.show_path(folder)}"
      )
