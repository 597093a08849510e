# SPDX-License-Identifier: Apache-2.0
"""Loads a package's public names when a program first uses them."""

from collections.abc import Callable
from collections.abc import Mapping
import importlib
from importlib import util
import sys
from typing import Any

from tf_compat_lossscale import _requirements

_PACKAGE = __name__.partition(".")[0]
# The packages whose names can be read without TensorFlow.
_LAZY_PACKAGES = (".checkpoint", ".keras")


def load_lazily(
  package: str,
  modules: Mapping[str, str | None],
  hints: Mapping[str, str] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
  """Returns the functions `__getattr__` and `__dir__` for a package.

  A loaded name becomes an attribute of the package, so that Python asks
  `__getattr__` for it once. `__dir__` lists the API alone: `__all__` and the
  names below. A package hides both functions from type checkers, which would
  accept every name, and imports its names for them.

  Args:
    package: The package's dotted name.
    modules: For each public name, the module (relative to the package) that
      defines the name, or None if the name is itself a module.
    hints: For names that the package does not have, what the user may mean.

  Raises:
    ImportError: `__getattr__` raises this error if the name needs TensorFlow
      and TensorFlow is missing or too old.
  """

  def load(name: str) -> Any:
    if name not in modules:
      message = f"module {package!r} has no attribute {name!r}"
      hint = (hints or {}).get(name) or _find_elsewhere(package, name)
      raise AttributeError(f"{message}: {hint}" if hint else message)
    home = modules[name]
    module = _requirements.import_module(f"{package}.{home or name}")
    value = module if home is None else getattr(module, name)
    setattr(sys.modules[package], name, value)
    return value

  def list_names() -> list[str]:
    return sorted({*sys.modules[package].__all__, *modules})

  return load, list_names


def _find_elsewhere(package: str, name: str) -> str:
  """Returns which packages have a public name, in words; "" if none has."""
  if not name.isidentifier() or name.startswith("_"):
    return ""
  # `from package import module` asks here first, and is no mistake.
  if util.find_spec(f"{package}.{name}"):
    return ""
  found = []
  for other in ("", *_LAZY_PACKAGES):
    # Under Bazel, a program has only the packages that its targets name.
    if not util.find_spec(f"{_PACKAGE}{other}"):
      continue
    module = importlib.import_module(f"{_PACKAGE}{other}")
    if name in getattr(module, "__all__", ()):
      found.append(f"{module.__name__}.{name}")
  return f"did you mean {' or '.join(found)}?" if found else ""
