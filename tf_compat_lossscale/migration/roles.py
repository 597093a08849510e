# SPDX-License-Identifier: Apache-2.0
"""Decides what each file of a project has to do in the project's programs."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import os
import re

from tf_compat_lossscale.migration import absences
from tf_compat_lossscale.migration import reading
from tf_compat_lossscale.migration import start_files
from tf_compat_lossscale.migration import trees
from tf_compat_lossscale.programs import choosing
from tf_compat_lossscale.programs import program_modules
from tf_compat_lossscale.programs import scopes
from tf_compat_lossscale.programs import source_facts
from tf_compat_lossscale.programs import uses

_PACKAGE = "tf_compat_lossscale"
# What a program may call already. A text without any of the words has no such
# call: to look for words takes less time.
_CALLS = {
  "disable": (
    ("disable_v2_behavior", "disable_eager_execution"),
    re.compile(r"\bdisable_(v2_behavior|eager_execution)\b"),
  ),
  "enable": (
    ("enable_v2_behavior", "enable_eager_execution"),
    re.compile(r"\benable_(v2_behavior|eager_execution)\b"),
  ),
  "honor": (("honor_environment",), re.compile(r"\bhonor_environment\b")),
  "keras": (
    ("tfl.keras", f"{_PACKAGE}.keras", f"{_PACKAGE} import keras"),
    re.compile(
      r"\b(tfl|tf_compat_lossscale)\.keras\.(LossScaleOptimizer|Policy|"
      r"global_policy|set_policy|get_layer_policy)\b"
      r"|from tf_compat_lossscale(\.keras import| import keras)\b"
    ),
  ),
  "install": ((".install(",), re.compile(r"\b\w+\.install\(")),
  # The environment variable chooses Keras 2 as well.
  "use_keras_2": (
    ("use_keras_2", "TF_USE_LEGACY_KERAS"),
    re.compile(r"\buse_keras_2\b|\bTF_USE_LEGACY_KERAS\b"),
  ),
}


@dataclasses.dataclass
class Role:
  """What a file has to do.

  Attributes:
    tensorflow: What the programs that reach the file mean: 1, 2, or both.
    reasons: 1 or 2 -> the name that decided for it, and where it is.
    entries: The files that start these programs.
    starts: Whether the file starts a program, or runs before one that does.
    keras_2: Whether the program must choose Keras 2 here, and does not.
    uses_keras_2: Whether the program needs Keras 2.
    restored: The missing names for which it must call `tfl.install()`.
    optimizers: Whether that call must put Keras's legacy optimizers back.
    is_imported: Whether other files import the file.
    installs: Whether all the programs call `tfl.install()`.
    disables: Whether the file must turn TensorFlow 2's behavior off.
    exposes: Whether no program here reaches the file, and the file imports a
      module of one. Such a module leaves it to its programs to turn TensorFlow
      2's behavior off.
    as_main: Whether it must do so only if it is `__main__`: the programs that
      import the file decide for themselves.
    opposes: A program that imports the file and wants TensorFlow 2's behavior;
      "" if there is none.
    needed_by: If there is one, the programs that import the file, and need that
      behavior off.
    switches: Places elsewhere that turn NVIDIA's variables on for the programs
      that the file starts, if these do not obey them.
    honors: Whether all the programs call `tfl.honor_environment()`.
    own_modules: The modules of the project that the file imports.
    is_head: Whether no program here reaches the file, and no module does that
      the programs do not reach either.
    first_file: The file that runs first if a program elsewhere imports the
      file: this very file, or the `__init__.py` of a package around it.
  """

  tensorflow: set[int] = dataclasses.field(default_factory=set)
  reasons: dict[int, str] = dataclasses.field(default_factory=dict)
  entries: set[str] = dataclasses.field(default_factory=set)
  starts: bool = False
  keras_2: bool = False
  uses_keras_2: bool = False
  restored: list[str] = dataclasses.field(default_factory=list)
  optimizers: bool = False
  is_imported: bool = False
  installs: bool = True
  disables: bool = False
  exposes: bool = False
  as_main: bool = False
  opposes: str = ""
  needed_by: list[str] = dataclasses.field(default_factory=list)
  switches: list[str] = dataclasses.field(default_factory=list)
  honors: bool = True
  own_modules: set[str] = dataclasses.field(default_factory=set)
  is_head: bool = False
  first_file: str = ""

  @property
  def reason(self) -> str:
    """Why TensorFlow 1 is meant, or else TensorFlow 2; "" if nothing tells."""
    return self.reasons.get(1) or self.reasons.get(2) or ""

  @property
  def obeys(self) -> bool:
    """Whether programs start with the file, and all obey NVIDIA's variables."""
    return bool(self.entries) and self.honors


class Roles:
  """The roles of the files of a project.

  Attributes:
    of: Path -> role.
    release: The TensorFlow (major, minor) that the project will run on.
    turns_2_off: For each program, whether it turns TensorFlow 2's behavior off
      already.
  """

  def __init__(
    self,
    group: trees.Group,
    reader: reading.Reader,
    tensorflow: int | None,
    release: tuple[int, int] | None,
    nvidia_switch: bool = False,
  ):
    """Finds the roles.

    Args:
      group: The project.
      reader: The reader of its files.
      tensorflow: 1 or 2 if the user decided which TensorFlow it means.
      release: The TensorFlow (major, minor) that it will run on.
      nvidia_switch: Whether NVIDIA's variables are on in all programs.
    """
    self._nvidia_switch = nvidia_switch
    # Path -> the programs that import it and want TensorFlow 2's behavior.
    self._opposing: dict[str, list[str]] = {}
    # Path -> the programs that import it, and must turn that behavior off.
    self._needing: dict[str, list[str]] = {}
    self._memory = program_modules.Memory(group.packages)
    self._programs: dict[str, program_modules.Program] = {}
    self._python_path = program_modules.find_python_path()
    self._earlier: dict[str, list[str]] = {}
    # Folder -> the folders from which programs in the folder import.
    self._searches: dict[str, list[str]] = {}
    # What was found so far: (path, TensorFlow) -> missing names;
    # (path, whether it is the program) -> keys of `_CALLS`.
    self._absences: dict[
      tuple[str, int | None], list[tuple[uses.Use, absences.Absence]]
    ] = {}
    self._restored: dict[tuple[str, int | None], list[str]] = {}
    self._calls: dict[tuple[str, bool], set[str]] = {}
    self._group, self._reader = group, reader
    self._tensorflow, self.release = tensorflow, release
    self.turns_2_off: list[bool] = []
    self.of = {
      outline.path: Role(is_imported=outline.path in group.imported)
      for outline in group.files
    }
    for entry in start_files.find_entries(group):
      self._add_program(entry.path, starts=True)
    unreached = [
      outline.path
      for outline in group.files
      if not self.of[outline.path].tensorflow
    ]
    for path in unreached:
      self._add_program(path, starts=False)
    for path in self._find_heads(unreached):
      self.of[path].is_head = True
      self.of[path].first_file = next(iter(self._find_earlier(path)), path)
    for path, role in self.of.items():
      if role.starts and role.disables and role.is_imported:
        self._decide_when(path, role)

  def _find_heads(self, unreached: list[str]) -> Iterator[str]:
    """Yields those of some files that none of the others imports.

    Of files that import each other in a circle, the first is yielded.
    """
    waiting = [path for path in unreached if self.of[path].tensorflow]
    rest = set(waiting)
    imported: dict[str, set[str]] = {path: set() for path in rest}
    for path in waiting:
      for importer in rest.intersection(self._group.imported.get(path, ())):
        imported[importer].add(path)
    importers = {p for found in imported.values() for p in found}
    for path in sorted(waiting, key=lambda p: (p in importers, p)):
      if path not in rest:
        continue
      yield path
      reached = [path]
      while reached:
        each = reached.pop()
        if each in rest:
          rest.discard(each)
          reached += imported[each]

  def _add_program(self, path: str, starts: bool) -> None:
    """Adds the program that a file starts, or a module that none reaches."""
    program = self._read_program(path)
    if not _imports_tensorflow(program):
      return
    choice = choosing.choose_for(program, self._tensorflow)
    needs = self._find_needs(program, choice)
    for module in program.sources[0].modules:
      if any(program.folders.find_files(module, path)):
        # `from a.b import c` names the folder `a.b`, which may be no package.
        needs.own_modules |= {module, module.rpartition(".")[0]}
    opposes = starts and (choice.tensorflow == 2 or self._enables(program))
    for source in program.sources if starts else program.sources[:1]:
      role = self.of.get(source.path)
      if role is not None:
        role.tensorflow.add(choice.tensorflow)
        if choice.found and (
          source.path == path or choice.tensorflow not in role.reasons
        ):
          role.reasons[choice.tensorflow] = choice.found
        role.installs &= needs.installs
        role.honors &= needs.honors
        if opposes and source.path != path:
          self._opposing.setdefault(source.path, []).append(path)
        elif starts and source.path != path and needs.disables:
          self._needing.setdefault(source.path, []).append(path)
        if starts:
          role.entries.add(path)
    if starts and not needs.honors:
      needs.switches += self._find_switches(program)
    if not starts and path in self.of:
      self.of[path].exposes = any(
        source.imports and self.of[source.path].entries
        for source in program.sources[1:]
        if source.path in self.of
      )
    for file in [path, *self._find_earlier(path)] if starts else [path]:
      self._give(file, needs, starts)
      needs.switches = []

  def _enables(self, program: program_modules.Program) -> bool:
    """Returns whether a program turns TensorFlow 2's behavior on itself."""
    return any(
      "enable" in self._find_calls(source.path, i == 0)
      for i, source in enumerate(program.sources)
    )

  def _find_switches(self, program: program_modules.Program) -> list[str]:
    """Returns the places elsewhere that turn NVIDIA's variables on.

    A file that imports TensorFlow obeys its own.
    """
    folder = os.path.dirname(program.sources[0].path)
    found = [
      f"{os.path.relpath(source.path, folder)}:{switch.line}"
      for source in program.sources
      if not source.imports
      for switch in self._reader.read(source.path).switches
    ]
    if self._nvidia_switch:
      found.append("--nvidia-switch")
    return found

  def _decide_when(self, path: str, role: Role) -> None:
    """Decides when an imported file turns TensorFlow 2's behavior off.

    If other programs import the file, they turn it off themselves.
    """
    importers = self._group.imported[path]
    if not start_files.is_imported_at_start(path, self._group) and all(
      self.of[each].entries for each in importers if each in self.of
    ):
      role.as_main = True
    for each in self._opposing.get(path, ())[:1]:
      folder = os.path.dirname(path)
      role.opposes = os.path.relpath(each, folder)
      role.needed_by = [
        os.path.relpath(need, folder) for need in self._needing.get(path, ())
      ]
    if role.opposes and os.path.basename(path) == "__init__.py":
      # The programs in the package make the call, after this import.
      acts = {outline.path for outline in self._group.files if outline.acts}
      role.disables = any(
        source.path in acts for source in self._read_program(path).sources
      )

  def _read_program(self, path: str) -> program_modules.Program:
    """Returns the program that a file starts; reads it at the first call."""
    if path not in self._programs:
      search: Sequence[str] = ()
      if self._group.folder:  # Otherwise, the program is in no file.
        search = self._find_search(os.path.dirname(path))
      self._programs[path] = program_modules.Program(
        path, search, self._reader.read_source, self._memory
      )
    return self._programs[path]

  def _find_search(self, folder: str) -> list[str]:
    """Returns the folders from which programs in a folder import."""
    if folder not in self._searches:
      *_, import_folder = program_modules.list_package_folders(folder)
      search = dict.fromkeys(
        [
          folder,
          import_folder,
          *filter(os.path.isdir, trees.list_roots(self._group.folder)),
          *self._group.roots.get(folder, ()),
        ]
      )
      self._searches[folder] = [*search, *self._python_path]
    return self._searches[folder]

  def _find_earlier(self, path: str) -> list[str]:
    """Returns the first file of the package that a program's start runs.

    It is one that imports TensorFlow before the program does.
    """
    folder = os.path.dirname(path)
    if folder not in self._earlier:
      *inside, _ = program_modules.list_package_folders(folder)
      files = (os.path.join(each, "__init__.py") for each in reversed(inside))
      self._earlier[folder] = [
        file for file in files if _imports_tensorflow(self._read_program(file))
      ][:1]
    return self._earlier[folder]

  def _find_needs(
    self, program: program_modules.Program, choice: choosing.Choice
  ) -> Role:
    """Returns what a program needs at its start."""
    lacks = list(
      dict.fromkeys(
        name
        for source in program.sources
        for name in self._list_restored(source, choice.tensorflow)
      )
    )
    built_on_keras = choice.uses_keras or any(
      name.startswith(("tf.contrib.", "tf.estimator")) for name in lacks
    )
    calls = set().union(
      *(
        self._find_calls(source.path, i == 0)
        for i, source in enumerate(program.sources)
      )
    )
    installs = "install" in calls
    self.turns_2_off.append("disable" in calls)
    # Keras 3 has nothing below `compat.v1`.
    reads = [self._reader.read(source.path) for source in program.sources]
    of_v1 = any(read.uses_keras_of_v1 for read in reads)
    keras_2 = (
      "keras" in calls or of_v1 or (choice.keras == 2 and built_on_keras)
    )
    return Role(
      keras_2=keras_2 and "use_keras_2" not in calls,
      uses_keras_2=keras_2 or "use_keras_2" in calls,
      restored=[] if installs else lacks,
      optimizers=keras_2
      and not installs
      and any(read.uses_optimizers for read in reads),
      installs=installs,
      disables=choice.tensorflow == 1 and "disable" not in calls,
      honors="honor" in calls,
    )

  def list_absences(
    self, source: source_facts.Source, tensorflow: int | None
  ) -> list[tuple[uses.Use, absences.Absence]]:
    """Returns `absences.list_absences` of a file; computes it once."""
    key = source.path, tensorflow
    if key not in self._absences:
      self._absences[key] = absences.list_absences(
        source, tensorflow, self.release
      )
    return self._absences[key]

  def _list_restored(
    self, source: source_facts.Source, tensorflow: int | None
  ) -> list[str]:
    """Returns the missing names in a file that `tfl.install()` puts back."""
    key = source.path, tensorflow
    if key not in self._restored:
      lacks = self.list_absences(source, tensorflow)
      self._restored[key] = list(
        dict.fromkeys(
          absence.name
          for _, absence in lacks
          if absence.state == absences.RESTORED
        )
      )
    return self._restored[key]

  def _find_calls(self, path: str, is_main: bool) -> set[str]:
    """Returns what a file calls already of what a program may need.

    Args:
      path: The file.
      is_main: Whether the program starts with the file. Otherwise, what it does
        as `__main__` does not count.
    """
    key = path, is_main
    if key not in self._calls:
      read = self._reader.read(path)
      text = read.document.text
      if not is_main:
        for statement in reversed(read.source.tree.body):
          if scopes.asks_for_main(statement):
            start, end = read.document.lines.find_span(statement)
            text = text[:start] + text[end:]
      self._calls[key] = {
        name
        for name, (words, pattern) in _CALLS.items()
        if any(word in text for word in words)
        and pattern.search(text)
        and (name != "install" or _PACKAGE in text)
      }
    return self._calls[key]

  def _give(self, path: str, needs: Role, starts: bool) -> None:
    """Adds a program's needs to a file's role."""
    role = self.of.get(path)
    if role is None:
      return
    role.starts |= starts
    role.keras_2 |= needs.keras_2
    role.uses_keras_2 |= needs.uses_keras_2
    role.restored += needs.restored
    role.optimizers |= needs.optimizers
    role.disables |= needs.disables
    role.switches += needs.switches
    role.own_modules |= needs.own_modules


def _imports_tensorflow(program: program_modules.Program) -> bool:
  """Returns whether a program imports TensorFlow."""
  return any(source.imports for source in program.sources)
