# SPDX-License-Identifier: Apache-2.0
"""Checks the files of a project by all rules."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import gc
import os
import re
from typing import NamedTuple

from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.migration import document_base
from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings as findings_lib
from tf_compat_lossscale.migration import notebooks
from tf_compat_lossscale.migration import reading
from tf_compat_lossscale.migration import roles
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.migration import summaries
from tf_compat_lossscale.migration import trees
from tf_compat_lossscale.migration.rewrites import missing_package
from tf_compat_lossscale.programs import source_facts

_PACKAGE = "tf_compat_lossscale"
# What Python 3 says of code that Python 2 allows.
_PYTHON_2 = re.compile(
  "Missing parentheses in call to|multiple exception types|leading zeros in"
  "|inconsistent use of tabs"
)


class Options(NamedTuple):
  """What the user asks for.

  Attributes:
    select: Codes, and beginnings of codes, of the findings that are wanted;
      empty for all.
    ignore: Codes, and beginnings of codes, of findings that are not wanted.
    exclude: Patterns of files and folders to leave out.
    tensorflow: 1 or 2: the TensorFlow that the programs mean; None to decide by
      their source.
    target: The TensorFlow (major, minor) that they will run on; None for the
      one that is installed.
    jobs: The number of processes; None for one for each core.
    nvidia_switch: Whether NVIDIA's variables are on when the programs start.
  """

  select: tuple[str, ...] = ()
  ignore: tuple[str, ...] = ()
  exclude: tuple[str, ...] = ()
  tensorflow: int | None = None
  target: tuple[int, int] | None = None
  jobs: int | None = None
  nvidia_switch: bool = False


def make_project(shown: dict[str, str]) -> findings_lib.Project:
  """Returns a project without findings.

  Args:
    shown: As of `check`.
  """
  written = next(iter(shown.values()))
  if len(shown) == 1:
    folder = written
  else:
    folder = os.path.commonpath([os.path.dirname(path) for path in shown])
    if not os.path.isabs(written):
      folder = os.path.relpath(folder)
  return findings_lib.Project(folder, len(shown), None, "", False, ())


@contextlib.contextmanager
def read_trees() -> Iterator[None]:
  """Lets a function read many syntax trees, also deep ones.

  Python's garbage collector does not run meanwhile: it would look at the nodes
  of all trees again and again, which takes a third of the time. There is no
  garbage to collect, since nothing that refers to a tree refers to itself.
  """
  was_on = gc.isenabled()
  gc.disable()
  try:
    with source_facts.allow_depth():
      yield
  finally:
    if was_on:
      gc.enable()


@read_trees()
def check(
  group: trees.Group,
  shown: dict[str, str],
  options: Options,
  reader: reading.Reader | None = None,
) -> findings_lib.Report:
  """Checks the files of a project.

  Args:
    group: The project.
    shown: The path of each file that is asked for -> the path to show.
    options: What the user asks for.
    reader: The reader of the files.

  Returns:
    The report of this one project.
  """
  return _Check(group, shown, options, reader or reading.Reader()).run()


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
    self._unreadable: set[str] = set()
    self._noted: set[str] = set()  # The files whose errors are noted.

  def run(self) -> findings_lib.Report:
    """Returns the report of the project."""
    project = make_project(self._shown)
    # All files are read, even if the first one matters, to report their errors.
    matter = [o.path for o in self._group.files if o.matters or o.must_read]
    uses_loss_scaling = bool(
      list(filter(self._matters, matter)) or self._options.nvidia_switch
    )
    for path in self._shown if uses_loss_scaling else ():
      self._can_read(path)
    found = roles.Roles(
      self._group,
      self._reader,
      self._options.tensorflow,
      self._release,
      self._options.nvidia_switch,
    )
    project = self._summarize(project, found, uses_loss_scaling)
    if not uses_loss_scaling:
      return findings_lib.Report((project,), tuple(self._errors))
    findings = [
      finding
      for path in sorted(self._shown)
      for finding in self._find(path, found)
      if rules.is_selected(
        finding.code, self._options.select, self._options.ignore
      )
    ]
    project = project._replace(
      findings=tuple(
        finding._replace(path=self._shown[finding.path])
        for finding in missing_package.merge(findings)
      )
    )
    return findings_lib.Report((project,), tuple(self._errors))

  def _summarize(
    self,
    project: findings_lib.Project,
    found: roles.Roles,
    uses_loss_scaling: bool,
  ) -> findings_lib.Project:
    """Returns a project with all but its findings."""
    own = sorted(self._shown)
    summary = summaries.Summary(
      self._group, found, self._reader, own if len(own) == 1 else ()
    )
    tensorflow = summary.tensorflow
    if not uses_loss_scaling:
      for outline in self._group.files:
        if outline.mentions:
          self._can_read(outline.path)
    notes: Iterable[str] = ()
    missing: Mapping[str, str] = {}
    if not (uses_loss_scaling or tensorflow is None or self._unreadable):
      missing, notes = summary.find_missing(), summary.list_advice()
    return project._replace(
      tensorflow=tensorflow,
      reason=summary.reason,
      uses_loss_scaling=uses_loss_scaling,
      unreadable=len(self._unreadable),
      notes=tuple(notes),
      missing=tuple(f"{name} ({place})" for name, place in missing.items()),
      speaks_of_it=any(o.matters for o in self._group.files),
    )

  def _matters(self, path: str) -> bool:
    """Returns whether a file uses loss scaling, or this package."""
    if not self._can_read(path):
      return False
    source = self._reader.read_source(path)
    return bool(
      source.uses
      or any(use.form == "unknown" for use in source.names)
      or any(module.partition(".")[0] == _PACKAGE for module in source.modules)
      or self._reader.read(path).switches
    )

  def _can_read(self, path: str) -> bool:
    """Returns whether a file can be read; notes what is wrong otherwise."""
    try:
      document = self._reader.read(path).document
    except source_facts.SourceError as error:
      if path in self._shown and path not in self._unreadable:
        shown = document_base.show_path(self._shown[path])
        message = str(error)
        for written in (path, document_base.show_path(path)):
          message = message.replace(written, shown)
        self._errors.append(_advise(message))
        self._unreadable.add(path)
      return False
    if (
      isinstance(document, notebooks.Notebook)
      and path in self._shown
      and path not in self._noted
    ):
      self._noted.add(path)
      shown = document_base.show_path(self._shown[path])
      self._errors += [
        _advise(
          f"{shown}:cell {cell.number}: cannot be parsed: {cell.code.error}"
        )
        for cell in document.cells
        if cell.code.is_broken
      ]
    return True

  def _find(
    self, path: str, project: roles.Roles
  ) -> Iterator[findings_lib.Finding]:
    """Yields the findings of all rules in a file, by their place."""
    if not self._can_read(path):
      return
    file = files.File(self._reader.read(path), project)
    found = [
      finding for rule in rules.list_rules() for finding in rule.find(file)
    ]
    yield from sorted(found, key=lambda f: (f.cell or 0, f.line, f.column))


def _advise(error: str) -> str:
  """Returns an error, with what to do if the code may be Python 2."""
  may_be_2 = _PYTHON_2.search(error) is not None
  return f"{error}: if this is Python 2, run 2to3 first" if may_be_2 else error
