# SPDX-License-Identifier: Apache-2.0
"""Makes `keras` and `tensorflow.python.keras` the Keras 2 that `tf.keras` is.

The package keras is Keras 3 from TensorFlow 2.16 on, and Keras 2 is tf_keras.
Later releases of Keras 2 lack modules such as `keras.engine`. Up to TensorFlow
2.5, `tf.keras` was `tensorflow.python.keras`, and programs use both together.
TensorFlow still has an old copy of Keras there, whose layers are strangers to
Keras 2. If `tf.keras` is Keras 3, all this stays as it is.

Keras 2 got new optimizers in TensorFlow 2.11. Programs and checkpoints of
earlier releases mean the classes that are now in `tf.keras.optimizers.legacy`:
subclasses override their methods, and their slots have other names. Names that
came with the new classes, such as `AdamW`, stay.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import functools
import importlib
import re
import sys
import types
from typing import Any

from tf_compat_lossscale._core import installation
from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale._core import patching
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.programs import import_hooks
from tf_compat_lossscale.programs import old_modules
from tf_compat_lossscale.programs import tables

LEGACY, NEW = "legacy", "new"

_ROOT = tables.PRIVATE_KERAS
_PRIVATE = re.compile(rf"{re.escape(_ROOT)}(\.|$)")
# Up to TensorFlow 1.8 all modules were below `_impl.keras`, and up to 2.3 those
# of mixed precision below `experimental`.
_FORMERLY = re.compile(
  r"^_impl(\.keras)?\.?|(?<=^mixed_precision\.)experimental\."
)
# TensorFlow builds these on its copy of Keras, and may not have loaded them.
_ON_THE_COPY = ("convolutional", "core", "pooling")


class StandaloneKeras(import_hooks.ImportWatcher):
  """A watcher that gives imports of keras the modules of Keras 2."""

  pattern = re.compile(r"(tf_)?keras(\.|$)")

  def __init__(self, log: patching.UndoLog) -> None:
    self._log = log

  def start_if_keras_2(self) -> None:
    """Starts, unless `tf.keras` or the loaded package keras is Keras 3."""
    keras = sys.modules.get("keras")
    is_other = keras not in (None, sys.modules.get("tf_keras"))
    if which_keras.means_keras_3() or (_is_apart() and is_other):
      return
    self.start()

  def replace_module(self, name: str) -> types.ModuleType | None:
    if not _is_apart() or name.startswith("tf_"):
      return None
    return self._import(name, f"tf_{name}") or self.supply_module(name)

  def supply_module(self, name: str) -> types.ModuleType | None:
    return self._import(name, f"{_ROOT}.{name.partition('.')[2]}")

  def _import(self, name: str, other: str) -> types.ModuleType | None:
    """Returns a module, by its other name; None if there is none."""
    module = old_modules.try_import(other)
    return None if module is None else self._log.supply(name, module)


class PrivateKeras(import_hooks.ImportWatcher):
  """A watcher that puts Keras 2's modules in place of those of the copy.

  What TensorFlow has imported from its copy stays what it is. A name that Keras
  2 lacks is the copy's.
  """

  def __init__(self, log: patching.UndoLog) -> None:
    self._log = log
    self._copy: dict[str, types.ModuleType] = {}
    self._modules: dict[str, types.ModuleType] = {}

  def watches(self, name: str) -> bool:
    # The table of legacy names has some modules of mixed precision.
    place = legacy_names.find_place(name)
    return bool(_PRIVATE.match(name)) and place not in legacy_names.NAMES_IN

  def start_if_keras_2(self) -> None:
    """Replaces the modules that are loaded, and others when they load."""
    if which_keras.means_keras_3():
      return
    for each in _ON_THE_COPY:
      importlib.import_module(f"tensorflow.python.layers.{each}")
    loaded = list(sys.modules.items())
    self._copy = {name: each for name, each in loaded if self.watches(name)}
    self.start()
    for name, module in self._copy.items():
      sys.modules[name] = self._make(name)
      sys.modules[name].__spec__ = module.__spec__
    parent, _, last = _ROOT.rpartition(".")
    self._log.set(sys.modules[parent], last, self._make(_ROOT))

  def take_back(self) -> None:
    """Leaves the modules of the copy as they were found."""
    self.stop()
    for name, module in self._modules.items():
      if sys.modules.get(name) is module:
        del sys.modules[name]
    for name, module in self._copy.items():
      sys.modules.setdefault(name, module)

  def replace_module(self, name: str) -> types.ModuleType | None:
    """Returns a module if there is or was a private module of its name."""
    if name not in self._copy and not _has_module(name):
      return None
    return self._make(name)

  def _make(self, name: str) -> types.ModuleType:
    if name in self._modules:
      return self._modules[name]
    old, new = _find_names(name)
    names = tables.KERAS.names.get(old, {})
    stars = tables.KERAS.stars.get(old, [])
    new_homes = (new, *map(old_modules.expand, stars))

    def load(member: str) -> Any:
      if member == "__all__":
        return list_names()
      if member in names:
        return old_modules.load(names[member])
      if member.startswith("__"):
        return patching.ABSENT
      if self.replace_module(f"{name}.{member}"):
        return importlib.import_module(f"{name}.{member}")
      every = self._list_homes(name, old, new_homes)
      homes = (home for home in every if hasattr(home, member))
      return getattr(next(homes, None), member, patching.ABSENT)

    def list_names() -> list[str]:
      if names:
        return sorted(names)
      home = next(self._list_homes(name, old, new_homes))
      found = getattr(home, "__all__", None) or dir(home)
      return sorted(each for each in found if not each.startswith("_"))

    self._modules[name] = old_modules.LazyModule(name, load, list_names)
    return self._modules[name]

  def _list_homes(
    self, name: str, old: str, new_homes: Sequence[str]
  ) -> Iterator[Any]:
    """Yields the modules that may have a private module's names, best first.

    In the table, the module is called `old`.
    """
    public = _find_public(old)
    if old == f"{_ROOT}.optimizers":  # Its classes may be the legacy ones.
      yield public
    for home in new_homes:
      module = old_modules.try_import(home)
      # `StandaloneKeras` may give this very module for what Keras 2 lacks.
      if not isinstance(module, (old_modules.LazyModule, type(None))):
        yield module
    yield public
    if name in self._copy:
      yield self._copy[name]


def _is_apart() -> bool:
  """Returns whether the package keras is not Keras 2."""
  return not which_keras.find_private_keras_2().startswith("keras")


@functools.cache
def _has_module(name: str) -> bool:
  """Returns whether Keras 2 has what was a private module of Keras."""
  old, new = _find_names(name)
  return old in tables.KERAS.names or installation.find_spec(new) is not None


def _find_names(name: str) -> tuple[str, str]:
  """Returns a private module's name in the table, and that of its new home."""
  path = _FORMERLY.sub("", name[len(_ROOT) + 1 :])
  old = f"{_ROOT}.{path}".rstrip(".")
  target = tables.KERAS.find_module(old) or f"keras2{old.removeprefix(_ROOT)}"
  return old, old_modules.expand(target)


def _find_public(old: str) -> Any:
  """Returns the public module that is nearest to a private one."""
  public = importlib.import_module("tensorflow").keras
  for part in old.removeprefix(_ROOT).split(".")[1:]:
    inner = getattr(public, part, None)
    if not isinstance(inner, types.ModuleType):
      break
    public = inner
  return public


class LegacyOptimizers(import_hooks.ImportWatcher):
  """Sets the legacy classes in Keras 2's modules, loaded or loaded later."""

  # Keras exports its optimizers from several modules.
  pattern = re.compile(r"(tensorflow|keras|tf_keras)(\.\w+)*\.optimizers$")

  def __init__(self) -> None:
    self._log = patching.UndoLog()

  def put_in_place(self) -> None:
    """Sets the classes in all modules, from now on."""
    if not self.is_started():
      self.start()
      self.act_on_loaded()

  def take_back(self) -> None:
    """Leaves every module as it was found."""
    self.stop()
    self._log.undo()

  def after_load(self, name: str, module: types.ModuleType) -> None:
    names = vars(module)
    legacy = names.get(LEGACY)
    if hasattr(getattr(legacy, "Optimizer", None), "get_slot"):
      for each, value in vars(legacy).items():
        if isinstance(value, type) and names.get(each, value) is not value:
          self._log.set(module, each, value)
    elif name != f"{which_keras.find_private_keras_2()}.optimizers":
      return  # This is Keras 3, or another package's module.
    for each in names.keys() & {"get", "deserialize"}:
      find = names[each]
      # A module that has just loaded may have copied a function of ours.
      if not self._log.has_set(find):
        find = _find_legacy(find)
      self._log.set(module, each, find)


def _find_legacy(function: Callable[..., Any]) -> Callable[..., Any]:
  """Makes `get` or `deserialize` find the legacy class for a name."""

  @functools.wraps(function)
  def find(*args: Any, **kwargs: Any) -> Any:
    return function(*args, **{"use_legacy_optimizer": True, **kwargs})

  return find
