# SPDX-License-Identifier: Apache-2.0
"""Makes `tensorflow.python.keras` the Keras that `tf.keras` is.

Up to TensorFlow 2.5, `tf.keras` was `tensorflow.python.keras`, and programs use
both together. TensorFlow still has the private modules: an old copy of Keras,
whose layers, models and optimizers are strangers to Keras 2. Under the private
names, programs get Keras 2's own modules here. TensorFlow itself, and packages
that are made for its copy, get that copy.
"""

from __future__ import annotations

from collections.abc import Iterator
import functools
import importlib
import importlib.machinery
import importlib.util
import re
import sys
import types
from typing import Any

from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale._core import patching
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale._core.patching import ABSENT
from tf_compat_lossscale.programs import import_hooks
from tf_compat_lossscale.programs import lazy_modules
from tf_compat_lossscale.programs import loading
from tf_compat_lossscale.programs import tables

ROOT = tables.PRIVATE_KERAS
_PARENT, _, _LAST = ROOT.rpartition(".")

_ENGINE = (
  *("engine.base_layer", "engine.input_layer", "engine.input_spec"),
  *("engine.sequential", "engine.training"),
)
# Further modules of Keras 2 that have names of a module.
_ALSO = {
  "engine": _ENGINE,
  "engine.topology": _ENGINE,
  "layers.convolutional": ("layers.convolutional.base_conv",),
  "layers.normalization": ("layers.normalization.batch_normalization",),
  "metrics": ("metrics.base_metric",),
  "utils.generic_utils": ("saving.legacy.serialization",),
  "utils.tf_utils": ("utils.control_flow_util",),
}
# Up to TensorFlow 1.8 all modules were below `_impl.keras`, and up to 2.3 those
# of mixed precision below `experimental`.
_FORMERLY = re.compile(
  r"^_impl(\.keras)?\.?|(?<=^mixed_precision\.)experimental\."
)
# Who gets the copy.
_INSIDE = re.compile(r"(tensorflow|tf_slim)(\.|$)")
# Modules that only pass names on.
_BETWEEN = frozenset(
  [
    *("importlib", "importlib._bootstrap", "_frozen_importlib"),
    *(lazy_modules.__name__, __name__),
  ]
)


class PrivateKeras(import_hooks.ImportWatcher):
  """A watcher that puts a module in place of each module of the copy.

  A name of such a module depends on the module that asks for it.
  """

  def __init__(self, log: patching.UndoLog) -> None:
    self._log = log
    # The copy's modules, by their names; None for those that it lacks.
    self._copy: dict[str, types.ModuleType | None] = {}
    self._modules: dict[str, types.ModuleType] = {}
    self._found: dict[tuple[str, str], Any] = {}

  def watches(self, name: str) -> bool:
    # The table of legacy names has some modules of mixed precision.
    place = legacy_names.find_place(name)
    return is_private(name) and place not in legacy_names.NAMES_IN

  def put_in_place(self) -> None:
    """Replaces the modules that are loaded, and others when they load."""
    self._copy.update(
      (name, module)
      for name, module in list(sys.modules.items())
      if self.watches(name)
    )
    self.start()
    for name, module in list(self._copy.items()):
      sys.modules[name] = self._make(name)
      sys.modules[name].__spec__ = getattr(module, "__spec__", None)
    parent = importlib.import_module(_PARENT)
    self._log.set(parent, _LAST, self._make(ROOT))

  def take_back(self) -> None:
    """Leaves the modules of the copy as they were found."""
    self.stop()
    for name, module in self._modules.items():
      if sys.modules.get(name) is module:
        copy = self._copy.get(name)
        if copy is None:
          del sys.modules[name]
        else:
          sys.modules[name] = copy

  def replace_module(self, name: str) -> types.ModuleType | None:
    return self._make(name) if _is_module(name[len(ROOT) + 1 :]) else None

  def _make(self, name: str) -> types.ModuleType:
    """Returns what stands for a module of the copy."""
    if name not in self._modules:
      path = name[len(ROOT) + 1 :]
      self._modules[name] = lazy_modules.LazyModule(
        name,
        functools.partial(self._load, path),
        functools.partial(self._list_names, path),
      )
    return self._modules[name]

  def _load(self, path: str, name: str) -> Any:
    """Returns a name in a module of the copy, or ABSENT."""
    if name == "__all__":
      return self._list_names(path)
    if name.startswith("__"):
      return ABSENT
    asker = lazy_modules.find_asker(_BETWEEN.__contains__)
    if _INSIDE.match(str(asker.get("__name__"))):
      return self._find_in_copy(path, name)
    if (path, name) not in self._found:
      self._found[path, name] = self._find(path, name)
    return self._found[path, name]

  def _find(self, path: str, name: str) -> Any:
    """Returns what a program gets for a name, or ABSENT."""
    child = f"{path}.{name}".lstrip(".")
    if _is_module(child):
      return importlib.import_module(f"{ROOT}.{child}")
    for home in _find_homes(path):
      value = getattr(home, name, ABSENT)
      if value is not ABSENT:
        return value
    return self._find_in_copy(path, name)

  def _find_in_copy(self, path: str, name: str) -> Any:
    """Returns what the copy has for a name, or ABSENT."""
    module = self._find_copy(f"{ROOT}.{path}".rstrip("."))
    if module is None:
      return ABSENT
    value = getattr(module, name, ABSENT)
    if value is ABSENT:
      value = self._find_copy(f"{module.__name__}.{name}") or ABSENT
    return value

  def _find_copy(self, name: str) -> types.ModuleType | None:
    """Returns a module of the copy; loads it if that was not done yet."""
    if name in self._copy:
      return self._copy[name]
    parent_name, _, last = name.rpartition(".")
    parent = self._find_copy(parent_name)
    folders = getattr(parent, "__path__", ())
    spec = importlib.machinery.PathFinder.find_spec(name, folders)
    if spec is None or spec.loader is None:
      return self._copy.setdefault(name, None)
    module = self._copy[name] = importlib.util.module_from_spec(spec)
    try:
      spec.loader.exec_module(module)
    except BaseException:
      del self._copy[name]
      raise
    setattr(parent, last, module)
    return module

  def _list_names(self, path: str) -> list[str]:
    """Returns the public names of a module."""
    homes = [*_find_homes(path)][:1] or [
      self._find_copy(f"{ROOT}.{path}".rstrip("."))
    ]
    names = getattr(homes[0], "__all__", None) or dir(homes[0])
    return sorted(name for name in names if not name.startswith("_"))


def is_private(name: str) -> bool:
  """Returns whether a name is that of private Keras, or of a member."""
  return name == ROOT or name.startswith(f"{ROOT}.")


@functools.cache
def _is_module(path: str) -> bool:
  """Returns whether there is or was a private module of Keras."""
  path = _FORMERLY.sub("", path)
  old = f"{ROOT}.{path}".rstrip(".")
  return old in tables.KERAS.known or any(
    which_keras.find_spec(name) is not None
    for name in (old, f"{which_keras.find_keras_2()}.{path}".rstrip("."))
  )


def _find_homes(path: str) -> Iterator[Any]:
  """Yields the modules of Keras 2 that may have the names of a private module.

  Args:
    path: The private module's name below `tensorflow.python.keras`.

  Yields:
    The modules, the best first; none if `tf.keras` is Keras 3.
  """
  if which_keras.is_keras_3():
    return
  path = _FORMERLY.sub("", path)
  public = importlib.import_module("tensorflow").keras
  for part in filter(None, path.split(".")):
    inner = getattr(public, part, None)
    if not isinstance(inner, types.ModuleType):
      break
    public = inner
  if path == "optimizers":  # Its classes may be the legacy ones.
    yield public
  old = f"{ROOT}.{path}".rstrip(".")
  names = tables.KERAS.names.get(old, {})
  if names:
    loaded = {name: loading.load(to) for name, to in names.items()}
    yield types.SimpleNamespace(**loaded)
  target = tables.KERAS.find_module(old) or f"keras2.{path}"
  for home in (target, *(f"keras2.{each}" for each in _ALSO.get(path, ()))):
    name = loading.expand(home).rstrip(".")
    try:
      module = importlib.import_module(name)
    except ModuleNotFoundError as error:
      if not name.startswith(str(error.name)):
        raise
      continue
    # `standalone_keras` may give this very module for what Keras 2 lacks.
    if not isinstance(module, lazy_modules.LazyModule):
      yield module
  yield public
