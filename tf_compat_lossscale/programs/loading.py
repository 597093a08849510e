# SPDX-License-Identifier: Apache-2.0
"""Loads the objects that the targets of `tables` name."""

from __future__ import annotations

import importlib
from typing import Any

from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.programs import hints

_TENSORFLOW = "tensorflow.compat.v1"
_SHORT = {
  "est": "tensorflow_estimator.python.estimator",
  "ours": "tf_compat_lossscale._core.tf",
  "py": "tensorflow.python",
}
_KERAS_2 = (
  "it is built on Keras 2: install tf_keras in TensorFlow's minor version, and "
  "run the program by `tf-lossscale run --keras2` or call "
  "tfl.use_keras_2() before TensorFlow is imported"
)
# Modules of `tensorflow.compat.v1` that exist on Keras 2 alone.
_ON_KERAS_2 = ("tf.layers.", "tf.nn.rnn_cell.", "tf.keras.")


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
  first, _, rest = target.partition(".")
  if first != "tf":
    if first == "est":
      reason = hints.explain_estimator()
      if reason:
        raise TargetError(reason, name="tensorflow_estimator")
    return _import_longest(expand(target))
  value = importlib.import_module(_TENSORFLOW)
  for i, part in enumerate(parts := rest.split(".")):
    try:
      value = getattr(value, part)
    except (AttributeError, ImportError) as error:
      # Names that are put in place by imports, such as `tf.estimator`.
      name = ".".join([_TENSORFLOW, *parts[: i + 1]])
      try:
        value = importlib.import_module(name)
      except ModuleNotFoundError:
        reason = str(error)
        if target.startswith(_ON_KERAS_2):
          reason = _KERAS_2
        raise TargetError(f"{target} is not there: {reason}") from None
  return value


def _import_longest(name: str) -> Any:
  """Returns a module or a member of a module by its full name."""
  parts = name.split(".")
  value: Any = None
  for i in range(len(parts)):
    try:
      value = importlib.import_module(".".join(parts[: i + 1]))
    except ModuleNotFoundError as error:
      if i == 0:
        raise TargetError(str(error), name=error.name) from None
      if not name.startswith(error.name or "?"):
        raise  # A module exists, and fails to import another.
      return _get_members(value, parts[i:])
    except (AttributeError, ImportError) as error:
      # A piece of contrib is built on a name that this TensorFlow lacks.
      reason = _KERAS_2 if "Keras 3" in str(error) else error
      raise TargetError(f"{name} cannot be used: {reason}") from None
  return value


def _get_members(value: Any, names: list[str]) -> Any:
  for name in names:
    try:
      value = getattr(value, name)
    except AttributeError:
      owner = getattr(value, "__name__", value)
      raise TargetError(f"{owner} has no {name} in this release") from None
  return value
