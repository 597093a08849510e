# SPDX-License-Identifier: Apache-2.0
"""Finds what the files of a call of `scan` or `migrate` tell of each other.

The files are taken for the programs that their start files start. A start file
asks for `__main__`, calls `app.run`, is a notebook or a test, or is a script
that no other file imports. It gets the calls that a program must make first.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import os

from tf_compat_lossscale.migration import contexts
from tf_compat_lossscale.migration import files as files_lib
from tf_compat_lossscale.migration import import_graph
from tf_compat_lossscale.migration.rewrites import missing_package
from tf_compat_lossscale.migration.rewrites import start_files
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
    self._using = [file.path for file in files if file.imports_tensorflow]
    for file in files:
      own = graph.imports[file.path].values()
      file.context = contexts.Context(
        self.decisions[file.path],
        release,
        frozenset().union(*own),
        file.path in graph.importers,
      )
    self._traits = {f.path: start_needs.find_traits(f) for f in files}
    reaches = self._find_programs()
    self._set_needs(reaches)
    for path, packages in missing_package.find_packages(files).items():
      file = self._of[path]
      file.context = file.context._replace(packages=tuple(packages))

  @property
  def tensorflow(self) -> int | None:
    """What most of the files mean; None if none uses TensorFlow."""
    told = [each.tensorflow for each in self.decisions.values()]
    if not any(told):
      return None
    return 1 if told.count(1) > told.count(2) else 2

  @property
  def reason(self) -> str:
    """The first name that told what most of the files mean, or ""."""
    most = self.tensorflow
    for each in self.decisions.values():
      if each.tensorflow == most and each.reason:
        return each.reason
    return ""

  def _find_programs(self) -> dict[str, set[str]]:
    """Returns the start files, each with the files of its program."""
    reaches = {}
    for path, file in self._of.items():
      if start_files.starts(file, self._of):
        reach = self._graph.find_below([path]) & self._of.keys()
        if not reach.isdisjoint(self._using):
          reaches[path] = reach
    # Programs load modules in other ways than by an import, too.
    of_folder: dict[str, list[str]] = {}
    for path in reaches:
      folder = os.path.dirname(os.path.abspath(path))
      of_folder.setdefault(folder, []).append(path)
    for path in set(self._of).difference(*reaches.values()):
      folder = os.path.dirname(os.path.abspath(path))
      while folder not in of_folder and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
      # The nearest start files, or all.
      for start in of_folder.get(folder, list(reaches)):
        if self._of[path].tensorflow in (None, self._of[start].tensorflow):
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
      for each in [*self._find_earlier(path), path]:
        needs.setdefault(each, found)
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
    traits = [self._traits[file.path] for file in files]
    return start_needs.find_needs(files, traits, start, self._nvidia_switch)

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

  A file without names that tell means what most of the others mean.

  Args:
    files: The files.
    tensorflow: 1 or 2 if the user decided.
  """
  found = {
    file.path: contexts.Decision(tensorflow)
    if tensorflow
    else _decide_alone(file)
    for file in files
    if file.imports_tensorflow
  }
  told = [each.tensorflow for each in found.values() if not each.both]
  most = 1 if told.count(1) > told.count(2) else 2
  return {
    file.path: each._replace(tensorflow=each.tensorflow or most)
    if (each := found.get(file.path))
    else contexts.Decision(None)
    for file in files
  }


def _decide_alone(file: files_lib.File) -> contexts.Decision:
  """Returns which TensorFlow a file means by its own names."""
  decision = which_tensorflow.decide_for([file.source])
  of_1 = of_2 = None
  for sign in decision.signs:
    if sign.tensorflow == 1 and sign.weight:
      of_1 = of_1 or sign
    elif sign.tensorflow == 2 and sign.weight > 1:
      of_2 = of_2 or sign
  if of_1 and of_2:
    return contexts.Decision(2, both=f"{of_1} is of 1, {of_2} of 2")
  if decision.signs:
    sign = decision.signs[0]
    # A name of `tensorflow.compat.v1` says it of a file that is not migrated.
    return contexts.Decision(
      decision.tensorflow, str(sign) if sign.weight else ""
    )
  return contexts.Decision(1 if "disable_v2_behavior" in file.calls else None)
