# SPDX-License-Identifier: Apache-2.0
"""Puts the legacy names back where TensorFlow's releases exported them."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import importlib
import re
import sys
import threading
import types
from typing import Any
from typing import Literal
from typing import NamedTuple

from tf_compat_lossscale import _releases
from tf_compat_lossscale import _requirements
from tf_compat_lossscale._core import arguments
from tf_compat_lossscale._core import installation
from tf_compat_lossscale._core import legacy_names as table
from tf_compat_lossscale._core import patching
from tf_compat_lossscale._core.legacy_names import Place
from tf_compat_lossscale._core.tf import private_names
from tf_compat_lossscale.programs import import_hooks
from tf_compat_lossscale.programs import missing_names
from tf_compat_lossscale.programs import old_keras
from tf_compat_lossscale.programs import old_methods
from tf_compat_lossscale.programs import old_modules
from tf_compat_lossscale.programs import tables

_OURS = "tf_compat_lossscale"
_KERAS_2 = f"{_OURS}.keras._keras2"

# Modules that become attributes of their parents if TensorFlow lacks them. Only
# imports find the other modules of the table that TensorFlow lacks.
_ATTRIBUTES = re.compile(
  r"contrib|mixed_precision|(.+\.)?mixed_precision\.experimental"
)


class InstallReport(NamedTuple):
  """A report of `install` or `uninstall`; its repr is a table.

  Attributes:
    title: A line that names the action.
    rows: (place, names, state) for each place of the table.
  """

  title: str
  rows: tuple[tuple[str, str, str], ...] = ()

  def __repr__(self) -> str:
    widths = [
      max((len(row[i]) for row in self.rows), default=0) for i in (0, 2)
    ]
    lines = [
      f"  {place:{widths[0]}}  {state:{widths[1]}}  {names}"
      for place, names, state in self.rows
    ]
    return "\n".join([self.title, *lines])


class _Installer(import_hooks.ImportWatcher):
  """Gives modules their old names, and the import system the old modules.

  Legacy names are set in modules that are loaded, and in others when they load.
  Names of `tables` load when a program uses them. Old modules are made when a
  program imports them.
  """

  # The packages whose modules may lack names, or modules below them.
  pattern = re.compile(
    rf"(tensorflow(_core)?|keras|{'|'.join(missing_names.COMPANIONS)})(\.|$)"
  )

  def __init__(self) -> None:
    self._log = patching.UndoLog()
    self.states: dict[tuple[Place, str], str] = {}
    self._keras = old_keras.PrivateKeras(self._log)
    self._standalone = old_keras.StandaloneKeras(self._log)
    self._served: list[types.ModuleType] = []
    release = installation.find_release() or _releases.WITHOUT_ESTIMATOR
    self._lacks_estimator = release >= _releases.WITHOUT_ESTIMATOR
    keras_2 = sys.modules.get(_KERAS_2)
    self._compile_was_patched = keras_2 and keras_2.is_wrapped_in_compile()

  def after_load(self, name: str, module: types.ModuleType) -> None:
    with _lock:
      if self.is_started():
        self._fill(name, module)

  def replace_module(self, name: str) -> types.ModuleType | None:
    public = table.leave_folders(name)
    if public != name:
      return self._log.supply(name, importlib.import_module(public))
    # A module that stands for an old one may lead other finders to files of its
    # own, which would be loaded a second time.
    if not self._log.has_supplied(name.rpartition(".")[0]):
      return None
    return self.supply_module(name)

  def supply_module(self, name: str) -> types.ModuleType | None:
    module = old_modules.make_module(name)
    return None if module is None else self._log.supply(name, module)

  def put_in_place(self) -> None:
    """Sets the names in all modules that are loaded, and in others later."""
    if self._lacks_estimator:
      private_names.add_estimator()
    self.start()
    self._keras.start_if_keras_2()
    self._standalone.start_if_keras_2()
    self.act_on_loaded()

  def _fill(self, module_name: str, module: types.ModuleType) -> None:
    """Sets the legacy names that belong in a module, and serves the others."""
    if module_name == "tensorflow._api.v2":
      return
    place = table.find_place(module_name)
    public = module_name
    if place is not None:  # TensorFlow has it by several names.
      root = "tensorflow.compat.v1" if place.space == "v1" else "tensorflow"
      public = f"{root}.{place.module}".rstrip(".")
    self._serve(public, module)
    for change in old_methods.list_changes(module_name, module):
      self._log.set(*change)
    if place is None:
      return
    package = module_name.partition(".")[0]
    values = {
      name: old_modules.load_legacy(home, name, package)
      for name, home in table.NAMES_IN.get(place, {}).items()
    }
    for last in table.MODULES_IN.get(place, ()):
      child = Place(place.space, f"{place.module}.{last}".lstrip("."))
      if _ATTRIBUTES.fullmatch(child.module) and last not in vars(module):
        values[last] = old_modules.make_legacy(child, package)
    for name, value in values.items():
      before = self._log.set(module, name, value)
      self.states[place, name] = (
        "added" if before is patching.ABSENT else "replaces TensorFlow's"
      )

  def _serve(self, module_name: str, module: Any) -> None:
    """Gives a module a `__getattr__` for its names in the table, if any."""
    targets = tables.TABLE.names.get(module_name)
    if not targets or module in (None, *self._served):
      return
    self._served.append(module)
    own = vars(module).get("__getattr__")

    def find(name: str) -> Any:
      message = f"module {module.__name__!r} has no attribute {name!r}"
      if name in targets:
        try:
          value = old_modules.load(targets[name])
        except old_modules.TargetError as error:
          message = f"{module_name}.{name}: {error}"
        else:
          self._log.set(module, name, value)
          return value
      elif own is not None:
        return own(name)
      raise AttributeError(message, name=name, obj=module)

    self._log.set(module, "__getattr__", find)

  def take_back(self) -> None:
    """Leaves every module as it was found, and `Model.compile` as well."""
    self.stop()
    self._keras.take_back()
    self._standalone.stop()
    if self._lacks_estimator:
      private_names.remove_estimator()
    self._log.undo()
    old_modules.forget()
    if not self._compile_was_patched:
      _restore_compile()


_lock = threading.RLock()
_installer: _Installer | None = None
_contexts = 0  # The number of `installed()` contexts that are entered.
_installed = False  # Whether `install()` was called, and `uninstall()` not.
_optimizers = old_keras.LegacyOptimizers()


def install(
  keras_optimizers: Literal["legacy", "new"] | None = None,
) -> InstallReport:
  """Puts every legacy name where some release from 1.14 to 2.8 exported it.

  `tf.train.experimental.LossScale` and so on are then the classes of this
  package, also if TensorFlow still has classes of its own there, and all ways
  to import them work. The names of Keras and contrib load when they are used.
  Imports TensorFlow. A second call changes nothing.

  Args:
    keras_optimizers: "legacy" to make `tf.keras.optimizers.Adam` and the others
      of Keras 2 the classes that they were up to TensorFlow 2.10, which are in
      `tf.keras.optimizers.legacy` now. "new" to have today's classes. None to
      leave them as they are.

  Returns:
    A report; its repr is a table of the names and places.

  Raises:
    ValueError: `keras_optimizers` is something else.
  """
  global _installed
  if keras_optimizers is not None:
    kinds = (old_keras.LEGACY, old_keras.NEW)
    arguments.check_word("keras_optimizers", keras_optimizers, kinds)
  _import_homes()
  with _lock:
    _installed = True
    if keras_optimizers == old_keras.LEGACY:
      _optimizers.put_in_place()
    elif keras_optimizers is not None:
      _optimizers.take_back()
    return _put_in_place()


def uninstall() -> InstallReport:
  """Takes back exactly the changes of `install`, and `Model.compile`'s patch.

  Objects that a program has imported stay valid. In an `installed()` context,
  the names stay until the program leaves the context.

  `Model.compile` of Keras 2 also becomes Keras's own again, which ignores the
  loss scale of a policy. The next `tfl.keras.Policy` or `tfl.keras.set_policy`
  patches it again.

  Returns:
    A report; its repr is one line.
  """
  global _installed
  with _lock:
    _installed = False
    _optimizers.take_back()
    if not _contexts:
      _restore_compile()
    if _installer is None:
      return InstallReport(f"{_OURS}: no legacy names were installed")
    return _take_back()


@contextlib.contextmanager
def installed() -> Iterator[InstallReport]:
  """Has the legacy names in place while the context is entered.

  When the last of several contexts is left, everything is as it was when the
  first was entered; names that `install()` put in place stay.
  """
  global _contexts
  _import_homes()
  with _lock:
    _contexts += 1
    report = _put_in_place()
  try:
    yield report
  finally:
    with _lock:
      _contexts -= 1
      _take_back()


def _import_homes() -> None:
  """Imports TensorFlow and the modules that define the names.

  This is done without the lock, for which imports in other threads wait.
  """
  _requirements.import_module("tensorflow")
  for row in table.TABLE:
    if row.home not in ("contrib", "keras"):
      importlib.import_module(f"{_OURS}.{row.home}")


def _put_in_place() -> InstallReport:
  """Installs the names, unless they are; reports where each is."""
  global _installer
  if _installer is None:
    installer = _Installer()
    try:
      installer.put_in_place()
    except BaseException:
      installer.take_back()
      raise
    _installer = installer
  rows, states = [], _installer.states
  for place, names in table.NAMES_IN.items():
    prefix = "tensorflow" if place.space == "v2" else "tensorflow.compat.v1"
    found = {states.get((place, name), "loads when used") for name in names}
    rows.append(
      (f"{prefix}.{place.module}", ", ".join(names), ", ".join(sorted(found)))
    )
  return InstallReport(f"{_OURS}: legacy names installed", tuple(rows))


def _take_back() -> InstallReport:
  """Uninstalls the names, unless they are in use."""
  global _installer
  if _contexts or _installed or _installer is None:
    return InstallReport(f"{_OURS}: legacy names stay, they are in use")
  _installer.take_back()
  _installer = None
  return InstallReport(f"{_OURS}: legacy names taken back")


def _restore_compile() -> None:
  module = sys.modules.get(_KERAS_2)
  if module is not None:
    module.restore_compile()
