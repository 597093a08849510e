# SPDX-License-Identifier: Apache-2.0
"""Makes the modules that stand for those which TensorFlow no longer has.

There are three kinds: modules of the legacy names, which `_core/legacy_names`
lists, modules of `tf.contrib`, and modules that moved. `tables` lists these.
Members load when a program uses them.
"""

from __future__ import annotations

from collections.abc import Callable
import functools
import importlib
import types
from typing import Any

from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale._core import patching
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale._core.legacy_names import Place
from tf_compat_lossscale.programs import missing_names
from tf_compat_lossscale.programs import tables

# Modules of `tensorflow.compat.v1` that exist on Keras 2 alone.
_ON_KERAS_2 = ("tf.layers.", "tf.nn.rnn_cell.", "tf.keras.")

# Modules of Python from which others import names for type hints.
_FOR_TYPES = ("__future__", "collections.abc", "typing")


class LazyModule(types.ModuleType):
  """A module that TensorFlow lacks; its members load when they are used."""

  def __init__(
    self,
    name: str,
    load: Callable[[str], Any],
    list_names: Callable[[], list[str]],
  ):
    """Makes a module; `dir` calls `list_names`.

    `load` returns the value of a name, or ABSENT if it does not know the name,
    or raises an AttributeError that says what to do.
    """
    super().__init__(name)
    self.__path__: list[str] = []
    self.__dict__.update(_load=load, __dir__=list_names)

  def __getattr__(self, name: str) -> Any:
    value = self.__dict__["_load"](name)
    if value is patching.ABSENT:
      message = f"module {self.__name__!r} has no attribute {name!r}"
      raise AttributeError(message, name=name, obj=self)
    return value


class TargetError(ImportError):
  """An error for a target that this TensorFlow lacks; says what to do."""


def expand(target: str) -> str:
  """Returns the full name that a target means."""
  first, dot, rest = target.partition(".")
  if first == "keras2":
    return f"{which_keras.find_private_keras_2()}{dot}{rest}"
  return f"{tables.SHORT.get(first, first)}{dot}{rest}"


def load(target: str) -> Any:
  """Returns the module, class, function or constant that a target names.

  This imports modules as far as there are any, then reads attributes. In the
  public namespace, there are attributes alone: an import would load a module a
  second time, by another name.

  Raises:
    TargetError: There is no such thing in this installation.
  """
  if target.partition(".")[0] == "est":
    reason = missing_names.explain("tensorflow.estimator")
    if reason:
      raise TargetError(reason, name="tensorflow_estimator")
  full = expand(target)
  is_public = target.startswith("tf.")
  done = tables.SHORT["tf"] if is_public else full.partition(".")[0]
  try:
    value = importlib.import_module(done)
  except ModuleNotFoundError as error:
    raise TargetError(str(error), name=error.name) from None
  for part in filter(None, full.removeprefix(done).split(".")):
    done = f"{done}.{part}"
    try:
      value = getattr(value, part) if is_public else _find(value, done)
    except ModuleNotFoundError:
      raise  # A module exists, and fails to import another.
    except (AttributeError, ImportError) as error:
      reason = str(error)
      if target.startswith(_ON_KERAS_2) or "Keras 3" in reason:
        reason = missing_names.explain_keras_2(target)
      shown = target if is_public else full
      raise TargetError(f"{shown} is not there: {reason}") from None
  return value


def _find(owner: Any, name: str) -> Any:
  """Returns the module `name`, or else the attribute of `owner`, its parent."""
  module = try_import(name)
  return module or getattr(owner, name.rpartition(".")[2])


def try_import(name: str) -> types.ModuleType | None:
  """Imports a module; returns None if there is none of that name."""
  try:
    return importlib.import_module(name)
  except ModuleNotFoundError as error:
    if not name.startswith(error.name or "?"):
      raise  # The module fails to import another.
    return None


def make_module(name: str) -> types.ModuleType | None:
  """Returns the module that stands for an old one; None if there is none.

  Raises:
    ModuleNotFoundError: There is none; the message says what to do.
  """
  place = legacy_names.find_place(name)
  if place in legacy_names.NAMES_IN or place in legacy_names.MODULES_IN:
    assert place is not None
    return make_legacy(place, name.partition(".")[0])
  if place is not None and place.module.startswith("contrib."):
    name = f"tensorflow.{place.module}"
  return _make_from_table(name)


@functools.cache
def _make_from_table(name: str) -> types.ModuleType | None:
  """Does what `make_module` does, for a module that `tables` knows or not."""
  target, reason = tables.TABLE.find_module(name) or "", ""
  if target and expand(target) != name:
    if target.startswith("keras2.") and which_keras.is_keras_3():
      reason = missing_names.explain_keras_2(name)
      raise ModuleNotFoundError(reason, name=name)
    try:
      module = _load_moved(name, target)
    except TargetError as error:
      if error.name:  # A package that is not installed.
        raise ModuleNotFoundError(str(error), name=error.name) from None
      module, reason = None, str(error)
    if module is not None:
      return module
  path = name.removeprefix(f"{tables.CONTRIB}.")
  is_served = path != name and tables.is_contrib_module(path)
  if reason and not target.startswith("py."):
    is_served = False  # A module of today stands for its parent, and lacks it.
  if is_served and not missing_names.find_install_command(path.split(".")[0]):
    return _ContribModule(path, reason)
  advice = missing_names.explain(name, reason)
  if advice is not None:
    raise ModuleNotFoundError(advice, name=name)
  return None


def _load_moved(name: str, target: str) -> types.ModuleType | None:
  """Returns the module that a target names; None if it names no module."""
  module = load(target)
  if not isinstance(module, types.ModuleType):
    return None
  if not (hasattr(module, "__path__") and target.startswith("py.")):
    return module

  # The package itself cannot stand for another one in TensorFlow: imports would
  # set the modules of the one in the other.
  def find(member: str) -> Any:
    if member.startswith("__"):
      return getattr(module, member)
    return _find(module, f"{name}.{member}")

  return LazyModule(name, find, lambda: dir(module))


def forget() -> None:
  """Forgets the modules: imports have set submodules in them."""
  make_legacy.cache_clear()
  _make_from_table.cache_clear()


@functools.cache
def make_legacy(place: Place, package: str) -> types.ModuleType:
  """Returns the module at a place of the legacy names.

  Its names are for the Keras of `package`: "tensorflow", "keras" or "tf_keras".
  """
  names = legacy_names.NAMES_IN.get(place, {})
  modules = legacy_names.MODULES_IN.get(place, set())

  def find(name: str) -> Any:
    if name in names:
      return load_legacy(names[name], name, package)
    if name in modules:
      child = Place(place.space, f"{place.module}.{name}")
      return make_legacy(child, package)
    if name == "__all__":  # The names that `from … import *` binds.
      return sorted(names)
    if place.module == "contrib" and not name.startswith("_"):
      return _load_contrib(name)
    return patching.ABSENT

  return LazyModule(
    f"tensorflow.{place.module}", find, lambda: sorted({*names, *modules})
  )


def load_legacy(home: str, name: str, package: str) -> Any:
  """Returns the value of a legacy name; imports its home in this package.

  Raises:
    ImportError: The name is of Keras 2, and the package's Keras is Keras 3.
  """
  if home == "keras" and which_keras.is_keras_3(package):
    old, keras = f"mixed_precision.experimental.{name}", "tf.keras"
    keras = keras if package == "tensorflow" else package
    raise ImportError(
      f"{missing_names.explain_keras_2(old, keras)} For Keras 3, use "
      "keras.config.set_dtype_policy and keras.optimizers.LossScaleOptimizer, "
      "or tf_compat_lossscale.keras.Keras3LossScaleOptimizer."
    )
  module = importlib.import_module(f"tf_compat_lossscale.{home}")
  return getattr(module, legacy_names.get_current_name(name))


class _ContribModule(LazyModule):
  """A module of `tf.contrib`.

  A module below `tensorflow.contrib.layers`, such as
  `tensorflow.contrib.layers.python.layers.utils`, has the names of
  `tf.contrib.layers`: programs import names from the one and from the other.
  """

  def __init__(self, path: str, reason: str) -> None:
    """Makes a module; `reason` says why none of today can stand for it."""
    super().__init__(f"{tables.CONTRIB}.{path}", self._load, self._list_names)
    self._path, self._reason = path, reason
    top = f"{tables.CONTRIB}.{path.partition('.')[0]}"
    self._names = tables.TABLE.names.get(top, {})
    self._homes = tables.TABLE.stars.get(top, [])

  def _list_names(self) -> list[str]:
    names = set(self._names)
    for home in self._homes:
      try:
        module = load(home)
      except TargetError:  # Its package is not here.
        continue
      listed = vars(module).get("__all__") or dir(module)
      names |= {
        name
        for name in listed
        if name[0] != "_" and not _is_import(vars(module).get(name), home)
      }
    return sorted(names)

  def _load(self, name: str) -> Any:
    if name == "__all__":  # The names that `from … import *` binds.
      return [each for each in self._list_names() if hasattr(self, each)]
    if name.startswith("__"):
      return patching.ABSENT
    value = self._load_member(name)
    super().__setattr__(name, value)
    return value

  def _load_member(self, name: str) -> Any:
    """Returns a member, or raises an AttributeError that says what to do."""
    reason, homes = self._reason, self._homes
    if name in self._names:
      try:
        return load(self._names[name])
      except TargetError as error:
        homes, reason = [], str(error)
    for home in homes:
      try:
        module = load(home)
      except TargetError as error:
        reason = str(error)
        continue
      if name not in vars(module).get("__all__", (name,)):
        continue
      value = getattr(module, name, self)
      if not _is_import(value, home):
        return value
    child = f"{self._path}.{name}"
    if tables.is_contrib_module(child):
      return _load_contrib(child)
    old = f"{tables.CONTRIB}.{child}"
    raise AttributeError(missing_names.explain(old, reason))

  def __setattr__(self, name: str, value: Any) -> None:
    # The import of a module sets it in its parent. But the function `arg_scope`
    # of `framework.python.ops` hid the module of that name.
    if not (isinstance(value, types.ModuleType) and name in self._names):
      super().__setattr__(name, value)


def _is_import(value: Any, home: str) -> bool:
  """Returns whether a module has a value because it imports it from others."""
  if isinstance(value, types.ModuleType):
    top = home.partition(".")[0]
    return isinstance(value, LazyModule) or not value.__name__.startswith(top)
  return getattr(value, "__module__", "") in _FOR_TYPES


def _load_contrib(path: str) -> types.ModuleType | None:
  """Returns `tf.contrib.PATH`, or raises an AttributeError that helps."""
  try:
    return _make_from_table(f"{tables.CONTRIB}.{path}")
  except ImportError as error:
    raise AttributeError(str(error)) from None
