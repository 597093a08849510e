# SPDX-License-Identifier: Apache-2.0
"""Says which TensorFlow a project means, and what runs it as it is."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import os

from tf_compat_lossscale._core import install_commands
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.migration import absences
from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import notebook_magics
from tf_compat_lossscale.migration import notebooks
from tf_compat_lossscale.migration import python2
from tf_compat_lossscale.migration import reading
from tf_compat_lossscale.migration import roles
from tf_compat_lossscale.migration import start_files
from tf_compat_lossscale.migration import trees
from tf_compat_lossscale.programs import source_facts

_RUN = "`tf-lossscale run`"
# The processes that Jupyter starts inherit the choice of TensorFlow.
_RUN_NOTEBOOK = "`tf-lossscale run --tf1 -m jupyter notebook`"


def find_tensorflow(
  found: roles.Roles,
  paths: Iterable[str],
  reader: reading.Reader,
  wanted: Iterable[str] = (),
) -> tuple[int | None, str]:
  """Returns which TensorFlow a project means, and why.

  Args:
    found: The roles of its files.
    paths: Its files that may import TensorFlow.
    reader: The reader of its files.
    wanted: The files that the user asks for: they give the reason first.

  Returns:
    1, 2, or None if nothing imports TensorFlow; and the name that decided, with
    its place, "" if there is none.
  """
  roles_of_all = [role for role in found.of.values() if role.tensorflow]
  starting = [role for role in roles_of_all if role.starts]
  meant = starting or roles_of_all  # A module that none reaches decides little.
  tensorflow = min((min(role.tensorflow) for role in meant), default=None)
  if found.turns_2_off and all(found.turns_2_off):
    tensorflow = 1
  if tensorflow is None:
    for path, line in find_python_2(paths, reader):
      return 1, f"Python 2, {os.path.basename(path)} line {line}"
    return None, ""
  own = [found.of[path] for path in wanted if path in found.of]
  reasons = (role.reasons.get(tensorflow) for role in (*own, *meant))
  return tensorflow, next(filter(None, reasons), "")


def find_python_2(
  paths: Iterable[str], reader: reading.Reader
) -> Iterator[tuple[str, int]]:
  """Yields the files for Python 2, each with the line that says so."""
  for path in paths:
    try:
      document = reader.read(path).document
    except source_facts.SourceError:
      try:
        line = python2.find_line(reader.read_document(path).text)
      except documents.DocumentError:
        continue
      if line is not None:
        yield path, line
      continue
    if isinstance(document, notebooks.Notebook):
      for cell in document.cells:
        if cell.code.error == notebook_magics.PYTHON_2 and cell.code.line:
          yield path, cell.code.line
          break


def find_missing(
  found: roles.Roles,
  tensorflow: int | None,
  paths: Sequence[str],
  reader: reading.Reader,
) -> dict[str, str]:
  """Returns the names that nothing puts back, each with its first place.

  Args:
    found: As of `find_tensorflow`, like the others.
    tensorflow: The TensorFlow that the project means.
    paths: As of `find_tensorflow`.
    reader: As of `find_tensorflow`.
  """
  missing: dict[str, str] = {}
  for place, absence in _list_absences(found, tensorflow, paths, reader):
    if absence.state == absences.MISSING:
      missing.setdefault(absence.name, place)
  return missing


def _list_absences(
  found: roles.Roles,
  tensorflow: int | None,
  paths: Sequence[str],
  reader: reading.Reader,
) -> Iterator[tuple[str, absences.Absence]]:
  """Yields the places that use names which TensorFlow lacks, and the lacks."""
  for path in paths:
    try:
      source = reader.read_source(path)
    except source_facts.SourceError:
      continue
    role = found.of.get(path)
    lacks = found.list_absences(source, tensorflow) if role else []
    for use, absence in lacks:
      yield f"{os.path.basename(path)} line {use.line}", absence


def list_advice(
  group: trees.Group,
  found: roles.Roles,
  tensorflow: int | None,
  paths: Sequence[str],
  reader: reading.Reader,
  missing: Mapping[str, str],
) -> Iterator[str]:
  """Yields what runs a project that does not use loss scaling.

  Args:
    group: The project.
    found: As of `find_missing`, like the others.
    tensorflow: As of `find_missing`.
    paths: As of `find_missing`.
    reader: As of `find_missing`.
    missing: What `find_missing` returns.

  Yields:
    Clauses; none for a project that today's TensorFlow runs as it is.
  """
  commands: dict[str, None] = {}
  restores = False
  for _, absence in _list_absences(found, tensorflow, paths, reader):
    restores |= absence.state == absences.RESTORED
    if absence.command:
      commands[absence.command] = None
  release = found.release
  if (
    release is not None
    and any(role.uses_keras_2 for role in found.of.values())
    and which_keras.is_missing(release)
  ):
    commands[install_commands.make_command("tf_keras", release)] = None
  if tensorflow != 1 and not restores:
    return
  old = dict(find_python_2(paths, reader))
  for path, line in old.items():
    yield f"first: 2to3, for {os.path.basename(path)} line {line}"
    break
  starting = [
    outline.path
    for outline in start_files.find_entries(group)
    if found.of[outline.path].starts or outline.path in old
  ]
  yield _describe_run(starting, missing)
  yield from (f"first: {command}" for command in commands)


def _describe_run(starting: Sequence[str], missing: Mapping[str, str]) -> str:
  """Returns what runs the programs that some files start, or where it stops.

  Args:
    starting: The files.
    missing: What `find_missing` returns.
  """
  notebooks_alone = all(path.endswith(".ipynb") for path in starting)
  run = _RUN_NOTEBOOK if starting and notebooks_alone else _RUN
  if not missing:
    return f"{run} runs {'it' if starting else 'the programs that import it'}"
  name, place = next(iter(missing.items()))
  rest = len(missing) - 1
  more = f" or {rest} other name{'s' if rest > 1 else ''}" if rest else ""
  back = "them" if rest else "it"
  return (
    f"{run} stops where the program uses {name} ({place}){more}: nothing puts "
    f"{back} back"
  )
