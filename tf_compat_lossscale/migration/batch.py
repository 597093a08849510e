# SPDX-License-Identifier: Apache-2.0
"""Finds what the files of a batch tell of each other.

A batch is the files of one call of `scan` or `migrate`.

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
from tf_compat_lossscale.migration import decisions as decisions_lib
from tf_compat_lossscale.migration import files as files_lib
from tf_compat_lossscale.migration import import_graph
from tf_compat_lossscale.migration import start_needs
from tf_compat_lossscale.migration.rewrites import absent_names

# What this module and those below ask of a file that is no longer in memory.
_ASKED = (
  *("calls", "has_names_of_compat_v1", "imports_compat_v1"),
  *("imports_package", "imports_tensorflow"),
)


class Batch:
  """The files of a batch. Each file gets its context.

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
    decisions: Mapping[str, contexts.Meaning] | None = None,
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
    for file in files:
      learn(file, release)
    self.decisions = decisions or decisions_lib.decide(files, tensorflow)
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
    """Tells the files what the programs need."""
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
    files = [self._of[path] for path in sorted(paths)]
    return start_needs.find_needs(files, start, self._nvidia_switch)

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


def learn(file: files_lib.File, release: tuple[int, int] | None) -> None:
  """Learns what a file tells the others, unless that is known."""
  if "facts" not in vars(file):
    for name in _ASKED:  # They are remembered.
      getattr(file, name)
    absences = file.find_absences(None, release)
    lacks = tuple(each.name for _, each in absences if each.is_restored)
    guarded = decisions_lib.find_guarded(file)
    file.facts = contexts.Facts(
      *decisions_lib.decide_alone(file, guarded),
      guarded,
      start_needs.find_signs(file, lacks),
      lacks,
      tuple(absent_names.list_packages(file, absences)),
      file.find_switch(),
    )
