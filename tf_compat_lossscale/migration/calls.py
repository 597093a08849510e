# SPDX-License-Identifier: Apache-2.0
"""Finds what the files of a call of `scan` or `migrate` tell of each other.

The files are taken for the programs that their start files start: see
`start_needs.starts_program`. A start file gets the calls that a program must
make first. A file that no start file imports belongs to the start files in its
folder, or else to those in the nearest folder around it, or else to all.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import os

from tf_compat_lossscale.migration import contexts
from tf_compat_lossscale.migration import files as files_lib
from tf_compat_lossscale.migration import import_graph
from tf_compat_lossscale.migration.rewrites import absent_names
from tf_compat_lossscale.migration.rewrites import old_installs
from tf_compat_lossscale.migration.rewrites import start_needs
from tf_compat_lossscale.programs import which_tensorflow


class Call:
  """The files of a call. Each file gets its context.

  Attributes:
    decisions: Path -> the TensorFlow that the file means.
  """

  def __init__(
    self,
    files: Sequence[files_lib.File],
    graph: import_graph.ImportGraph,
    release: tuple[int, int] | None,
    tensorflow: int | None = None,
    nvidia_switch: bool = False,
    decisions: Mapping[str, contexts.Decision] | None = None,
  ):
    """Finds the contexts.

    Args:
      files: The files.
      graph: Their imports.
      release: The TensorFlow (major, minor) that they will run on.
      tensorflow: 1 or 2 if the user decided which TensorFlow they mean.
      nvidia_switch: Whether NVIDIA's variables are on in all programs.
      decisions: What was decided before the files were edited.
    """
    self._graph, self._nvidia_switch = graph, nvidia_switch
    self.decisions = decisions or _decide(files, tensorflow)
    self._of = {file.path: file for file in files}
    self._using = [
      file.path
      for file in files
      if file.imports_tensorflow or file.imports_package
    ]
    for file in files:
      own = graph.imports[file.path].values()
      file.context = contexts.Context(
        self.decisions[file.path],
        release,
        frozenset().union(*own),
        file.path in graph.importers,
      )
    self._traits = {file: start_needs.find_traits(file) for file in files}
    self._set_needs(self._find_programs())
    for path, packages in absent_names.find_packages(files).items():
      file = self._of[path]
      file.context = file.context._replace(packages=tuple(packages))

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
    for path, file in self._of.items():
      if start_needs.starts_program(file, self._of):
        reach = self._graph.find_below([path]) & self._of.keys()
        if not reach.isdisjoint(self._using):
          reaches[path] = reach
          told = file.tensorflow or min(
            (self._of[p].tensorflow or 2 for p in reach), default=2
          )
          means[path] = (None, told)
    # Programs load modules in other ways than by an import, too.
    of_folder: dict[str, list[str]] = {}
    for path in reaches:
      folder = os.path.dirname(os.path.abspath(path))
      of_folder.setdefault(folder, []).append(path)
    for path in set(self._of).difference(*reaches.values()):
      folder = os.path.dirname(os.path.abspath(path))
      while folder not in of_folder and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
      for start in of_folder.get(folder, list(reaches)):
        if self._of[path].tensorflow in means[start]:
          reaches[start].add(path)
    return reaches

  def _set_needs(self, reaches: Mapping[str, set[str]]) -> None:
    """Tells the files what the programs need.

    Args:
      reaches: The start files, each with the files of its program.
    """
    starts: dict[str, list[str]] = {}
    needs: dict[str, contexts.Needs] = {}
    for path, reach in reaches.items():
      found = self._find_needs(reach, self._of[path])
      for each in self._find_earlier(path):
        known = needs.get(each, found)  # Of another program in the package.
        disables = known.disables and found.disables
        needs[each] = contexts.Needs._make(
          one or other for one, other in zip(known, found)
        )._replace(disables=disables and self._of[each].tensorflow != 2)
      needs[path] = found
      for each in reach:
        starts.setdefault(each, []).append(path)
    restored = {name for found in needs.values() for name in found.restored}
    for path, file in self._of.items():
      file.context = file.context._replace(
        needs=needs.get(path),
        starts={start: needs[start] for start in starts.get(path, ())},
        restored=frozenset(restored),
      )
    if not reaches and self._using:
      elsewhere = self._find_needs(self._of)
      heads = [p for p in self._using if not self._of[p].context.is_imported]
      head = self._of[(heads or self._using)[0]]
      if elsewhere._replace(uses_keras_2=False) != contexts.Needs():
        head.context = head.context._replace(elsewhere=elsewhere)

  def _find_needs(
    self, paths: Iterable[str], start: files_lib.File | None = None
  ) -> contexts.Needs:
    """Returns what some files need of the file that starts their program."""
    files = [self._of[path] for path in sorted(paths)]
    read = {file: self._traits[file] for file in files}
    return start_needs.find_needs(read, start, self._nvidia_switch)

  def _find_earlier(self, path: str) -> list[str]:
    """Returns the first file of a package that runs before a file in it.

    It is one that imports TensorFlow before the program does.
    """
    folder, found = os.path.dirname(path), list[str]()
    while (init := os.path.join(folder, "__init__.py")) in self._of:
      if not self._graph.find_below([init]).isdisjoint(self._using):
        found = [init]
      folder = os.path.dirname(folder)
    return found if found != [path] else []


def _decide(
  files: Sequence[files_lib.File], tensorflow: int | None
) -> dict[str, contexts.Decision]:
  """Returns which TensorFlow each file means.

  A file without names that tell means what most of the others mean, unless it
  imports `tensorflow.compat.v1`.

  Args:
    files: The files.
    tensorflow: 1 or 2 if the user decided.
  """
  decisions, votes = {}, list[int | None]()
  for file in files:
    decision, vote = contexts.Decision(tensorflow), None
    if tensorflow is None:
      decision, vote = _decide_alone(file)
    votes.append(vote)
    decisions[file.path] = decision
  most = 1 if votes.count(1) > votes.count(2) else 2
  for file in files:
    decision = decisions[file.path]
    if not file.imports_tensorflow:
      decisions[file.path] = contexts.Decision(None)
    elif decision.tensorflow is None:
      decisions[file.path] = contexts.Decision(
        1 if file.imports_compat_v1 else most,
        stays_eager=most == 2 and file.imports_compat_v1,
      )
  return decisions


def _decide_alone(file: files_lib.File) -> tuple[contexts.Decision, int | None]:
  """Returns which TensorFlow a file means by itself, and what it counts as.

  What `migrate` writes never makes a file count for TensorFlow 1, and never
  takes away that a file counts for TensorFlow 2. Otherwise, a second `migrate`
  might take other files for TensorFlow 1 than the first.
  """
  decision = which_tensorflow.decide_for([file.source])
  of_1 = of_2 = None
  for sign in decision.signs:
    if sign.tensorflow == 1 and sign.weight:
      of_1 = of_1 or sign
    elif sign.tensorflow == 2 and sign.weight > 1:
      of_2 = of_2 or sign
  if of_1 and of_2:
    both = f"{of_1} is of 1, {of_2} of 2"
    return contexts.Decision(2, both=both), None
  if decision.signs:
    sign, means = decision.signs[0], decision.tensorflow
    # A name of `tensorflow.compat.v1` says it of a file that is not migrated.
    return contexts.Decision(means, str(sign) if sign.weight else ""), means
  if (told := old_installs.find_release(file)) is not None:
    return contexts.Decision(told), told
  if "disable_v2_behavior" in file.calls:
    return contexts.Decision(1), 1 if file.has_names_of_compat_v1 else None
  # `migrate` may have edited the names away that told.
  if file.imports_package and not file.imports_compat_v1:
    is_2 = file.imports_tensorflow or f"\n{files_lib.PACKAGE}.keras" in (
      f"\n{file.names}"
    )
    return contexts.Decision(2), 2 if is_2 else None
  return contexts.Decision(None), None
