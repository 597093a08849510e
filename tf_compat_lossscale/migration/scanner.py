# SPDX-License-Identifier: Apache-2.0
"""Finds the code in old programs that has to change."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import os

from tf_compat_lossscale.migration import checker
from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import excludes
from tf_compat_lossscale.migration import findings as findings_lib
from tf_compat_lossscale.migration import outlines
from tf_compat_lossscale.migration import reading
from tf_compat_lossscale.migration import surroundings
from tf_compat_lossscale.migration import trees
from tf_compat_lossscale.migration import workers

Options = checker.Options
DEFAULT = Options()


def scan(
  paths: Sequence[str],
  options: checker.Options = DEFAULT,
  progress: Callable[[int, int], None] | None = None,
  check: Callable[..., findings_lib.Report] = checker.check,
) -> findings_lib.Report:
  """Finds what has to change in files and folders.

  Args:
    paths: Files and folders.
    options: What the user asks for.
    progress: A function that takes the number of files that are done, and that
      of all files.
    check: The function that checks a project, such as that of `migrator`.

  Returns:
    The report.

  Raises:
    FileNotFoundError: A path does not exist.
    findings.ScanError: There is no Python file in the paths.
  """
  shown = _list_files(paths, options)
  groups = trees.group(_read_files(paths, shown, options))
  total, done = len(shown), 0
  checked: list[findings_lib.Report] = []
  found: list[tuple[trees.Group, findings_lib.Report]] = []
  waiting: list[tuple[trees.Group, dict[str, str], checker.Options]] = []
  for group in groups:
    own = {o.path: shown[o.path] for o in group.files if o.path in shown}
    if not own:
      continue
    if options.nvidia_switch or any(
      o.matters or o.mentions or o.must_read for o in group.files
    ):
      waiting.append((group, own, options))
    else:
      checked.append(findings_lib.Report((checker.make_project(own),), ()))
      done += len(own)
  # The largest project takes longest: the others are checked meanwhile.
  waiting.sort(key=lambda each: len(each[0].files), reverse=True)
  for arguments, result in workers.run(check, waiting, options.jobs):
    done += result.projects[0].files
    found.append((arguments[0], result))
    if progress is not None:
      progress(done, total)
  found.sort(key=lambda each: each[0].folder)
  checked += _note_importers(found)
  checked.sort(key=lambda each: each.projects[0].path)
  return findings_lib.Report(
    tuple(project for each in checked for project in each.projects),
    tuple(line for each in checked for line in each.errors),
    tuple(line for each in checked for line in each.warnings),
    tuple(change for each in checked for change in each.changes),
  )


def _note_importers(
  found: Sequence[tuple[trees.Group, findings_lib.Report]],
) -> Iterator[findings_lib.Report]:
  """Yields results; says of a project that one with loss scaling imports it.

  Args:
    found: Projects with their results.
  """
  for group, result in found:
    (project,) = result.projects
    for other, report in found if project.notes else ():
      module, its = other.borrowed.get(group.folder), report.projects[0]
      if module is not None and its.uses_loss_scaling:
        note = (
          f"{its.path} imports {module} from it: run that by "
          "`tf-lossscale run` even after `migrate`"
        )
        project = project._replace(notes=(*project.notes, note))
    yield result._replace(projects=(project,))


def scan_text(
  data: bytes,
  name: str,
  options: checker.Options = DEFAULT,
  check: Callable[..., findings_lib.Report] = checker.check,
) -> findings_lib.Report:
  """Finds what has to change in a program that is not in a file.

  Args:
    data: The program's bytes.
    name: The name for its findings. If it ends with ".ipynb", the program is a
      notebook.
    options: What the user asks for.
    check: As of `scan`.

  Returns:
    The report; its error says if the bytes are no program.
  """
  try:
    group, reader = _read_text(data, name)
  except documents.DocumentError as error:
    return findings_lib.Report((), (str(error),))
  return check(group, {name: name}, options, reader)


def _read_text(data: bytes, name: str) -> tuple[trees.Group, reading.Reader]:
  """Returns the project that a program without a file is, and its reader."""
  reader = reading.Reader()
  reader.add_text(name, data)
  outline = outlines.read(name, data)._replace(
    starts=True, acts=True, must_read=True
  )
  folder = (
    os.path.dirname(os.path.abspath(name)) if os.path.exists(name) else ""
  )
  return trees.Group(folder, (outline,), {}), reader


def _list_files(
  paths: Sequence[str], options: checker.Options
) -> dict[str, str]:
  """Returns absolute paths -> the paths as the user wrote them."""
  is_excluded = excludes.make_matcher(options.exclude)
  shown: dict[str, str] = {}
  for path in paths:
    if not os.path.lexists(path):
      raise FileNotFoundError(f"{path!r} is not there")
    files = list(trees.list_files(path, is_excluded))
    for file in files:
      shown.setdefault(os.path.abspath(file), file)
    if not files:
      but = " that is not excluded" if options.exclude else ""
      raise findings_lib.ScanError(
        f"no Python file (.py) or notebook (.ipynb){but} in {path!r}"
      )
  return shown


def _read_files(
  paths: Sequence[str], shown: Iterable[str], options: checker.Options
) -> list[outlines.Outline]:
  """Returns the outlines of files.

  All files of the projects around what the user gives are read, too.
  """
  sources = dict.fromkeys(shown)
  given = {os.path.abspath(path) for path in paths}
  folders = set(filter(os.path.isdir, given))
  # The files of a folder have the same project.
  first = {p if p in folders else os.path.dirname(p): p for p in given}
  roots = set(map(surroundings.find_root, first.values())) - folders
  is_excluded = excludes.make_matcher(options.exclude)
  for root in sorted(roots):
    sources.update(dict.fromkeys(trees.list_files(root, is_excluded)))
  # A file that the user names is read in any case, for its errors.
  named = given - folders
  found: list[outlines.Outline] = []
  for path in sources:
    try:
      data = documents.load(path)
    except documents.DocumentError:
      unread = outlines.Outline(path, (), False, False, False, must_read=True)
      found.append(unread)  # The check reads it and reports the error.
      continue
    outline = outlines.read(path, data)
    found.append(outline._replace(must_read=path in named))
  return found
