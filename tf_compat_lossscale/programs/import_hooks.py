# SPDX-License-Identifier: Apache-2.0
"""Watches imports, and gives the import system modules that are gone."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from collections.abc import Sequence
import importlib
import importlib.machinery
import re
import sys
import types
from typing import Any

from tf_compat_lossscale._core import which_keras

# Our loaders have no base class, for which types would ask.
_Spec: Any = importlib.machinery.ModuleSpec
# What TensorFlow was in, and public modules of this package that import it. The
# names of the packages `keras` and `checkpoint` load at first use.
_NEEDS_TENSORFLOW = re.compile(
  r"tensorflow_core\b"
  r"|tf_compat_lossscale\.(?!_|cli|migration|programs|(keras|checkpoint)$)"
)
# The modules whose functions import a module by asking this one.
_SYSTEM = (__name__, "importlib._bootstrap", "_frozen_importlib")


class ImportWatcher:
  """An object that acts when certain modules are imported.

  A subclass chooses the modules and the actions. It acts between `start` and
  `stop`.

  Attributes:
    pattern: What the names of the watched modules begin with.
  """

  pattern: re.Pattern[str]

  def watches(self, name: str) -> bool:
    """Returns whether the module called `name` is watched."""
    return self.pattern.match(name) is not None

  def after_load(self, name: str, module: types.ModuleType) -> None:
    """Acts after a watched module has loaded."""

  def replace_module(self, name: str) -> types.ModuleType | None:
    """Returns the module to use even if another finder has one."""
    return None

  def supply_module(self, name: str) -> types.ModuleType | None:
    """Returns the module to use if no other finder has one."""
    return None

  def start(self) -> None:
    """Starts watching, before all other finders."""
    _finder.change(self, True)

  def stop(self) -> None:
    """Stops watching."""
    _finder.change(self, False)

  def act_on_loaded(self) -> None:
    """Acts on the watched modules that have loaded."""
    for name, module in list(sys.modules.items()):
      if isinstance(module, types.ModuleType) and self.watches(name):
        self.after_load(name, module)

  def is_started(self) -> bool:
    """Returns whether this watcher watches now."""
    return self in _finder.watchers


class _Finder:
  """The one finder of this package in `sys.meta_path`.

  Finders and loaders need no base class, and the base classes of
  `importlib.abc` take longer to import than all of this module.

  Attributes:
    watchers: The watchers that have started, the oldest first.
  """

  def __init__(self) -> None:
    self.watchers: list[ImportWatcher] = []
    # `threading` would take time at the start of each process of `run`.
    self._lock = _thread.allocate_lock()

  def change(self, watcher: ImportWatcher, watches: bool) -> None:
    """Adds or removes a watcher: with any, this is the first finder of all."""
    with self._lock:
      others = [each for each in self.watchers if each is not watcher]
      self.watchers = [*others, watcher] if watches else others
      finders = [each for each in sys.meta_path if each is not self]
      sys.meta_path[:] = [self, *finders] if self.watchers else finders

  def find_spec(
    self,
    fullname: str,
    path: Sequence[str] | None,
    target: types.ModuleType | None = None,
  ) -> Any:
    """Finds a module's spec; the import system calls this.

    Raises:
      ModuleNotFoundError: There is no such module; the message says what to do.
    """
    watchers = [each for each in self.watchers if each.watches(fullname)]
    if not watchers:
      return None
    try:
      return self._find_watched(watchers, fullname, path, target)
    except ModuleNotFoundError as error:
      askers = _list_askers()
      if "_find_and_load" not in askers:
        return None  # `importlib.util.find_spec` asks, and imports nothing.
      if "_handle_fromlist" in askers:
        # `from a import b` hides the error for `a.b`, and what it says.
        parent = fullname.rpartition(".")[0]
        raise ModuleNotFoundError(str(error), name=parent) from None
      raise

  def _find_watched(
    self, watchers: Sequence[ImportWatcher], name: str, *args: Any
  ) -> Any:
    """Finds the spec of a module that is watched.

    The newest watcher may replace the module first. If none does, the other
    finders are asked. If none of these has it, the oldest watcher may supply it
    first.
    """
    for watcher in reversed(watchers):
      module = watcher.replace_module(name)
      if module is not None:
        return _Spec(name, _ExistingModuleLoader(module))
    finders = list(sys.meta_path)
    # In another thread, the last watcher may have stopped.
    first = finders.index(self) + 1 if self in finders else 0
    for finder in finders[first:]:
      spec: Any = finder.find_spec(name, *args)
      if spec is not None:
        if hasattr(spec.loader, "exec_module"):
          spec.loader = _WatchedLoader(spec.loader, watchers)
        return spec
    for watcher in watchers:
      module = watcher.supply_module(name)
      if module is not None:
        return _Spec(name, _ExistingModuleLoader(module))
    return None


_finder = _Finder()


def _list_askers() -> list[str]:
  """Returns the functions of the import system that led to asking the finder.

  Python asks a finder alike for `import a.b`, `from a import b` and
  `importlib.util.find_spec`, while a missing module must end in three different
  ways. So we read the call stack.
  """
  frame: Any = sys._getframe(2)
  names = []
  while frame is not None and frame.f_globals.get("__name__") in _SYSTEM:
    names.append(frame.f_code.co_name)
    frame = frame.f_back
  return names


class _FirstImport(ImportWatcher):
  """A watcher that calls a function after a module's import, then stops.

  A module of this package may import TensorFlow, and the function may need that
  module of this package whole. So TensorFlow is imported before any public
  module of this package that needs it; and before the package keras, if that
  is to be Keras 2. A quiet watcher drops what the import writes to stderr.
  """

  def __init__(
    self, name: str, then: Callable[[types.ModuleType], None], quiet: bool
  ):
    self._name, self._then, self._is_quiet = name, then, quiet

  def watches(self, name: str) -> bool:
    if name == self._name or self._name != "tensorflow":
      return name == self._name
    if name == "keras":
      return not which_keras.means_keras_3()
    return _NEEDS_TENSORFLOW.match(name) is not None

  def after_load(self, name: str, module: types.ModuleType) -> None:
    if name == self._name:
      self.stop()
      self._then(module)

  def replace_module(self, name: str) -> types.ModuleType | None:
    if name == self._name and self._is_quiet:
      from tf_compat_lossscale._core import stderr

      self._is_quiet = False  # The import asks this watcher again.
      with stderr.drop():
        importlib.import_module(name)
    elif name == self._name or self._name in sys.modules:
      return None
    else:
      importlib.import_module(self._name)
      importlib.import_module(name)
    # The import system would load what it finds there a second time.
    return sys.modules.pop(name)


def when_imported(
  name: str, then: Callable[[types.ModuleType], None], quiet: bool = False
) -> None:
  """Calls `then` with a module: after its import, or now if it is loaded."""
  if name in sys.modules:
    then(sys.modules[name])
  else:
    _FirstImport(name, then, quiet).start()


class _ExistingModuleLoader:
  """A loader that gives a module which exists already."""

  def __init__(self, module: types.ModuleType):
    self._module = module

  def create_module(self, spec: Any) -> None:
    return None

  def exec_module(self, module: Any) -> None:
    # The import system uses the module that it finds here afterwards.
    spec = module.__spec__
    sys.modules[spec.name] = self._module
    if getattr(self._module, "__spec__", None) is None:
      # `importlib.util.find_spec` reads it from modules that are loaded.
      self._module.__spec__ = spec


class _WatchedLoader:
  """A loader that uses another loader, and tells watchers of the module."""

  def __init__(self, loader: Any, watchers: Sequence[ImportWatcher]):
    self._loader, self._watchers = loader, watchers

  def create_module(self, spec: Any) -> Any:
    return self._loader.create_module(spec)

  def exec_module(self, module: Any) -> None:
    spec = module.__spec__
    # From here on the module looks as if only its own loader had loaded it.
    spec.loader = module.__loader__ = self._loader
    self._loader.exec_module(module)
    for watcher in self._watchers:
      # A module of TensorFlow may replace itself in sys.modules by a wrapper.
      watcher.after_load(spec.name, sys.modules.get(spec.name, module))

  def __getattr__(self, name: str) -> Any:
    return getattr(self._loader, name)
