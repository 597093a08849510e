# SPDX-License-Identifier: Apache-2.0
"""Checks the files of a project by all rules."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import gc
import os
from typing import NamedTuple

from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.migration import comments
from tf_compat_lossscale.migration import document_base
from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings as findings_lib
from tf_compat_lossscale.migration import notebook_magics
from tf_compat_lossscale.migration import notebooks
from tf_compat_lossscale.migration import outlines
from tf_compat_lossscale.migration import reading
from tf_compat_lossscale.migration import roles
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.migration import summaries
from tf_compat_lossscale.migration import trees
from tf_compat_lossscale.migration.rewrites import missing_package
from tf_compat_lossscale.migration.rewrites import nvidia_switch
from tf_compat_lossscale.migration.rewrites import python_2_source
from tf_compat_lossscale.programs import source_facts

_PACKAGE = "tf_compat_lossscale"


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


def make_project(
  group: trees.Group, shown: dict[str, str]
) -> findings_lib.Project:
  """Returns a project without findings.

  Args:
    group: Its files.
    shown: As of `check`.
  """
  sources = _list_sources(group, shown)
  written = next(iter(shown.values()))
  if len(shown) == 1:
    folder = written
  else:
    parts = [os.path.dirname(path) for path in sources or shown]
    folder = os.path.commonpath(parts)
    if not os.path.isabs(written):
      folder = os.path.relpath(folder)
  return findings_lib.Project(folder, len(sources), None, "", False, ())


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


def _list_sources(group: trees.Group, shown: Iterable[str]) -> list[str]:
  """Returns those of the files asked for that are Python or notebooks."""
  starters = group.starters
  return [path for path in shown if path not in starters]


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
    self._sources = _list_sources(group, shown)
    self._release = options.target or which_keras.find_release()
    self._errors: list[str] = []
    self._warnings: list[str] = []
    self._unreadable: set[str] = set()
    # The findings in code that cannot be parsed.
    self._unparsed: dict[str, list[findings_lib.Finding]] = {}

  def run(self) -> findings_lib.Report:
    """Returns the report of the project."""
    project = make_project(self._group, self._shown)
    # All files are read, even if the first one matters, to report their errors.
    matter = [o.path for o in self._group.files if o.matters or o.must_read]
    uses_loss_scaling = bool(
      list(filter(self._matters, matter))
      or self._group.switches
      or self._options.nvidia_switch
    )
    for path in self._sources if uses_loss_scaling else ():
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
      for finding in (
        *(f for path in sorted(self._sources) for f in self._find(path, found)),
        *nvidia_switch.find_in_launchers(
          self._group, found, self._shown, self._reader
        ),
      )
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
    return findings_lib.Report(
      (project,), tuple(self._errors), tuple(self._warnings)
    )

  def _summarize(
    self,
    project: findings_lib.Project,
    found: roles.Roles,
    uses_loss_scaling: bool,
  ) -> findings_lib.Project:
    """Returns a project with all but its findings."""
    own = sorted(self._sources)
    summary = summaries.Summary(
      self._group, found, self._reader, own if len(own) == 1 else ()
    )
    tensorflow = summary.tensorflow
    if tensorflow is None and not uses_loss_scaling:
      # What cannot be read may be all that imports TensorFlow.
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
    readable = self._can_read(path)
    if self._unparsed.get(path):
      # Code for Python 2 cannot be parsed: its outline tells if it matters.
      data = self._reader.read_document(path).data
      if b"tensorflow" in data and outlines.read(path, data).matters:
        return True
    if not readable:
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
      if path in self._sources and path not in self._unparsed:
        self._unparsed[path] = self._read_unparsed(path, str(error))
      return False
    if (
      isinstance(document, notebooks.Notebook)
      and path in self._sources
      and path not in self._unparsed
    ):
      self._unparsed[path] = self._read_cells(document)
    return True

  def _read_unparsed(
    self, path: str, message: str
  ) -> list[findings_lib.Finding]:
    """Returns the findings in a file that cannot be parsed; notes an error."""
    found = self._list_python_2(path)
    if not found:
      shown = document_base.show_path(self._shown[path])
      for written in (path, document_base.show_path(path)):
        message = message.replace(written, shown)
      self._errors.append(message)
      self._unreadable.add(path)
    return found

  def _read_cells(
    self, notebook: notebooks.Notebook
  ) -> list[findings_lib.Finding]:
    """Returns the findings in cells that cannot be parsed; notes errors."""
    shown = document_base.show_path(self._shown[notebook.path])
    self._errors += [
      f"{shown}:cell {cell.number}: cannot be parsed: {cell.code.error}"
      for cell in notebook.cells
      if cell.code.line is not None
      and cell.code.error != notebook_magics.PYTHON_2
    ]
    return self._list_python_2(notebook.path)

  def _list_python_2(self, path: str) -> list[findings_lib.Finding]:
    """Returns the findings of code for Python 2 in a file."""
    found = self._reader.find_python_2(path)
    return [python_2_source.make(path, line, cell) for line, cell in found]

  def _find(
    self, path: str, project: roles.Roles
  ) -> Iterator[findings_lib.Finding]:
    """Yields the findings of all rules in a file, by their place."""
    yield from self._unparsed.get(path, ())
    if not self._can_read(path):
      return
    read = self._reader.read(path)
    file = files.File(read, project)
    all_rules = rules.list_rules()
    found = [finding for rule in all_rules for finding in rule.find(file)]
    said = comments.read_comments(
      read.document.text, [rule.code for rule in all_rules]
    )
    for line, words in said.mistakes:
      self._warnings.append(f"{self._shown[path]}:{line}: {words}")
    for finding in sorted(found, key=lambda f: (f.cell or 0, f.line, f.column)):
      if not any(
        comments.is_ignored(finding.code, line, said.ignored)
        for line in finding.lines_in_text
      ):
        yield finding
