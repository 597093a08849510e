# SPDX-License-Identifier: Apache-2.0
"""Gives modules names that load when a program first uses them."""

from __future__ import annotations

from collections.abc import Callable
import types
from typing import Any

from tf_compat_lossscale._core.patching import ABSENT


def make_getattr(
  module: str,
  load: Callable[[str], Any],
  own: Callable[[str], Any] | None = None,
) -> Callable[[str], Any]:
  """Returns a module's function `__getattr__`.

  Args:
    module: The module's name.
    load: A function that returns the value of a name, or ABSENT if it does not
      know the name. It may raise an AttributeError that says what to do.
    own: The `__getattr__` that the module has already; it is asked for names
      that `load` does not know.
  """

  def __getattr__(name: str) -> Any:
    value = load(name)
    if value is not ABSENT:
      return value
    if own is not None:
      return own(name)
    raise AttributeError(f"module {module!r} has no attribute {name!r}")

  return __getattr__


def make_functions(
  module: types.ModuleType, getattr_function: Callable[[str], Any]
) -> dict[str, Callable[..., Any]]:
  """Returns functions to set in a module, so that `dir` lists what it lists.

  Args:
    module: The module as it is without the functions.
    getattr_function: Its new `__getattr__`.

  Returns:
    That function, and a `__dir__` that lists neither of the two.
  """
  listed = set(dir(module))
  hidden = vars(module).keys() - listed
  functions: dict[str, Callable[..., Any]] = {
    "__getattr__": getattr_function,
    "__dir__": lambda: sorted(
      (listed | (vars(module).keys() - hidden)) - functions.keys()
    ),
  }
  return functions


class LazyModule(types.ModuleType):
  """A module that TensorFlow lacks; its members load when they are used."""

  def __init__(
    self,
    name: str,
    load: Callable[[str], Any],
    list_names: Callable[[], list[str]] | None = None,
  ):
    """Makes a module.

    Args:
      name: The module's name.
      load: As of `make_getattr`.
      list_names: The function that `dir` calls.
    """
    super().__init__(name)
    self.__path__: list[str] = []
    functions = vars(self)  # Where Python looks for functions of a module.
    functions["__getattr__"] = make_getattr(name, load)
    if list_names is not None:
      functions["__dir__"] = list_names
