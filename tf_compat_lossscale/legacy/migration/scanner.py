# SPDX-License-Identifier: Apache-2.0
"""Finds the code in old programs that has to change."""

from __future__ import annotations

import ast
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
import os
from typing import NamedTuple

from tf_compat_lossscale.legacy import sources
from tf_compat_lossscale.legacy import switches
from tf_compat_lossscale.legacy import which_keras
from tf_compat_lossscale.legacy.migration import codes
from tf_compat_lossscale.legacy.migration import comments
from tf_compat_lossscale.legacy.migration import documents
from tf_compat_lossscale.legacy.migration import excludes
from tf_compat_lossscale.legacy.migration import files
from tf_compat_lossscale.legacy.migration import findings as findings_lib
from tf_compat_lossscale.legacy.migration import outlines
from tf_compat_lossscale.legacy.migration import python2
from tf_compat_lossscale.legacy.migration import reading
from tf_compat_lossscale.legacy.migration import roles
from tf_compat_lossscale.legacy.migration import rules
from tf_compat_lossscale.legacy.migration import trees
from tf_compat_lossscale.legacy.migration import workers

_PACKAGE = "tf_compat_lossscale"
_PYTHON_2 = "LS501"


class Options(NamedTuple):
  """What the user asks for.

  Attributes:
    select: Codes, and beginnings of codes, of the findings that are wanted;
      empty for all.
    ignore: The same of those that are not wanted.
    exclude: Patterns of files and folders to leave out.
    tensorflow: 1 or 2: the TensorFlow that the programs mean; None to decide by
      their source.
    target: The TensorFlow (major, minor) that they will run on; None for the
      one that is installed.
    jobs: The number of processes; None for one for each core.
  """

  select: tuple[str, ...] = ()
  ignore: tuple[str, ...] = ()
  exclude: tuple[str, ...] = ()
  tensorflow: int | None = None
  target: tuple[int, int] | None = None
  jobs: int | None = None


DEFAULT = Options()


class Checked(NamedTuple):
  """A project that was checked.

  Attributes:
    project: The project with its findings.
    errors: A line for each file that could not be read.
    warnings: A line for each comment that names an unknown code.
  """

  project: findings_lib.Project
  errors: tuple[str, ...] = ()
  warnings: tuple[str, ...] = ()


def scan(
  paths: Sequence[str],
  options: Options = DEFAULT,
  progress: Callable[[int, int], None] | None = None,
) -> findings_lib.Report:
  """Finds what has to change in files and folders.

  Args:
    paths: Files and folders.
    options: What the user asks for.
    progress: A function that takes the number of files that are done, and that
      of all files.

  Returns:
    The report.

  Raises:
    FileNotFoundError: A path does not exist.
    findings.ScanError: There is no Python file in the paths.
  """
  shown = _list_files(paths, options)
  groups = trees.group(_read_outlines(paths, shown))
  total, done = len(shown), 0
  checked: list[Checked] = []
  waiting: list[tuple[trees.Group, dict[str, str], Options]] = []
  for group in groups:
    own = {o.path: shown[o.path] for o in group.files if o.path in shown}
    if not own:
      continue
    if any(outline.matters for outline in group.files):
      waiting.append((group, own, options))
    else:
      checked.append(Checked(_make_project(group, own)))
      done += len(own)
  for (_, own, _), result in workers.run(check, waiting, options.jobs):
    done += len(own)
    checked.append(result)
    if progress is not None:
      progress(done, total)
  checked.sort(key=lambda each: each.project.path)
  return _make_report(checked)


def scan_text(
  data: bytes, name: str, options: Options = DEFAULT
) -> findings_lib.Report:
  """Finds what has to change in a program that is not in a file.

  Args:
    data: The program's bytes.
    name: The name for its findings. If it ends with ".ipynb", the program is a
      notebook.
    options: What the user asks for.

  Returns:
    The report.
  """
  group, reader = read_text(data, name)
  return _make_report([check(group, {name: name}, options, reader)])


def read_text(data: bytes, name: str) -> tuple[trees.Group, reading.Reader]:
  """Returns the project that a program without a file is, and its reader."""
  reader = reading.Reader()
  reader.add_text(name, data)
  outline = outlines.read_data(name, data)._replace(starts=True, acts=True)
  folder = (
    os.path.dirname(os.path.abspath(name)) if os.path.exists(name) else ""
  )
  return trees.Group(folder, (outline,), frozenset()), reader


def _make_report(checked: Sequence[Checked]) -> findings_lib.Report:
  """Returns the report of projects."""
  return findings_lib.Report(
    tuple(each.project for each in checked),
    tuple(line for each in checked for line in each.errors),
    tuple(line for each in checked for line in each.warnings),
  )


def _list_files(paths: Sequence[str], options: Options) -> dict[str, str]:
  """Returns the absolute path of each file -> the path as the user wrote it."""
  is_excluded = excludes.make_matcher(options.exclude)
  shown: dict[str, str] = {}
  for path in paths:
    if not os.path.lexists(path):
      raise FileNotFoundError(f"{path!r} is not there")
    count = len(shown)
    for file in trees.list_files(path, is_excluded):
      shown.setdefault(os.path.abspath(file), file)
    if len(shown) == count and os.path.isdir(path):
      raise findings_lib.ScanError(
        f"no Python file (.py) or notebook (.ipynb) in {path!r}"
      )
  return shown


def _read_outlines(
  paths: Sequence[str], shown: Collection[str]
) -> list[outlines.Outline]:
  """Returns the outlines of files, and of the projects around single files."""
  all_paths = dict.fromkeys(shown)
  roots = {
    trees.find_root(os.path.abspath(path))
    for path in paths
    if not os.path.isdir(path)
  }
  for root in sorted(roots):
    all_paths.update(dict.fromkeys(trees.list_files(root)))
  return [outlines.read(path) for path in all_paths]


def _make_project(
  group: trees.Group, shown: dict[str, str]
) -> findings_lib.Project:
  """Returns a project without findings."""
  return findings_lib.Project(
    _find_shown_folder(group, shown), len(shown), None, "", False, ()
  )


def _find_shown_folder(group: trees.Group, shown: dict[str, str]) -> str:
  """Returns a project's folder as the user would write it."""
  if len(shown) == 1:
    return next(iter(shown.values()))
  path, written = next(iter(shown.items()))
  if os.path.isabs(written):
    return group.folder
  del path
  return os.path.relpath(group.folder)


def check(
  group: trees.Group,
  shown: dict[str, str],
  options: Options,
  reader: reading.Reader | None = None,
) -> Checked:
  """Checks the files of a project.

  Args:
    group: The project.
    shown: The path of each file that is asked for -> the path to show.
    options: What the user asks for.
    reader: The reader of the files.

  Returns:
    The project with its findings.
  """
  with sources.allow_depth():
    return _Check(group, shown, options, reader or reading.Reader()).run()


def _find_error(text: str) -> SyntaxError | None:
  """Returns the error that Python has with a text, or None."""
  try:
    ast.parse(text)
  except SyntaxError as error:
    return error
  except ValueError:
    return None
  return None


class _Check:
  """A check of a project."""

  def __init__(
    self,
    group: trees.Group,
    shown: dict[str, str],
    options: Options,
    reader: reading.Reader,
  ):
    self._group, self._shown = group, shown
    self._options, self._reader = options, reader
    self._release = options.target or which_keras.find_release()
    self._errors: list[str] = []
    self._warnings: list[str] = []
    self._python_2: dict[str, list[findings_lib.Finding]] = {}

  def run(self) -> Checked:
    """Returns the project with its findings."""
    project = _make_project(self._group, self._shown)
    # All of them are read, also if the first one matters: for their errors.
    matter = {o.path for o in self._group.files if o.matters}
    if not list(filter(self._matters, sorted(matter))):
      return Checked(project, tuple(self._errors))
    readable = [o.path for o in self._group.files if self._can_read(o.path)]
    found = roles.Roles(
      self._group,
      self._reader,
      self._options.tensorflow,
      self._release,
      self._shown,
    )
    findings = [
      finding
      for path in sorted(self._shown)
      for finding in (
        self._find(path, found.of[path])
        if path in readable
        else self._python_2.get(path, ())
      )
    ]
    meant = [role for role in found.of.values() if role.tensorflow]
    tensorflow = min((min(role.tensorflow) for role in meant), default=None)
    reason = next((role.reason for role in meant if role.reason), "")
    project = project._replace(
      tensorflow=tensorflow,
      reason=reason,
      uses_loss_scaling=True,
      findings=tuple(map(self._show, filter(self._is_wanted, findings))),
      members=tuple(outline.path for outline in self._group.files),
      imported=self._group.imported,
    )
    return Checked(project, tuple(self._errors), tuple(self._warnings))

  def _matters(self, path: str) -> bool:
    """Returns whether a file uses loss scaling, or this package."""
    if not self._can_read(path):
      return path in self._python_2 and len(self._python_2[path]) > 1
    source = self._reader.read_source(path)
    return bool(
      source.uses
      or any(module.partition(".")[0] == _PACKAGE for module in source.modules)
      or switches.find_switches(source.tree)
    )

  def _can_read(self, path: str) -> bool:
    """Returns whether a file can be read; notes the error if it cannot."""
    try:
      self._reader.read(path)
      return True
    except sources.SourceError as error:
      if path in self._shown and path not in self._python_2:
        message = str(error).replace(path, self._shown[path])
        self._read_python_2(path, message)
      return False

  def _read_python_2(self, path: str, message: str) -> None:
    """Notes the findings in a source for Python 2, or an error."""
    found: list[findings_lib.Finding] = []
    self._python_2[path] = found
    try:
      document = self._reader.read_document(path)
    except documents.DocumentError:
      self._errors.append(message)
      return
    error = _find_error(document.text)
    if error is None or not python2.is_python_2(document.text, error):
      self._errors.append(message)
      return
    line = error.lineno or 1
    hint = "run 2to3 first, then scan the file again"
    found.append(
      findings_lib.Finding(
        *(path, line, 1, line, 1, _PYTHON_2, "Python 2", hint),
        findings_lib.BY_HAND,
      )
    )
    for use in python2.find_uses(document.text):
      if sources.find_home(use.name):
        found.append(
          findings_lib.Finding(
            path,
            use.line,
            use.column + 1,
            use.line,
            use.column + 1 + len(use.written),
            "LS101",
            use.written,
            "after 2to3",
            findings_lib.BY_HAND,
          )
        )

  def _find(
    self, path: str, role: roles.Role
  ) -> Iterator[findings_lib.Finding]:
    """Yields the findings of all rules in a file, by their place."""
    read = self._reader.read(path)
    file = files.File(read, role, self._release)
    found = [
      finding for rule in rules.list_rules() for finding in rule.find(file)
    ]
    known = [rule.code for rule in rules.list_rules()]
    read_comments = comments.read_comments(read.document.text, known)
    for line, words in read_comments.mistakes:
      self._warnings.append(f"{self._shown[path]}:{line}: {words}")
    for finding in sorted(found, key=lambda f: (f.cell or 0, f.line, f.column)):
      if not comments.is_ignored(
        finding.code, finding.line, read_comments.ignored
      ):
        yield finding

  def _is_wanted(self, finding: findings_lib.Finding) -> bool:
    """Returns whether the user wants findings of a code."""
    return codes.is_selected(
      finding.code, self._options.select, self._options.ignore
    )

  def _show(self, finding: findings_lib.Finding) -> findings_lib.Finding:
    """Returns a finding with the path as the user wrote it."""
    return finding._replace(path=self._shown[finding.path])
