"""Puts the legacy names back where TensorFlow's releases had them."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import importlib
import re
import sys
import threading
import types
from typing import Any
from typing import NamedTuple

from tf_compat_lossscale import _requirements
from tf_compat_lossscale.legacy import import_hooks as _imports
from tf_compat_lossscale.legacy import names as legacy_names
from tf_compat_lossscale.legacy import which_keras

_Where = tuple[str, str]  # As `legacy_names.locate` gives it.

_ABSENT = object()
_SLIM = {"layers": "tf_slim.layers", "slim": "tf_slim"}

# Modules that some supported TensorFlow has not. The others are left alone
# when they are missing, which then has a reason.
_GONE = re.compile(
  r"contrib|mixed_precision|(.+\.)?mixed_precision\.experimental"
)


class _StandIn(types.ModuleType):
  """A module that TensorFlow no longer has; what is in it loads when used."""

  def __init__(self, where: _Where, package: str):
    super().__init__(f"tensorflow.{where[1]}")
    self.__path__: list[str] = []
    self._where = where
    self._package = package

  def __getattr__(self, name: str) -> Any:
    space, module = where = self.__dict__["_where"]
    package = self.__dict__["_package"]
    home = legacy_names.NAMES_IN.get(where, {}).get(name)
    if home is not None:
      return _load(home, name, package)
    if name in legacy_names.MODULES_IN.get(where, ()):
      return _stand_in((space, f"{module}.{name}"), package)
    if module == "contrib" and not name.startswith("_"):
      try:
        return _contrib(name)
      except ImportError as error:
        raise AttributeError(str(error)) from None
    raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

  def __dir__(self) -> list[str]:
    where = self._where
    return sorted(
      {
        *legacy_names.NAMES_IN.get(where, ()),
        *legacy_names.MODULES_IN.get(where, ()),
      }
    )


# A module's names depend on the package whose Keras it is for.
_stand_ins: dict[tuple[_Where, str], _StandIn] = {}


def _stand_in(where: _Where, package: str) -> _StandIn:
  return _stand_ins.setdefault((where, package), _StandIn(where, package))


def _load(home: str, name: str, package: str) -> Any:
  if home == "keras" and which_keras.is_keras_3(package):
    home = "keras.keras3_names"
  module = importlib.import_module(f"tf_compat_lossscale.{home}")
  return getattr(module, legacy_names.current_name(name))


def _contrib(name: str) -> types.ModuleType:
  """What serves as `tf.contrib.name`; ImportError says what replaced it."""
  if name in _SLIM:
    try:
      return importlib.import_module(_SLIM[name])
    except ModuleNotFoundError as error:
      if (error.name or "").partition(".")[0] != "tf_slim":
        raise
  hint = legacy_names.CONTRIB.get(name)
  raise ImportError(
    f"TensorFlow 2 has no tf.contrib.{name}: tf.contrib went with TensorFlow "
    "1, and of it tf_compat_lossscale restores mixed_precision alone."
    + (f" In place of it there is {hint}." if hint else ""),
    name=f"tensorflow.contrib.{name}",
  )


class Report(NamedTuple):
  """What `install` or `uninstall` did; its repr is a table.

  Attributes:
    title: What was done, in a line.
    rows: (place, names, what is there now) for each place of the table.
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


class _Installer(_imports.Finder):
  """Sets names in modules that are loaded, or as soon as they are."""

  def __init__(self) -> None:
    # (module, name, what was there, what is there now), in order.
    self._set: list[tuple[types.ModuleType, str, Any, Any]] = []
    self._given: list[tuple[str, types.ModuleType]] = []
    self.states: dict[tuple[_Where, str], str] = {}

  def wants(self, name: str) -> bool:
    where = legacy_names.locate(name)
    return where is not None and (
      where in legacy_names.NAMES_IN
      or where in legacy_names.MODULES_IN
      or where[1].startswith("contrib.")
    )

  def loaded(self, name: str, module: types.ModuleType) -> None:
    with _lock:
      if self in sys.meta_path:
        self._fill(name, module)

  def stand_in(self, name: str) -> types.ModuleType | None:
    where = legacy_names.locate(name)
    assert where is not None
    if where in legacy_names.NAMES_IN or where in legacy_names.MODULES_IN:
      module: types.ModuleType = _stand_in(where, name.partition(".")[0])
    elif where[1].count(".") == 1:
      module = _contrib(where[1].partition(".")[2])
    else:
      return None
    self._given.append((name, module))
    return module

  def fill_loaded(self) -> None:
    """Sets the names in all modules that are loaded."""
    for name, module in list(sys.modules.items()):
      if name.startswith(("tensorflow", "keras.", "tf_keras.")):
        self._fill(name, module)

  def _fill(self, module_name: str, module: types.ModuleType) -> None:
    where = legacy_names.locate(module_name)
    if where is None or module is None or module_name == "tensorflow._api.v2":
      return
    package = module_name.partition(".")[0]
    for name, home in legacy_names.NAMES_IN.get(where, {}).items():
      self._put(where, module, name, _load(home, name, package))
    space, inside = where
    for last in legacy_names.MODULES_IN.get(where, ()):
      child = f"{inside}.{last}".lstrip(".")
      if _GONE.fullmatch(child) and last not in vars(module):
        self._put(where, module, last, _stand_in((space, child), package))

  def _put(
    self, where: _Where, module: types.ModuleType, name: str, value: Any
  ) -> None:
    was = vars(module).get(name, _ABSENT)
    if was is value:  # It was loaded just now, and copied a name set before.
      was = next((old for *_, old, new in self._set if new is value), value)
    setattr(module, name, value)
    self._set.append((module, name, was, value))
    state = "added" if was is _ABSENT else "in TensorFlow's place"
    self.states[where, name] = state

  def take_back(self) -> None:
    """Leaves every module as it was found."""
    while self._set:
      module, name, was, value = self._set.pop()
      if vars(module).get(name) is not value:
        continue  # Somebody else has set it since.
      if was is _ABSENT:
        delattr(module, name)
      else:
        setattr(module, name, was)
    _stand_ins.clear()  # What was imported from them is bound to them.
    while self._given:
      name, module = self._given.pop()
      if sys.modules.get(name) is module:
        del sys.modules[name]


_lock = threading.RLock()
_installer: _Installer | None = None
_contexts = 0  # How many `installed()` are entered.
_installed = False  # Whether `install()` was called and not taken back.


def install() -> Report:
  """Puts every legacy name where some release from 1.14 to 2.8 had it.

  The classes of this package then are `tf.train.experimental.LossScale` and so
  on, in place of TensorFlow's own where it still has them, and all ways to
  import them work. The names of Keras and contrib load when they are used.
  Imports TensorFlow, if that has not happened yet. To call it again changes
  nothing.

  Returns:
    A report; its repr is a table of the names and places.
  """
  global _installed
  _import_what_is_needed()
  with _lock:
    _installed = True
    return _put_in_place()


def uninstall() -> Report:
  """Takes back exactly what `install` did.

  What a program imported in the meantime stays what it is to that program.
  While an `installed()` is entered, the names stay until it is left.

  Returns:
    A report; its repr is a line.
  """
  global _installed
  with _lock:
    if _installer is None:
      return Report("tf_compat_lossscale: no legacy names were installed")
    _installed = False
    return _take_back()


@contextlib.contextmanager
def installed() -> Iterator[Report]:
  """Has the legacy names in place while it is entered.

  Left last, it leaves things as they were when it was entered first; names
  that `install()` had put in place stay.
  """
  global _contexts
  _import_what_is_needed()
  with _lock:
    _contexts += 1
    report = _put_in_place()
  try:
    yield report
  finally:
    with _lock:
      _contexts -= 1
      _take_back()


def _import_what_is_needed() -> None:
  """Imports before the lock is held: imports of other threads wait for it."""
  _requirements.import_tensorflow()
  for row in legacy_names.TABLE:
    if row.home not in ("contrib", "keras"):
      importlib.import_module(f"tf_compat_lossscale.{row.home}")


def _put_in_place() -> Report:
  global _installer
  if _installer is None:
    installer = _Installer()
    installer.enter()
    try:
      installer.fill_loaded()
    except BaseException:
      installer.leave()
      installer.take_back()
      raise
    _installer = installer
  return Report(
    "tf_compat_lossscale: legacy names installed", _rows(_installer)
  )


def _rows(installer: _Installer) -> tuple[tuple[str, str, str], ...]:
  rows = []
  for (space, module), names in legacy_names.NAMES_IN.items():
    prefix = "tensorflow" if space == "v2" else "tensorflow.compat.v1"
    states = {
      installer.states.get(((space, module), name), "loads when used")
      for name in names
    }
    rows.append(
      (f"{prefix}.{module}", ", ".join(names), ", ".join(sorted(states)))
    )
  return tuple(rows)


def _take_back() -> Report:
  global _installer
  if _contexts or _installed or _installer is None:
    return Report("tf_compat_lossscale: legacy names stay, they are in use")
  _installer.leave()
  _installer.take_back()
  _installer = None
  return Report("tf_compat_lossscale: legacy names taken back")
