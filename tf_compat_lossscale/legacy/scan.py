# SPDX-License-Identifier: Apache-2.0
"""Finds the code in old sources that has to change."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
import os
from typing import NamedTuple

from tf_compat_lossscale.legacy import names
from tf_compat_lossscale.legacy import sources
from tf_compat_lossscale.legacy import switches
from tf_compat_lossscale.legacy.sources import Source

_PACKAGE = "tf_compat_lossscale"
_SHORT = "tfl"
_SKIPPED = ("__pycache__", "node_modules", "site-packages")


class Finding(NamedTuple):
  """An occurrence in a source that has to change.

  Attributes:
    path: The file.
    line: The line, counted from 1.
    column: The column, counted from 1, in characters.
    name: The name as written.
    now: The full name in this package.
    edit: The edit, in words.
    note: A difference in behavior that is known, or "".
  """

  path: str
  line: int
  column: int
  name: str
  now: str
  edit: str
  note: str


class CodeBase(NamedTuple):
  """Sources that were read together.

  Attributes:
    sources: The sources that could be read, and that import TensorFlow or name
      an environment variable of NVIDIA's TensorFlow 1.
    errors: A line for each source that could not be read.
    switches: Path -> NVIDIA's environment variables in that source.
  """

  sources: tuple[Source, ...]
  errors: tuple[str, ...]
  switches: dict[str, list[switches.Switch]]

  @property
  def touched(self) -> tuple[Source, ...]:
    """The sources that need an edit.

    If a program uses legacy names or NVIDIA's environment variables, all its
    TensorFlow 1 modules have to become TensorFlow 2 code together with it.
    """
    old = {s.path for s in self.sources if s.uses or self.switches[s.path]}
    if not old:
      return ()
    return tuple(s for s in self.sources if s.path in old or s.tensorflow1)

  @property
  def needs_keras_2(self) -> bool:
    """Whether a source that needs an edit uses Keras."""
    return any(source.keras for source in self.touched)

  def list_findings(self) -> Iterator[Finding]:
    """Yields the findings, file by file and line by line."""
    for source in self.touched:
      found = [_make_finding(source.path, use) for use in source.uses]
      found += [
        _make_switch_finding(source, switch)
        for switch in self.switches[source.path]
      ]
      if source.tensorflow1:
        found += [
          _make_import_finding(source.path, use)
          for use in source.imports
          if use.name == "tensorflow"
        ]
      yield from sorted(found, key=lambda f: (f.line, f.column))


def read_paths(paths: Iterable[str]) -> CodeBase:
  """Reads files, and all Python files in folders.

  Args:
    paths: Files and folders. Hidden folders in these folders, virtual
      environments and installed packages are left out.

  Returns:
    The sources.

  Raises:
    FileNotFoundError: A path does not exist.
  """
  readable, errors = [], []
  found: dict[str, list[switches.Switch]] = {}
  files: dict[str, None] = {}  # An ordered set.
  for path in paths:
    if not os.path.exists(path):
      raise FileNotFoundError(f"{path!r} is not there")
    files.update(dict.fromkeys(_list_files(path)))
  for path in files:
    try:
      source = sources.read_source(path)
    except sources.SourceError as error:
      errors.append(str(error))
      continue
    found[path] = switches.find_switches(source.tree)
    if source.imports or found[path]:
      readable.append(source)
  return CodeBase(tuple(readable), tuple(errors), found)


def _list_files(path: str) -> Iterator[str]:
  """Yields a file itself, or the Python files in a folder."""
  if not os.path.isdir(path):
    yield path
    return
  for folder, folders, files in os.walk(path):
    folders[:] = sorted(
      name
      for name in folders
      if not name.startswith(".")
      and name not in _SKIPPED
      and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
    )
    yield from (
      os.path.join(folder, name)
      for name in sorted(files)
      if name.endswith(".py")
    )


def _make_finding(path: str, use: sources.Use) -> Finding:
  """Returns the finding for the use of a legacy name."""
  short = use.now.replace(_PACKAGE, _SHORT, 1)
  package, _, last = use.now.rpartition(".")
  edit = {
    "expression": short,
    "follows": f"none: it follows the import; it is {short} now",
    "from": f"from {package} import {last}" if package else f"import {last}",
    "import": f"import {use.now}",
    "text": f"by hand, since the name is in a string: {use.now}",
  }[use.form]
  if use.written.endswith("*"):
    edit = f"from {use.now} import *"
  note = names.NOTES.get(use.now.partition(".")[2], "")
  return Finding(
    path, use.line, use.column + 1, use.written, use.now, edit, note
  )


def _make_import_finding(path: str, use: sources.Use) -> Finding:
  """Returns the finding for TensorFlow 1 code that imports TensorFlow."""
  now = "tensorflow.compat.v1"
  return Finding(
    path,
    use.line,
    use.column + 1,
    "import tensorflow",
    now,
    f"import {now}, and disable_v2_behavior()",
    "this is TensorFlow 1 code",
  )


def _make_switch_finding(source: Source, switch: switches.Switch) -> Finding:
  """Returns the finding for an environment variable of NVIDIA's builds."""
  edit = f"{_SHORT}.honor_environment() after TensorFlow is imported"
  if not source.imports:
    edit = (
      f"by hand, where TensorFlow is imported: {_SHORT}.honor_environment()"
    )
  return Finding(
    source.path,
    switch.line,
    switch.column + 1,
    switch.name,
    f"{_PACKAGE}.honor_environment",
    edit,
    "NVIDIA's TensorFlow 1 obeyed this environment variable; tf-lossscale run "
    "obeys it, too",
  )
