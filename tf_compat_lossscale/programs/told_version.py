# SPDX-License-Identifier: Apache-2.0
"""Tells a program for TensorFlow 1 that TensorFlow's version is 1.15.5.

A program for both TensorFlows asks for the version, and then uses the names and
the behavior of that TensorFlow. Under `run --tf1` a program has TensorFlow 1's
names and behavior, so it is told a version of TensorFlow 1. Installed libraries
are told the truth: they are made for the TensorFlow that is installed.
"""

from __future__ import annotations

from collections.abc import Iterable
import functools
import re
import sys
import types
from typing import Any

from tf_compat_lossscale._core import patching
from tf_compat_lossscale._core.tf import private_names
from tf_compat_lossscale.programs import lazy_modules

# Programs unpack three numbers from it, so nothing is appended.
VERSION = "1.15.5"
NAMES = ("VERSION", "__version__")

# The folders in which Python's package managers install libraries.
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\](.*)", re.DOTALL)
_OURS = re.compile(r"tf_compat_lossscale(\.|$)")
# Modules whose functions pass an attribute's name on to this one.
_BETWEEN = {
  "tensorflow.python.util.module_wrapper",
  "tf_compat_lossscale.programs.lazy_modules",
  "tf_compat_lossscale.programs.tensorflow1",
  "tf_compat_lossscale.programs.wrong_guess",
  __name__,
}
# A program's own packages among the installed ones.
_own: set[str] = set()


def set_own_packages(names: Iterable[str]) -> None:
  """Sets the installed packages that are the program's, not libraries."""
  _own.clear()
  _own.update(names)


def answer(real: str) -> str:
  """Returns what the code that asks for TensorFlow's version is told.

  Python tells a module's `__getattr__` nothing about who reads the attribute.
  So the call stack says which module asks.

  Args:
    real: The version of the TensorFlow that is installed.
  """
  frame: Any = sys._getframe(1)
  while frame and str(frame.f_globals.get("__name__")) in _BETWEEN:
    frame = frame.f_back
  asks = frame.f_globals if frame else {}
  if _OURS.match(str(asks.get("__name__"))):
    return real
  return real if _is_library(str(asks.get("__file__"))) else VERSION


def _is_library(path: str) -> bool:
  package = find_package(path)
  return package is not None and package not in _own


@functools.cache
def find_package(path: str) -> str | None:
  """Returns the installed package that a file belongs to, or None."""
  match = _INSTALLED.search(path)
  if match is None:
    return None
  return re.split(r"[/\\]", match[2])[0].removesuffix(".py")


def tell_in(module: types.ModuleType) -> None:
  """Makes a module of `tensorflow.compat.v1` tell the version by the asker."""
  real: dict[str, Any] = {}

  def load(name: str) -> Any:
    if name == "__all__":  # TensorFlow 2.12 gives such modules none.
      return [each for each in dir(module) if not each.startswith("_")]
    return answer(real[name]) if name in real else patching.ABSENT

  own = vars(module).get("__getattr__")
  function = lazy_modules.make_getattr(module.__name__, load, own)
  functions = lazy_modules.make_functions(module, function)
  for namespace in private_names.list_namespaces(module):
    real |= {name: namespace.pop(name) for name in NAMES if name in namespace}
    namespace.update(functions)
