# SPDX-License-Identifier: Apache-2.0
"""Finds the code in old programs that has to change, and plans the edits.

Each file is parsed; rules yield findings with edits; the edits are applied; the
result is parsed and looked at again. An edit counts as made if its finding is
gone.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import functools
import gc
import itertools
import operator
from typing import Any
from typing import NamedTuple

from tf_compat_lossscale import _releases
from tf_compat_lossscale._core import installation
from tf_compat_lossscale.migration import batch
from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import editing
from tf_compat_lossscale.migration import files as files_lib
from tf_compat_lossscale.migration import findings as findings_lib
from tf_compat_lossscale.migration import import_graph
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.migration import trees
from tf_compat_lossscale.programs import sources

# The syntax trees of so many characters stay in memory; they take 40 times as
# much. Those of other files are read again.
_MOST_KEPT = 6_000_000
# Edits that overlap are made one after the other.
_MANY_ROUNDS = 8
# What a file has that uses TensorFlow; and one that uses a loss scale.
_USES = (
  *("tensorflow", "tf_compat_lossscale", "TF_ENABLE_AUTO", ".experimental."),
  "mixed_prec",
)
_MATTERS = (
  *("LossScale", "loss_scale", "mixed_precision", "tf_compat_lossscale"),
  "TF_ENABLE_AUTO",
)


class ScanOptions(NamedTuple):
  """What the user asks for.

  Attributes:
    select: Codes, and beginnings of codes, of the findings that are wanted;
      empty for all.
    ignore: Codes, and beginnings of codes, of findings that are not wanted.
    exclude: Patterns of files and folders to leave out.
    tensorflow: 1 or 2: the TensorFlow that the files mean; None to decide by
      their names.
    target: The TensorFlow (major, minor) that they will run on; None for the
      one that is installed.
    nvidia_switch: Whether NVIDIA's variables are on when the programs start.
    edited: The states of the findings whose edits are planned.
  """

  select: tuple[str, ...] = ()
  ignore: tuple[str, ...] = ()
  exclude: tuple[str, ...] = ()
  tensorflow: int | None = None
  target: tuple[int, int] | None = None
  nvidia_switch: bool = False
  edited: tuple[str, ...] = ()


DEFAULT = ScanOptions()


def scan(
  paths: Sequence[str],
  options: ScanOptions = DEFAULT,
  progress: Callable[[int, int], None] = lambda done, total: None,
) -> findings_lib.ScanReport:
  """Finds what has to change in files and folders.

  Args:
    paths: Files and folders.
    options: What the user asks for.
    progress: A function that takes the number of files that are done, about,
      and that of all files.

  Raises:
    ScanError: A path does not exist, or has no Python file.
  """
  listed = trees.list_files(paths, options.exclude)
  return _check([(path, None) for path in listed], options, progress)


def scan_text(
  data: bytes, name: str, options: ScanOptions = DEFAULT
) -> findings_lib.ScanReport:
  """Finds what has to change in a program that is not in a file.

  Args:
    data: The program's bytes.
    name: The name for its findings. If it ends with ".ipynb", the program is a
      notebook.
    options: What the user asks for.
  """
  return _check([(name, data)], options, lambda done, total: None)


def find_states(rule: rules.Rule) -> tuple[str, ...]:
  """Returns the states that findings of a rule have in the rule's examples.

  If an example has no finding, because it is about what is installed here, the
  findings are left to the user.
  """
  options = ScanOptions(select=(rule.code,), target=_releases.NEWEST)
  found = {
    finding.state
    for before, _ in rule.examples
    for finding in scan_text(before.encode("utf-8"), "x.py", options).findings
  }
  states = tuple(state for state in findings_lib.STATES if state in found)
  return states or (findings_lib.BY_HAND,)


@contextlib.contextmanager
def _keep_garbage() -> Iterator[None]:
  """Lets a function read many syntax trees.

  Python's garbage collector does not run meanwhile: it would look at the nodes
  of all trees again and again, which takes a third of the time.
  """
  was_on = gc.isenabled()
  gc.disable()
  try:
    with sources.allow_depth():
      yield
  finally:
    if was_on:
      gc.enable()


@_keep_garbage()
def _check(
  given: Sequence[tuple[str, bytes | None]],
  options: ScanOptions,
  progress: Callable[[int, int], None],
) -> findings_lib.ScanReport:
  """Checks files, given with their bytes or None, and plans their edits."""
  errors: list[str] = []
  read: dict[str, documents.Document] = {}

  def show(phase: int, done: int, total: int) -> None:
    progress(len(given) * (phase * total + done) // (2 * total), len(given))

  for path, data in given:
    try:
      read[path] = trees.read(path, data)
      errors += map(sources.advise, read[path].errors)
    except documents.DocumentError as error:
      errors.append(str(error))
  unread, count = len(errors), len(read)
  release = options.target or installation.find_release()
  graph, files = _parse_related(
    read, release, options.nvidia_switch, errors, functools.partial(show, 0)
  )
  read.clear()
  count -= len(errors) - unread
  if graph is None:
    return findings_lib.ScanReport(count, errors=tuple(errors))

  arguments = graph, release, options.tensorflow, options.nvidia_switch
  call = batch.Batch(files, *arguments)
  found = {}
  for done, file in enumerate(files):
    show(1, done, len(files))
    found[file.path] = _find(file, options)
  listed = tuple(itertools.chain.from_iterable(found.values()))
  report = findings_lib.ScanReport(
    count, listed, tuple(errors), (), True, *call.summarize()
  )
  if options.edited:
    changes = _plan(files, found, options, *arguments, call.decisions)
    report = report._replace(changes=changes)
  return report


def _plan(
  files: Sequence[files_lib.File],
  found: Mapping[str, list[findings_lib.Finding]],
  options: ScanOptions,
  *arguments: Any,
) -> tuple[findings_lib.Change, ...]:
  """Plans the edits of findings.

  Args:
    files: The files.
    found: Path -> the findings.
    options: What the user asks for.
    *arguments: The arguments of `Batch` after the files.
  """
  now, left = {file.path: file for file in files}, dict(found)
  for _ in range(_MANY_ROUNDS):
    known = {path: file.context for path, file in now.items()}
    edited = {}
    for path, findings in left.items():
      own = [f for f in findings if f.state in options.edited]
      own.sort(key=operator.attrgetter("code"))
      file = editing.edit(now[path], own) if own else now[path]
      if file is not now[path]:
        file.is_kept = now[path].is_kept
        edited[path] = file
    if not edited:
      break
    now |= edited
    batch.Batch(list(now.values()), *arguments)
    for path, file in now.items():
      if path in edited or file.context != known[path]:
        left[path] = _find(file, options)
  changes = []
  for file in files:
    before, after = file.document.data, now[file.path].document.data
    rest = [f for f in left[file.path] if f.state in options.edited]
    stays = {(f.code, f.name) for f in rest}
    made = tuple(
      f
      for f in found[file.path]
      if f.state in options.edited and (f.code, f.name) not in stays
    )
    if after != before or rest:
      change = findings_lib.Change(file.path, before, after, made, tuple(rest))
      changes.append(change)
  return tuple(changes)


def _parse_related(
  read: Mapping[str, documents.Document],
  release: tuple[int, int] | None,
  nvidia_switch: bool,
  errors: list[str],
  show: Callable[[int, int], None],
) -> tuple[import_graph.ImportGraph | None, list[files_lib.File]]:
  """Parses the files that have to do with loss scaling.

  Returns:
    The imports of all files, and the files that use TensorFlow, lead to such by
    imports, or are imported by such; None and no files if nothing uses loss
    scaling.
  """
  room = _MOST_KEPT
  parsed: dict[str, files_lib.File] = {}

  def parse(path: str) -> None:
    nonlocal room
    file = files_lib.File(read[path])
    try:
      batch.learn(file, release)
    except sources.SourceError as error:
      shown = documents.show_path(path)
      errors.append(str(error).replace(path, shown, 1))
      return
    room -= len(file.document.text)
    file.is_kept = room > 0
    file.leave()
    parsed[path] = file

  texts = {path: document.text for path, document in read.items()}
  matter = [path for path, text in texts.items() if _has(text, _MATTERS)]
  for path in matter:
    parse(path)
  uses = nvidia_switch or any(
    "legacy" in file.facts.signs or file.facts.switch or file.imports_package
    for file in parsed.values()
  )
  if not uses:
    return None, []
  graph = import_graph.ImportGraph(texts)
  using = [path for path, text in texts.items() if _has(text, _USES)]
  wanted = graph.find_above(using) | graph.find_below(using)
  wanted -= {*matter}
  for done, path in enumerate(filter(wanted.__contains__, texts)):
    show(done, len(wanted))
    parse(path)
  return graph, [parsed[path] for path in texts if path in parsed]


def _has(text: str, words: Sequence[str]) -> bool:
  return any(word in text for word in words)


def _find(
  file: files_lib.File, options: ScanOptions
) -> list[findings_lib.Finding]:
  found: list[findings_lib.Finding] = []
  for rule in rules.select_rules(options.select, options.ignore):
    found += (each._replace(code=rule.code) for each in rule.find(file))
  found.sort(key=operator.attrgetter("line", "column"))
  if found and found[0].cell:
    found.sort(key=operator.attrgetter("cell"))
  file.leave()
  return found
