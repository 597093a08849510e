# SPDX-License-Identifier: Apache-2.0
"""Finds what the files of a batch tell of each other.

A batch is the files of one call of `scan` or `migrate`.

The files are taken for the programs that their start files start: see
`start_needs.starts_program`. A start file gets the calls that a program must
make first. A file that no start file imports belongs to the start files in its
folder, or else to those in the nearest folder around it, or else to all.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import os

from tf_compat_lossscale.migration import contexts
from tf_compat_lossscale.migration import files as files_lib
from tf_compat_lossscale.migration import import_graph
from tf_compat_lossscale.migration import start_needs
from tf_compat_lossscale.migration.rewrites import absent_names
from tf_compat_lossscale.migration.rewrites import old_installs
from tf_compat_lossscale.programs import which_tensorflow

# What is asked of a file whose syntax tree is no longer in memory.
_ASKED = (
  *("binding", "calls", "has_legacy", "has_names_of_compat_v1"),
  *("imports_compat_v1", "imports_package", "imports_tensorflow"),
  *("main_lines", "short", "start", "switches"),
)


class Batch:
  """The files of a batch. Each file gets its context.

  Attributes:
    decisions: Path -> the TensorFlow that the file means. Edits do not change
      that.
    files: Path -> the file.
  """

  def __init__(
    self,
    files: Sequence[files_lib.File],
    graph: import_graph.ImportGraph,
    tensorflow: int | None,
    nvidia_switch: bool,
  ):
    """Decides, and finds the contexts; the last arguments are the user's."""
    self._graph, self._nvidia_switch = graph, nvidia_switch
    votes = collections.Counter(file.vote.counts_as for file in files)
    self.decisions = {
      file.path: decide(file, tensorflow, votes) for file in files
    }
    self.link(files)

  def link(self, files: Iterable[files_lib.File]) -> None:
    """Gives each file its context; some files may be edited by now."""
    self.files = {file.path: file for file in files}
    self._using = [
      path
      for path, file in self.files.items()
      if file.imports_tensorflow or file.imports_package
    ]
    for path, file in self.files.items():
      _, release, own_modules, is_imported = file.context[:4]
      file.context = contexts.Context(
        self.decisions[path], release, own_modules, is_imported
      )
    self._set_needs(self._find_programs())
    packages = absent_names.find_packages(list(self.files.values()))
    for path, found in packages.items():
      file = self.files[path]
      file.context = file.context._replace(packages=tuple(found))

  def summarize(self) -> tuple[int | None, str]:
    """Returns what most of the files mean, and the first name that told.

    Returns:
      None if no file uses TensorFlow; "" if no name told.
    """
    told = [each.tensorflow for each in self.decisions.values()]
    if not any(told):
      return None, ""
    most = 1 if told.count(1) > told.count(2) else 2
    reasons = (
      each.reason
      for each in self.decisions.values()
      if each.tensorflow == most and each.reason
    )
    return most, next(reasons, "")

  def _find_programs(self) -> dict[str, set[str]]:
    """Returns the start files, each with the files of its program."""
    reaches, means = {}, {}
    for path, file in self.files.items():
      if start_needs.starts_program(file, self.files):
        reach = self._graph.find_below([path]) & self.files.keys()
        if not reach.isdisjoint(self._using):
          reaches[path] = reach
          told = file.tensorflow or min(
            (self.files[p].tensorflow or 2 for p in reach), default=2
          )
          means[path] = (None, told)
    # Programs load modules in other ways than by an import, too.
    of_folder: dict[str, list[str]] = {}
    for path in reaches:
      folder = os.path.dirname(os.path.abspath(path))
      of_folder.setdefault(folder, []).append(path)
    for path in set(self.files).difference(*reaches.values()):
      folder = os.path.dirname(os.path.abspath(path))
      while folder not in of_folder and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
      for start in of_folder.get(folder, list(reaches)):
        if self.files[path].tensorflow in means[start]:
          reaches[start].add(path)
    return reaches

  def _set_needs(self, reaches: Mapping[str, set[str]]) -> None:
    """Tells the files what the programs need."""
    starts: dict[str, list[str]] = {}
    needs: dict[str, contexts.Needs] = {}
    earlier = {path: self._find_earlier(path) for path in reaches}
    for path, reach in reaches.items():
      found = self._find_needs(reach, self.files[path])
      for each in earlier[path]:
        known = needs.get(each, found)  # Of another program in the package.
        disables = known.disables and found.disables
        needs[each] = contexts.Needs._make(
          one or other for one, other in zip(known, found)
        )._replace(disables=disables and self.files[each].tensorflow != 2)
      needs[path] = found
      for each in reach:
        starts.setdefault(each, []).append(path)
    # What a file of a package chooses, a program that imports it chooses first.
    firsts = {x for found in earlier.values() for x in found}
    firsts = {path for path in firsts if needs[path].keras_2}
    for path, reach in reaches.items():
      if not (needs[path].uses_keras_2 or firsts.isdisjoint(reach)):
        for each in (path, *earlier[path]):
          needs[each] = needs[each]._replace(keras_2=True, uses_keras_2=True)
    restored = {name for found in needs.values() for name in found.restored}
    for path, file in self.files.items():
      file.context = file.context._replace(
        needs=needs.get(path),
        starts={start: needs[start] for start in starts.get(path, ())},
        restored=frozenset(restored),
      )
    if not reaches and self._using:
      elsewhere = self._find_needs(self.files)
      heads = [p for p in self._using if not self.files[p].context.is_imported]
      head = self.files[(heads or self._using)[0]]
      if elsewhere._replace(uses_keras_2=False) != contexts.Needs():
        head.context = head.context._replace(elsewhere=elsewhere)

  def _find_needs(
    self, paths: Iterable[str], start: files_lib.File | None = None
  ) -> contexts.Needs:
    files = [self.files[path] for path in sorted(paths)]
    return start_needs.find_needs(files, start, self._nvidia_switch)

  def _find_earlier(self, path: str) -> list[str]:
    """Returns the first file of a package that runs before a file in it.

    It is one that imports TensorFlow before the program does.
    """
    folder, found = os.path.dirname(path), list[str]()
    while (init := os.path.join(folder, "__init__.py")) in self.files:
      if not self._graph.find_below([init]).isdisjoint(self._using):
        found = [init]
      folder = os.path.dirname(folder)
    return found if found != [path] else []


def learn(
  file: files_lib.File,
  tensorflow: int | None,
  votes: Mapping[int | None, int] | None,
) -> None:
  """Learns what a file tells the others, and what is asked of it later.

  With the votes of some files, the file's decision is made by them.
  """
  for name in _ASKED:  # They are remembered.
    getattr(file, name)
  file.vote = _find_vote(file)
  if votes is not None:
    decision = decide(file, tensorflow, votes)
    file.context = file.context._replace(decision=decision)
  file.restorable = absent_names.find_restorable(file)
  file.packages = list(absent_names.list_packages(file))
  file.signs = start_needs.find_signs(file)


def decide(
  file: files_lib.File, tensorflow: int | None, votes: Mapping[int | None, int]
) -> contexts.Meaning:
  """Returns which TensorFlow a file means.

  A file without names that tell means what most of the others mean, unless it
  imports `tensorflow.compat.v1`. A file that asks for a name of TensorFlow 2
  alone does not mean TensorFlow 1: another branch of it would run. The user may
  have decided that it is 1 or 2. `votes` says how many files count as each.
  """
  decision, _, guarded = file.vote
  if not file.imports_tensorflow:
    return contexts.Meaning(None)
  if tensorflow is not None:
    return contexts.Meaning(tensorflow)
  if decision.tensorflow is None:
    most = 1 if votes.get(1, 0) > votes.get(2, 0) else 2
    is_ported = file.imports_package and not file.has_legacy
    decision = contexts.Meaning(
      1 if file.imports_compat_v1 else most,
      stays_eager=file.imports_compat_v1 and (most == 2 or is_ported),
    )
  if decision.tensorflow == 1 and guarded:
    both = f"the other files are of 1, {guarded} of 2"
    decision = contexts.Meaning(2, both=both)
  return decision


def _find_vote(file: files_lib.File) -> contexts.Vote:
  """Returns which TensorFlow a file means by itself, and what it counts as.

  What `migrate` writes never makes a file count for TensorFlow 1, and never
  takes away that a file counts for TensorFlow 2. Otherwise, a second `migrate`
  might take other files for TensorFlow 1 than the first.
  """
  signs = which_tensorflow.find_signs(file.source, guarded=True)
  of_2 = next((x for x in signs if x.tensorflow == 2 and x.weight > 1), None)
  guarded = file.show_sign(of_2) if of_2 else ""
  vote = functools.partial(contexts.Vote, guarded=guarded)
  decision = which_tensorflow.decide([file.source])
  of_1 = of_2 = None
  for sign in decision.signs:
    if sign.tensorflow == 1 and sign.weight:
      of_1 = of_1 or sign
    elif sign.tensorflow == 2 and sign.weight > 1:
      of_2 = of_2 or sign
  name_of_2 = file.show_sign(of_2) if of_2 else guarded
  if of_1 and name_of_2:
    both = f"{file.show_sign(of_1)} is of 1, {name_of_2} of 2"
    return vote(contexts.Meaning(2, both=both), None)
  if decision.signs:
    sign, means = decision.signs[0], decision.tensorflow
    # A name of `tensorflow.compat.v1` says it of a file that is not migrated.
    reason = file.show_sign(sign) if sign.weight else ""
    return vote(contexts.Meaning(means, reason), means)
  if (told := old_installs.find_release(file)) is not None:
    return vote(contexts.Meaning(told), told)
  if "disable_v2_behavior" in file.calls:
    counts_as = 1 if file.has_names_of_compat_v1 else None
    return vote(contexts.Meaning(1), counts_as)
  # `migrate` may have edited the names away that told.
  if file.imports_package and not file.imports_compat_v1:
    return vote(contexts.Meaning(2), 2 if file.imports_tensorflow else None)
  return vote(contexts.Meaning(None), None)
