# SPDX-License-Identifier: Apache-2.0
"""Makes `tf.keras.optimizers.Adam` and the others the classes that they were.

Keras 2 got new optimizers in TensorFlow 2.11. Programs and checkpoints of
earlier releases mean the classes that are now in `tf.keras.optimizers.legacy`:
subclasses override their methods, and their slots have other names. Names that
came with the new classes, such as `AdamW`, stay.
"""

from __future__ import annotations

from collections.abc import Callable
import functools
import re
import sys
import types
from typing import Any

from tf_compat_lossscale._core import patching
from tf_compat_lossscale._core import wrong_values
from tf_compat_lossscale.programs import import_hooks

LEGACY, NEW = "legacy", "new"

# Keras exports its optimizers from several modules.
_MODULE = re.compile(r"(tensorflow|keras|tf_keras)(\.\w+)*\.optimizers")
# The class names; the base class of them all is `Optimizer`.
_CLASSES = (
  "Adadelta",
  "Adagrad",
  "Adam",
  "Adamax",
  "Ftrl",
  "Nadam",
  "Optimizer",
  "RMSprop",
  "SGD",
)
# Functions that find a class by its name.
_FINDERS = ("get", "deserialize")


def check(choice: str | None) -> None:
  """Checks a choice of optimizers.

  Raises:
    ValueError: It is neither "legacy" nor "new" nor None.
  """
  if choice not in (LEGACY, NEW, None):
    raise ValueError(
      f"keras_optimizers must be {LEGACY!r} (the classes of TensorFlow 2.0 to "
      f"2.10) or {NEW!r} (today's classes), but got "
      f"{wrong_values.show(choice, (LEGACY, NEW))}."
    )


class LegacyOptimizers(import_hooks.ImportWatcher):
  """Sets the legacy classes in Keras 2's modules, loaded or loaded later."""

  def __init__(self) -> None:
    self._log = patching.UndoLog()

  def put_in_place(self) -> None:
    """Sets the classes in all modules, from now on."""
    if self.is_started():
      return
    self.start()
    for name, module in list(sys.modules.items()):
      if self.watches(name) and isinstance(module, types.ModuleType):
        self.after_load(name, module)

  def take_back(self) -> None:
    """Leaves every module as it was found."""
    self.stop()
    self._log.undo()

  def watches(self, name: str) -> bool:
    return _MODULE.fullmatch(name) is not None

  def after_load(self, name: str, module: types.ModuleType) -> None:
    del name
    names = vars(module)
    legacy, finder = names.get(LEGACY), names.get("get")
    if hasattr(getattr(legacy, "Optimizer", None), "get_slot"):
      for each in _CLASSES:
        value = getattr(legacy, each)
        if names.get(each, value) is not value:
          self._log.set(module, each, value)
    elif "use_legacy_optimizer" not in _list_words(finder):
      return  # This is Keras 3, or another package's module.
    for each in _FINDERS:
      if each in names:
        find = names[each]
        # A module that has just loaded may have copied a function of ours.
        if not self._log.has_set(find):
          find = _find_legacy(find)
        self._log.set(module, each, find)


def _list_words(function: Any) -> tuple[Any, ...]:
  """Returns the names and constants in a function's code."""
  code = getattr(function, "__code__", None)
  return (*code.co_consts, *code.co_varnames) if code is not None else ()


def _find_legacy(function: Callable[..., Any]) -> Callable[..., Any]:
  """Makes `get` or `deserialize` find the legacy class for a name."""

  @functools.wraps(function)
  def find(*args: Any, **kwargs: Any) -> Any:
    kwargs.setdefault("use_legacy_optimizer", True)
    return function(*args, **kwargs)

  return find
