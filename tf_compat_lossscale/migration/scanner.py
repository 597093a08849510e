# SPDX-License-Identifier: Apache-2.0
"""Finds the code in old programs that has to change, and plans the edits.

Each file is parsed; rules yield findings with edits; the edits are applied; the
result is parsed and looked at again. An edit counts as made if its finding is
gone. One syntax tree at a time is in memory: a tree takes 40 times as much as
its text. So the rules that ask no other file look at a tree when it is made.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import gc
import itertools
import operator
from typing import NamedTuple

from tf_compat_lossscale import _releases
from tf_compat_lossscale._core import installation
from tf_compat_lossscale.migration import batch
from tf_compat_lossscale.migration import contexts
from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import editing
from tf_compat_lossscale.migration import files as files_lib
from tf_compat_lossscale.migration import findings as findings_lib
from tf_compat_lossscale.migration import import_graph
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.migration import trees
from tf_compat_lossscale.programs import sources

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

  `progress` gets the number of files that are done, about, and that of all.

  Raises:
    ScanError: A path does not exist, or has no Python file.
  """
  listed = trees.list_files(paths, options.exclude)
  return _check([(path, None) for path in listed], options, progress)


def scan_text(
  data: bytes, name: str, options: ScanOptions = DEFAULT
) -> findings_lib.ScanReport:
  """Finds what has to change in a program that is not in a file.

  If the name for its findings ends with ".ipynb", it is a notebook.
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
  """Turns Python's garbage collector off, which trees keep busy for nothing."""
  was_on = gc.isenabled()
  gc.disable()
  try:
    yield
  finally:
    if was_on:
      gc.enable()


@sources.allow_depth()
@_keep_garbage()
def _check(
  given: Sequence[tuple[str, bytes | None]],
  options: ScanOptions,
  progress: Callable[[int, int], None],
) -> findings_lib.ScanReport:
  """Checks files, given with their bytes or None, and plans their edits."""
  errors: list[str] = []
  read: dict[str, documents.Document] = {}
  for path, data in given:
    try:
      read[path] = trees.read(path, data)
      errors += map(sources.advise, read[path].errors)
    except documents.DocumentError as error:
      errors.append(str(error))
  unread, count = len(errors), len(read)
  texts = {path: document.text for path, document in read.items()}
  matter = [path for path, text in texts.items() if _has(text, _MATTERS)]
  if not matter and not options.nvidia_switch:
    return findings_lib.ScanReport(count, errors=tuple(errors))
  # The files that use TensorFlow, lead to such by imports, or are imported by
  # such; and before them, those that may have to do with loss scaling.
  graph = import_graph.ImportGraph(texts)
  using = [path for path, text in texts.items() if _has(text, _USES)]
  wanted = graph.find_above(using) | graph.find_below(using)
  others = [path for path in texts if path in wanted.difference(matter)]
  many = len(matter) + len(others)
  release = options.target or installation.find_release()
  votes = collections.Counter[int | None]()
  parsed: dict[str, files_lib.File] = {}

  def parse(paths: Sequence[str]) -> None:
    for path in paths:
      progress(len(given) * len(parsed) // many, len(given))
      file = files_lib.File(read[path])
      context = contexts.Context(
        contexts.Meaning(None),
        release,
        frozenset().union(*graph.imports[path].values()),
        path in graph.importers,
      )
      try:
        _learn(file, context, options, votes)
      except sources.SourceError as error:
        shown = documents.show_path(path)
        errors.append(str(error).replace(path, shown, 1))
        continue
      votes[file.vote.counts_as] += 1
      parsed[path] = file

  parse(matter)
  uses = options.nvidia_switch or any(
    file.has_legacy or file.switches or file.imports_package
    for file in parsed.values()
  )
  if uses:
    parse(others)
  count -= len(errors) - unread
  if not uses:
    return findings_lib.ScanReport(count, errors=tuple(errors))

  files = [parsed[path] for path in texts if path in parsed]
  call = batch.Batch(files, graph, options.tensorflow, options.nvidia_switch)
  found = {file.path: _find(file, options) for file in files}
  listed = tuple(itertools.chain.from_iterable(found.values()))
  report = findings_lib.ScanReport(
    count, listed, tuple(errors), (), True, *call.summarize()
  )
  if options.edited:
    report = report._replace(changes=_plan(call, found, options))
  return report


def _plan(
  call: batch.Batch,
  found: Mapping[str, list[findings_lib.Finding]],
  options: ScanOptions,
) -> tuple[findings_lib.Change, ...]:
  """Plans the edits of findings, which are given by the paths of files."""
  files, now, left = call.files, dict(call.files), dict(found)
  for _ in range(_MANY_ROUNDS):
    known = {path: file.context for path, file in now.items()}
    edited = {}
    for path, findings in left.items():
      own = [f for f in findings if f.state in options.edited]
      own.sort(key=operator.attrgetter("code"))
      file = editing.edit(now[path], own) if own else now[path]
      if file is not now[path]:
        _learn(file, known[path], options)
        edited[path] = file
      now[path].leave()
    if not edited:
      break
    now |= edited
    call.link(now.values())
    for path, file in now.items():
      if path in edited or file.context != known[path]:
        left[path] = _find(file, options)
  changes = []
  for path, file in files.items():
    before, after = file.document.data, now[path].document.data
    rest = [f for f in left[path] if f.state in options.edited]
    stays = {(f.code, f.name) for f in rest}
    made = tuple(
      f
      for f in found[path]
      if f.state in options.edited and (f.code, f.name) not in stays
    )
    if after != before or rest:
      change = findings_lib.Change(path, before, after, made, tuple(rest))
      changes.append(change)
  return tuple(changes)


def _has(text: str, words: Sequence[str]) -> bool:
  return any(word in text for word in words)


def _learn(
  file: files_lib.File,
  context: contexts.Context,
  options: ScanOptions,
  votes: Mapping[int | None, int] | None = None,
) -> None:
  """Learns what is asked of a file, as long as its syntax tree is in memory.

  With the votes of the files so far, the file's decision is guessed. If the
  guess turns out wrong, the file is read again.
  """
  file.context = context
  batch.learn(file, options.tensorflow, votes)
  file.found = file.context.decision, _run_rules(file, options, False)
  file.leave()


def _run_rules(
  file: files_lib.File, options: ScanOptions, of_program: bool
) -> list[findings_lib.Finding]:
  return [
    finding._replace(code=rule.code)
    for rule in rules.select_rules(options.select, options.ignore)
    if rule.of_program == of_program
    for finding in rule.find(file)
  ]


def _find(
  file: files_lib.File, options: ScanOptions
) -> list[findings_lib.Finding]:
  (guess, found), decision = file.found, file.context.decision
  if guess[::2] != decision[::2]:  # Without the reason.
    found = _run_rules(file, options, False)
  found = [*found, *_run_rules(file, options, True)]
  found.sort(key=lambda f: (f.cell or 0, f.line, f.column, f.code))
  file.leave()
  return found
