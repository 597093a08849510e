# SPDX-License-Identifier: Apache-2.0
"""Runs sources with a TensorFlow of names alone: that of old, or of today.

An old source runs with the old one, its migrated text with today's: both must
use the same names. What has moved or gone is missing today.
"""

from __future__ import annotations

import builtins
import importlib
from typing import Any

import tf_compat_lossscale
from tf_compat_lossscale._core import legacy_names

_PACKAGE = "tf_compat_lossscale"
_FAKED = ("tensorflow", _PACKAGE)
# Modules that are gone, and names that TensorFlow 1 alone has.
_GONE = (
  *("contrib", "mixed_precision.experimental"),
  *("keras.mixed_precision.experimental", "python.keras"),
)
_TENSORFLOW_1 = ("placeholder", "Session", "get_variable")


class World:
  """A TensorFlow and this package, of names alone.

  Attributes:
    seen: The last parts of the names that the source gave to `R`, and all else
      that it gave.
    legacy: Those of them that are legacy names.
    calls: The names of the functions of this package that the source called.
  """

  def __init__(self, is_old: bool):
    self._is_old = is_old
    self.seen: list[Any] = []
    self.legacy: list[str] = []
    self.calls: list[str] = []

  def run(self, source: bytes) -> None:
    """Runs a source."""

    def import_name(name, globals=None, locals=None, fromlist=(), level=0):
      if level or name.partition(".")[0] not in _FAKED:
        module = importlib.__import__(name, globals, locals, fromlist, level)
        return _Importlib(self) if name == "importlib" else module
      node = self._import(name)
      return node if fromlist else Node(self, name.partition(".")[0])

    scope = {**vars(builtins), "__import__": import_name}
    code = compile(source, "source", "exec", dont_inherit=True)
    exec(code, {"__builtins__": scope, "R": self._see, "__name__": "__main__"})

  def _see(self, value: Any) -> Any:
    """Notes a value, and returns it."""
    if isinstance(value, Node):
      self.seen.append(value.last)
      if value.is_legacy:
        self.legacy.append(value.last)
    else:
      is_plain = isinstance(value, (str, int))
      self.seen.append(value if is_plain else type(value))
    return value

  def _import(self, name: str) -> Node:
    """Returns the module of a name, or raises ImportError."""
    parts = name.split(".")
    for i in range(len(parts)):
      if not self.has(".".join(parts[: i + 1])):
        raise ModuleNotFoundError(f"no {name}")
    return Node(self, name)

  def has(self, path: str) -> bool:
    """Returns whether a name is there."""
    top, _, rest = path.partition(".")
    if top == _PACKAGE:
      return not self._is_old and self._has_own(rest)
    place = legacy_names.find_place(path)
    if place is None:
      return True
    if place.space == "v1" and place.module.partition(".")[0] == "python":
      return False
    if self._is_old or "install" in self.calls:
      return True
    if any(f"{place.module}.".startswith(f"{gone}.") for gone in _GONE):
      return False
    if place.module in _TENSORFLOW_1:
      return place.space == "v1"
    module, _, last = place.module.rpartition(".")
    return last not in legacy_names.NAMES_IN.get(
      place._replace(module=module), {}
    )

  def _has_own(self, name: str) -> bool:
    """Returns whether this package has a name."""
    home, _, rest = name.partition(".")
    if home in ("keras", "contrib"):
      own = self.list_names(f"{_PACKAGE}.{home}")
      return not rest or rest.partition(".")[0] in own
    if home in ("loss_scale", "loss_scale_optimizer", "graph_rewrite"):
      home = rest.partition(".")[0]
    return home in ("", *tf_compat_lossscale.__all__)

  def list_names(self, path: str) -> list[str]:
    """Returns the names that `from path import *` binds."""
    home = path.removeprefix(f"{_PACKAGE}").lstrip(".")
    if path.startswith(_PACKAGE):
      rows = (row for row in legacy_names.TABLE if home == row.home)
      return [name for row in rows for name in row.names]
    place = legacy_names.find_place(path)
    found = [*legacy_names.NAMES_IN.get(place, ()), "PythonState"]
    return [name for name in found if self.has(f"{path}.{name}")]


class Node:
  """What a name stands for."""

  def __init__(self, world: World, path: str):
    self._world, self._path = world, path

  @property
  def last(self) -> str:
    return legacy_names.get_current_name(self._path.rpartition(".")[2])

  @property
  def is_legacy(self) -> bool:
    """Whether the name is a legacy name of TensorFlow."""
    module, _, last = self._path.rpartition(".")
    place = legacy_names.find_place(module)
    return place is not None and last in legacy_names.NAMES_IN.get(place, ())

  def __getattr__(self, name: str) -> Any:
    if name == "__all__":
      return self._world.list_names(self._path)
    path = f"{self._path}.{name}"
    if name.startswith("__") or not self._world.has(path):
      raise AttributeError(f"there is no {path}")
    return Node(self._world, path)

  def __call__(self, *args: Any, **kwargs: Any) -> Node:
    if self._path.startswith(_PACKAGE):
      self._world.calls.append(self.last)
    return Node(self._world, f"{self._path}()")


class _Importlib:
  """The module `importlib`."""

  def __init__(self, world: World):
    self.import_module = world._import
