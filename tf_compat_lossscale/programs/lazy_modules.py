# SPDX-License-Identifier: Apache-2.0
"""Modules whose names load at first use, and the targets of `tables`."""

from __future__ import annotations

from collections.abc import Callable
import importlib
import types
from typing import Any

from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale._core.patching import ABSENT
from tf_compat_lossscale.programs import missing_names

_SHORT = {
  "est": "tensorflow_estimator.python.estimator",
  "ours": "tf_compat_lossscale._core.tf",
  "py": "tensorflow.python",
  "tf": "tensorflow.compat.v1",
}
# Modules of `tensorflow.compat.v1` that exist on Keras 2 alone.
_ON_KERAS_2 = ("tf.layers.", "tf.nn.rnn_cell.", "tf.keras.")


class LazyModule(types.ModuleType):
  """A module that TensorFlow lacks; its members load when they are used."""

  def __init__(
    self,
    name: str,
    load: Callable[[str], Any],
    list_names: Callable[[], list[str]],
  ):
    """Makes a module.

    Args:
      name: The module's name.
      load: A function that returns the value of a name, or ABSENT if it does
        not know the name. It may raise an AttributeError that says what to do.
      list_names: The function that `dir` calls.
    """
    super().__init__(name)
    self.__path__: list[str] = []
    self.__dict__.update(_load=load, __dir__=list_names)

  def __getattr__(self, name: str) -> Any:
    value = self.__dict__["_load"](name)
    if value is ABSENT:
      message = f"module {self.__name__!r} has no attribute {name!r}"
      raise AttributeError(message, name=name, obj=self)
    return value


class TargetError(ImportError):
  """An error for a target that this TensorFlow lacks; says what to do."""


def load(target: str) -> Any:
  """Returns the module, class, function or constant that a target names.

  Raises:
    TargetError: There is no such thing in this installation.
  """
  *choices, last = target.split(" or ")
  for choice in choices:
    try:
      return _load_one(choice)
    except TargetError:
      continue
  return _load_one(last)


def expand(target: str) -> str:
  """Returns the full name that a choice of a target means."""
  first, dot, rest = target.partition(".")
  if first == "keras2":
    return f"{which_keras.find_keras_2()}{dot}{rest}"
  return f"{_SHORT.get(first, first)}{dot}{rest}"


def _load_one(target: str) -> Any:
  """Imports modules as far as there are any, then reads attributes.

  In the public namespace, attributes come first: an import there would load a
  module a second time, by another name.
  """
  if target.startswith("est."):
    reason = missing_names.explain("tensorflow.estimator")
    if reason:
      raise TargetError(reason, name="tensorflow_estimator")
  full = expand(target)
  done = _SHORT["tf"] if target.startswith("tf.") else full.partition(".")[0]
  try:
    value = importlib.import_module(done)
  except ModuleNotFoundError as error:
    raise TargetError(str(error), name=error.name) from None
  for part in filter(None, full.removeprefix(done).split(".")):
    done = f"{done}.{part}"
    try:
      value = _find(value, part, done, target.startswith("tf."))
    except ModuleNotFoundError:
      raise  # A module exists, and fails to import another.
    except (AttributeError, ImportError) as error:
      reason = str(error)
      if target.startswith(_ON_KERAS_2) or "Keras 3" in reason:
        reason = missing_names.explain_keras_2(target)
      raise TargetError(f"{target} is not there: {reason}") from None
  return value


def _find(owner: Any, part: str, name: str, is_public: bool) -> Any:
  """Returns a member or a module of a module.

  Raises:
    AttributeError: There is none.
    ImportError: There is one that cannot be loaded.
  """
  if is_public:
    try:
      return getattr(owner, part)
    except (AttributeError, ImportError):
      pass
  if isinstance(owner, types.ModuleType):
    try:
      return importlib.import_module(name)
    except ModuleNotFoundError as error:
      if not (is_public or name.startswith(error.name or "?")):
        raise
  return getattr(owner, part)
