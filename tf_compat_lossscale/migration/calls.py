# SPDX-License-Identifier: Apache-2.0
"""What is known of all files of a call of `scan` or `migrate` together.

The files are taken for the programs that their start files start. A start file
asks for `__main__`, calls `app.run`, is a notebook or a test, or is a script
that no other file imports. It gets the calls that a program must make first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import itertools
import os
import re
from typing import Any
from typing import NamedTuple

from tf_compat_lossscale._core import install_commands
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.migration import files as files_lib
from tf_compat_lossscale.migration import import_graph
from tf_compat_lossscale.programs import choices
from tf_compat_lossscale.programs import hints
from tf_compat_lossscale.programs import missing_names
from tf_compat_lossscale.programs import sources
from tf_compat_lossscale.programs import which_tensorflow

_NEVER = ("setup.py", "__init__.py", "conftest.py")
_TEST = re.compile(r"test_.*\.py|.*_test\.py|__main__\.py|.*\.ipynb")
# In the names of a file, one a line.
_OPTIMIZERS = re.compile(r"\bkeras\.optimizers(\.(?!legacy)|$)", re.MULTILINE)
_STANDALONE = re.compile(r"^keras(\.|$)", re.MULTILINE)
_KERAS = re.compile(f"^{choices.KERAS.pattern}|^keras$", re.MULTILINE)
_KERAS_2 = re.compile(
  r"^tensorflow\.compat\.v1\.keras"  # Keras 3 has nothing there.
  rf"|^{files_lib.PACKAGE}\.keras($|\.(LossScaleOptimizer|Policy|\w+_policy)\b)",
  re.MULTILINE,
)
_KERAS_LACKS = re.compile(r"\btf\.(contrib\.|estimator)")
_BLOCKS = (ast.For, ast.While, ast.With)
_LEGACY = 'keras_optimizers="legacy"'
_TENSORBOARD = re.compile(r"(tensorflow\.)?(\w+\.)*callbacks\.TensorBoard$")


class Decision(NamedTuple):
  """The TensorFlow that a file means.

  Attributes:
    tensorflow: 1 or 2; None if the file does not use TensorFlow.
    reason: The name that told, with its place; "" if the other files told.
    both: Names of both, if the file has such: it stays as it is.
  """

  tensorflow: int | None
  reason: str = ""
  both: str = ""


class Needs(NamedTuple):
  """What a program needs at its start, and does not do.

  Attributes:
    disables: To turn TensorFlow 2's behavior off.
    keras_2: To choose Keras 2.
    restored: The missing names for which it must call `tfl.install()`.
    optimizers: To put Keras's legacy optimizers back.
    switch: A place that turns NVIDIA's variables on; "" if there is none.
    uses_keras_2: Whether it needs Keras 2, chosen or not.
  """

  disables: bool = False
  keras_2: bool = False
  restored: tuple[str, ...] = ()
  optimizers: bool = False
  switch: str = ""
  uses_keras_2: bool = False

  @property
  def has_any(self) -> bool:
    """Whether the program needs a call that it does not make."""
    asked = self.disables or self.keras_2 or self.optimizers
    return bool(asked or self.restored or self.switch)

  @property
  def install(self) -> str:
    """The call of `install()` that puts the names back."""
    return f"install({_LEGACY if self.optimizers else ''})"


class Package(NamedTuple):
  """A package that is not installed.

  Attributes:
    command: What installs it.
    name: The name that needs it.
    place: Where the name is in the first file.
    files: The files that need it.
  """

  command: str
  name: str
  place: Any
  files: list[files_lib.File]


class Call:
  """The files of a call.

  Attributes:
    release: The TensorFlow (major, minor) that they will run on.
    decisions: Path -> the TensorFlow that the file means.
  """

  def __init__(
    self,
    files: Sequence[files_lib.File],
    graph: import_graph.ImportGraph,
    release: tuple[int, int] | None,
    tensorflow: int | None = None,
    nvidia_switch: bool = False,
    decisions: Mapping[str, Decision] | None = None,
  ):
    """Finds what the files are to each other.

    Args:
      files: The files.
      graph: Their imports.
      release: The TensorFlow (major, minor) that they will run on.
      tensorflow: 1 or 2 if the user decided which TensorFlow they mean.
      nvidia_switch: Whether NVIDIA's variables are on in all programs.
      decisions: What was decided before the files were edited.
    """
    self.files, self.release, self._graph = files, release, graph
    self._nvidia_switch = nvidia_switch
    self.decisions = decisions or _decide(files, tensorflow)
    for file in files:
      file.call = self
    self._of = {file.path: file for file in files}
    self._using = [file.path for file in files if file.imports_tensorflow]

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

  def is_imported(self, file: files_lib.File) -> bool:
    """Returns whether another file imports a file."""
    return file.path in self._graph.importers

  def list_own_modules(self, file: files_lib.File) -> set[str]:
    """Returns the modules of the call that a file imports, as written."""
    found = self._graph.imports[file.path]
    return {name for names in found.values() for name in names}

  @functools.cached_property
  def needs(self) -> dict[str, Needs]:
    """Path of a file that starts a program -> what the program needs."""
    return self._all_needs[0]

  @functools.cached_property
  def elsewhere(self) -> Needs:
    """What the files need if none of them starts a program."""
    return self._all_needs[1]

  @functools.cached_property
  def restored(self) -> set[str]:
    """The missing names for which a program must call `tfl.install()`."""
    return {name for needs in self.needs.values() for name in needs.restored}

  @functools.cached_property
  def head(self) -> files_lib.File | None:
    """The first file that uses TensorFlow and that no other imports."""
    using = [self._of[path] for path in self._using]
    heads = [file for file in using if not self.is_imported(file)]
    return next(iter([*heads, *using]), None)

  @functools.cached_property
  def packages(self) -> list[Package]:
    """The packages that the files need and that are not installed."""
    found: dict[str, Package] = {}
    for file in self.files:
      for name, place, command in self._list_packages(file):
        package = found.setdefault(command, Package(command, name, place, []))
        if file not in package.files:
          package.files.append(file)
    return list(found.values())

  def _list_packages(
    self, file: files_lib.File
  ) -> Iterator[tuple[str, Any, str]]:
    """Yields names that need missing packages, their places and commands."""
    for use, absence in file.absences:
      if absence.command:
        yield absence.name, use.node, absence.command
    needed = []
    for use in file.source.uses:
      package = use.name.partition(".")[0]
      if _TENSORBOARD.match(use.name):
        needed.append(("tensorboard", use.written, use.node))
      elif package not in ("keras", "tensorflow"):
        needed.append((package, package, use.node))
    for package, name, node in needed:
      if hints.is_missing(package):
        command = install_commands.make_command(package, self.release)
        yield name, node, command
    needs = self.needs.get(file.path)
    uses_keras_2 = needs is not None and needs.uses_keras_2
    if uses_keras_2 and self.release and which_keras.is_missing(self.release):
      command = install_commands.make_command("tf_keras", self.release)
      yield "Keras 2", file.find_start(), command

  def list_starts(self, file: files_lib.File) -> dict[str, Needs]:
    """Returns the files that start programs with a file, relative to it.

    Returns:
      The path relative to the file -> what that program needs.
    """
    folder = os.path.dirname(file.path) or "."
    needs = self.needs
    return {
      os.path.relpath(path, folder): needs[path]
      for path in self._starts_of.get(file.path, ())
    }

  @functools.cached_property
  def _all_needs(self) -> tuple[dict[str, Needs], Needs]:
    """The needs of each start file, or else of all files together."""
    reaches = {}
    for file in self.files:
      if self._starts(file):
        reach = self._graph.find_below([file.path]) & self._of.keys()
        if self._use_tensorflow(reach):
          reaches[file.path] = reach
    unreached = set(self._of).difference(*reaches.values())
    # Programs load modules in other ways than by an import, too.
    for path in unreached if reaches else ():
      for start in _find_nearest(path, reaches):
        if self._of[path].tensorflow in (None, self._of[start].tensorflow):
          reaches[start].add(path)
    needs: dict[str, Needs] = {}
    self._starts_of = dict[str, list[str]]()
    for path, reach in reaches.items():
      for each in reach:
        self._starts_of.setdefault(each, []).append(path)
      found = self._find_needs(self._of[path], reach)
      for each in [*self._find_earlier(path), path]:
        needs.setdefault(each, found)
    if reaches:
      return needs, Needs()
    return {}, self._find_needs(None, set(self._of))

  def _use_tensorflow(self, paths: set[str]) -> bool:
    """Returns whether one of some files imports TensorFlow."""
    return not paths.isdisjoint(self._using)

  def _find_earlier(self, path: str) -> list[str]:
    """Returns the first file of a package that runs before a file in it.

    It is one that imports TensorFlow before the program does.
    """
    folder, found = os.path.dirname(path), list[str]()
    while (init := os.path.join(folder, "__init__.py")) in self._of:
      reach = self._graph.find_below([init]) & self._of.keys()
      if self._use_tensorflow(reach):
        found = [init]
      folder = os.path.dirname(folder)
    return found if found != [path] else []

  def _starts(self, file: files_lib.File) -> bool:
    """Returns whether a file starts a program."""
    name = os.path.basename(file.path)
    if name in _NEVER:
      return False
    if _TEST.fullmatch(name) or file.main_lines:
      return True
    if "app.run" in file.names:
      return True
    init = os.path.join(os.path.dirname(file.path), "__init__.py")
    if self.is_imported(file) or init in self._of:
      return False
    return any(_acts(file, statement) for statement in file.statements)

  def _find_needs(
    self, start: files_lib.File | None, reach: Iterable[str]
  ) -> Needs:
    """Returns what a program needs.

    Args:
      start: The file that starts it; None if none of the files does.
      reach: The files that may belong to it.
    """
    files = [self._of[path] for path in sorted(reach)]
    traits = [self._traits[file.path] for file in files]
    tensorflow = start.tensorflow if start else None
    if tensorflow is None:
      tensorflow = 1 if any(file.tensorflow == 1 for file in files) else 2
    done = {
      name
      for file in files
      for name, is_always in file.calls.items()
      if is_always or file is start
    }
    whole = _Traits.join(traits)
    lacks = list(whole.lacks)
    keras_2 = whole.has_keras_2 or (
      whole.uses_keras and (tensorflow == 1 or whole.means_keras_2)
    )
    if keras_2 and whole.imports_keras:
      lacks.append("keras")
    chosen = whole.chooses or "use_keras_2" in done
    installs = "install" in done
    switch = "--nvidia-switch" if self._nvidia_switch else whole.switch
    return Needs(
      tensorflow == 1
      and done.isdisjoint(("disable_v2_behavior", "disable_eager_execution")),
      keras_2 and not chosen,
      () if installs else tuple(dict.fromkeys(lacks)),
      keras_2 and not installs and whole.uses_optimizers,
      "" if "honor_environment" in done else switch,
      keras_2 or chosen,
    )

  @functools.cached_property
  def _traits(self) -> dict[str, _Traits]:
    """Path -> what the file adds to the needs of its programs."""
    return {file.path: _find_traits(file) for file in self.files}


class _Traits(NamedTuple):
  """What a file adds to the needs of its programs.

  Attributes:
    lacks: The missing names that `tfl.install()` puts back.
    has_keras_2: Whether it has names that Keras 2 alone has.
    uses_keras: Whether it uses Keras, or what is built on Keras.
    means_keras_2: Whether it means Keras 2, if it uses Keras.
    chooses: Whether it sets the environment variable that chooses Keras 2.
    uses_optimizers: Whether it uses optimizers of Keras, by class or by name.
    imports_keras: Whether it imports the package `keras`.
    switch: Where it turns NVIDIA's variables on; "" if it does not.
  """

  lacks: tuple[str, ...]
  has_keras_2: bool
  uses_keras: bool
  means_keras_2: bool
  chooses: bool
  uses_optimizers: bool
  imports_keras: bool
  switch: str

  @classmethod
  def join(cls, traits: Iterable[_Traits]) -> _Traits:
    """Returns what several files add together."""
    columns = list(zip(*traits))
    lacks = tuple(itertools.chain.from_iterable(columns[0]))
    switch = next(filter(None, columns[-1]), "")
    of_2, uses, means, chooses, optimizers, imports = map(any, columns[1:-1])
    return cls(
      *(lacks, of_2, uses, means, chooses, optimizers, imports, switch)
    )


def _find_traits(file: files_lib.File) -> _Traits:
  """Returns what a file adds to the needs of its programs."""
  names = file.names
  lacks = tuple(
    absence.name
    for _, absence in file.absences
    if absence.state == missing_names.RESTORED
  )
  text, switch = file.document.text, ""
  if file.switches:
    line = file.lines.find_position(file.switches[0][1][0])[0]
    switch = f"{os.path.basename(file.path)}:{line}"
  return _Traits(
    lacks,
    bool(_KERAS_2.search(names)),
    bool(_KERAS.search(names) or _KERAS_LACKS.search(" ".join(lacks))),
    next(choices.find_keras_2(file.source), None) is not None,
    "TF_USE_LEGACY_KERAS" in text,
    bool(_OPTIMIZERS.search(names))
    or (".compile(" in text and _compiles(file.source)),
    bool(_STANDALONE.search(names)),
    switch,
  )


def _compiles(source: sources.Source) -> bool:
  """Returns whether a source may call `Model.compile`."""
  return any(
    getattr(node.func, "attr", None) == "compile"
    and any(word.arg in ("loss", "optimizer") for word in node.keywords)
    for node in source.list_nodes(ast.Call)
  )


def _decide(
  files: Sequence[files_lib.File], tensorflow: int | None
) -> dict[str, Decision]:
  """Returns which TensorFlow each file means.

  A file without names that tell means what most of the others mean.

  Args:
    files: The files.
    tensorflow: 1 or 2 if the user decided.
  """
  found = {
    file.path: Decision(tensorflow) if tensorflow else _decide_alone(file)
    for file in files
    if file.imports_tensorflow
  }
  told = [each.tensorflow for each in found.values() if not each.both]
  most = 1 if told.count(1) > told.count(2) else 2
  return {
    file.path: each._replace(tensorflow=each.tensorflow or most)
    if (each := found.get(file.path))
    else Decision(None)
    for file in files
  }


def _decide_alone(file: files_lib.File) -> Decision:
  """Returns which TensorFlow a file means by its own names."""
  decision = which_tensorflow.decide_for([file.source])
  of_1 = of_2 = None
  for sign in decision.signs:
    if sign.tensorflow == 1 and sign.weight:
      of_1 = of_1 or sign
    elif sign.tensorflow == 2 and sign.weight > 1:
      of_2 = of_2 or sign
  if of_1 and of_2:
    return Decision(2, both=f"{of_1} is of 1, {of_2} of 2")
  if decision.signs:
    sign = decision.signs[0]
    # A name of `tensorflow.compat.v1` says it of a file that is not migrated.
    return Decision(decision.tensorflow, str(sign) if sign.weight else "")
  return Decision(1 if "disable_v2_behavior" in file.calls else None)


def _find_nearest(path: str, starts: Iterable[str]) -> list[str]:
  """Returns the start files in the nearest folder around a file, or all."""
  folder = os.path.dirname(os.path.abspath(path))
  of_folder: dict[str, list[str]] = {}
  for start in starts:
    own = os.path.dirname(os.path.abspath(start))
    of_folder.setdefault(own, []).append(start)
  while folder not in of_folder:
    if folder == os.path.dirname(folder):
      return list(starts)
    folder = os.path.dirname(folder)
  return of_folder[folder]


def _acts(file: files_lib.File, statement: ast.stmt) -> bool:
  """Returns whether a statement of a module does more than to define things."""
  if isinstance(statement, _BLOCKS):
    return True
  if isinstance(statement, ast.Expr):
    return not isinstance(statement.value, ast.Constant)
  if isinstance(statement, (ast.Assign, ast.AnnAssign)):
    value = statement.value
    function = value.func if isinstance(value, ast.Call) else None
    return files_lib.is_tensorflow(file.source.resolve(function) or "")
  return False
