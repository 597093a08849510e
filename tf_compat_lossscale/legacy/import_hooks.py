"""Acts on modules when they load, and stands in for those that are gone."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import importlib.machinery
import sys
import types
from typing import Any
from typing import cast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from importlib.abc import Loader

_Spec = importlib.machinery.ModuleSpec
_OURS = f"{__package__}."


class Finder:
  """Sees modules load.

  A subclass says which it wants to see, and what happens then. It works from
  `enter` to `leave`. (Finders and loaders need no base class, and those of
  `importlib.abc` take longer to import than all of this module.)
  """

  def wants(self, name: str) -> bool:
    """Whether the module called `name` is of interest."""
    raise NotImplementedError

  def loading(self, name: str) -> None:
    """Called when a wanted module is about to be loaded."""

  def loaded(self, name: str, module: types.ModuleType) -> None:
    """Called when a wanted module has just been loaded."""

  def ended(self, name: str) -> None:
    """Called when loading a wanted module has ended, even if it failed."""

  def replacement(self, name: str) -> types.ModuleType | None:
    """What stands at `name`, whatever else might be found there."""
    return None

  def stand_in(self, name: str) -> types.ModuleType | None:
    """What stands at `name` when nothing else is found there."""
    return None

  def enter(self) -> None:
    """Starts to see modules load, before all other finders."""
    sys.meta_path.insert(0, self)

  def leave(self) -> None:
    """Stops to."""
    sys.meta_path.remove(self)

  def find_spec(
    self,
    fullname: str,
    path: Sequence[str] | None,
    target: types.ModuleType | None = None,
  ) -> _Spec | None:
    """For the import system."""
    if not self.wants(fullname):
      return None
    module = self.replacement(fullname)
    if module is not None:
      return _Spec(fullname, cast("Loader", _Giver(module)))
    spec = self._others_spec(fullname, path, target)
    if spec is not None:
      if hasattr(spec.loader, "exec_module"):
        spec.loader = cast("Loader", _Teller(spec.loader, self))
      return spec
    module = self.stand_in(fullname)
    if module is not None:
      return _Spec(fullname, cast("Loader", _Giver(module)))
    return None

  def _others_spec(self, *args: Any) -> _Spec | None:
    # Those after this one: others of this kind ask in their turn.
    for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
      spec = finder.find_spec(*args)
      if spec is not None:
        return spec
    return None


class _Once(Finder):
  """Waits for a module, calls a function when it has come, and leaves.

  A module of this package may be what imports the awaited one, and the function
  may need that module whole. So it is not called while modules of this package
  are half loaded, but when the last of them ends.
  """

  def __init__(self, name: str, then: Callable[[types.ModuleType], None]):
    self._name, self._then = name, then
    self._module: types.ModuleType | None = None
    self._half_loaded: set[str] = set()

  def wants(self, name: str) -> bool:
    return name == self._name or name.startswith(_OURS)

  def loading(self, name: str) -> None:
    if name != self._name:
      self._half_loaded.add(name)

  def loaded(self, name: str, module: types.ModuleType) -> None:
    if name == self._name:
      self._module = module

  def ended(self, name: str) -> None:
    self._half_loaded.discard(name)
    if self._module is not None and not self._half_loaded:
      self.leave()
      self._then(self._module)


def when_imported(name: str, then: Callable[[types.ModuleType], None]) -> None:
  """Calls `then` with the module called `name` right after it is imported.

  If modules of this package are half loaded at that moment, `then` is called
  when the last of them has loaded.
  """
  _Once(name, then).enter()


class _Giver:
  """Loads a module that exists already."""

  def __init__(self, module: types.ModuleType):
    self._module = module

  def create_module(self, spec: _Spec) -> None:
    return None

  def exec_module(self, module: types.ModuleType) -> None:
    # The import system takes what it finds here when this returns.
    assert module.__spec__ is not None
    sys.modules[module.__spec__.name] = self._module


class _Teller:
  """Loads a module by its own loader, then tells a finder of it."""

  def __init__(self, loader: Any, finder: Finder):
    self._loader, self._finder = loader, finder

  def create_module(self, spec: _Spec) -> types.ModuleType | None:
    return self._loader.create_module(spec)

  def exec_module(self, module: types.ModuleType) -> None:
    spec = module.__spec__
    assert spec is not None
    # From here on the module is as if it had been loaded without us.
    spec.loader = module.__loader__ = self._loader
    self._finder.loading(spec.name)
    try:
      self._loader.exec_module(module)
      # TensorFlow's modules may put a wrapper of themselves in their own place.
      self._finder.loaded(spec.name, sys.modules.get(spec.name, module))
    finally:
      self._finder.ended(spec.name)

  def __getattr__(self, name: str) -> Any:
    return getattr(self._loader, name)
