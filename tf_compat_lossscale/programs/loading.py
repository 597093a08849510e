# SPDX-License-Identifier: Apache-2.0
"""Loads the objects that the tables of old names refer to.

A target is a text such as `tf.data.experimental.map_and_batch`:

  tf.X       is X in `tensorflow.compat.v1`;
  parts.X    is X in this package's `programs.contrib`;
  other.X    is a module, or a member of a module, by its full name;
  A or B     is A, or B if this TensorFlow has no A.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import importlib
from typing import Any
from typing import NamedTuple

_TENSORFLOW = "tensorflow.compat.v1"
_PARTS = "tf_compat_lossscale.programs.contrib"

# Packages of others that serve old names -> what installs them.
_EXTRAS = {
  "tensorboard": "pip install tensorboard",
  "tf_slim": "pip install tf_slim",
}
_KERAS_2 = (
  "it is built on Keras 2: install tf_keras in TensorFlow's minor version, and "
  "run the program by `tf-lossscale run --keras2` or call "
  "tfl.use_keras_2() before TensorFlow is imported"
)
# Modules of `tensorflow.compat.v1` that exist on Keras 2 alone.
_ON_KERAS_2 = ("tf.layers.", "tf.nn.rnn_cell.", "tf.keras.")


class Row(NamedTuple):
  """A row of a table of old names.

  Attributes:
    module: The module that had the names in an old release.
    home: The module that has the names today; "A or B" as in a target.
    names: The names, separated by spaces; "old=new" if a name changed.
  """

  module: str
  home: str
  names: str


def read_rows(rows: Iterable[Row]) -> dict[str, dict[str, str]]:
  """Returns module -> name in the module -> target; later rows overrule."""
  found: dict[str, dict[str, str]] = {}
  for row in rows:
    for text in row.names.split():
      name, _, new = text.partition("=")
      homes = (f"{home}.{new or name}" for home in row.home.split(" or "))
      found.setdefault(row.module, {})[name] = " or ".join(homes)
  return found


def find_longest(table: Mapping[str, str], name: str) -> str | None:
  """Returns the target of a module, by the nearest of its parents in a table.

  Args:
    table: Module -> target. Modules below a module are then below its target.
    name: The module's dotted name.

  Returns:
    The target; None if neither the module nor a parent is in the table.
  """
  head, tail = name, ""
  while head:
    if head in table:
      return table[head] + tail
    head, _, last = head.rpartition(".")
    tail = f".{last}{tail}"
  return None


class TargetError(ImportError):
  """An error for a target that this TensorFlow lacks; says what to do."""


def load(target: str) -> Any:
  """Returns the module, class, function or constant that a target names.

  Raises:
    TargetError: There is no such thing in this installation.
  """
  choices = target.split(" or ")
  for choice in choices[:-1]:
    try:
      return _load_one(choice)
    except TargetError:
      continue
  return _load_one(choices[-1])


def _load_one(target: str) -> Any:
  """Returns what one choice of a target names."""
  first, _, rest = target.partition(".")
  if first == "parts":
    return _import_longest(f"{_PARTS}.{rest}")
  if first != "tf":
    return _import_longest(target)
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
        raise _explain_missing_package(parts[0], error) from None
      if not name.startswith(error.name or "?"):
        raise  # A module exists, and fails to import another.
      return _get_members(value, parts[i:])
  return value


def _get_members(value: Any, names: list[str]) -> Any:
  """Returns the member of a module that a path of names leads to."""
  for name in names:
    try:
      value = getattr(value, name)
    except AttributeError:
      owner = getattr(value, "__name__", value)
      raise TargetError(f"{owner} has no {name} in this release") from None
  return value


def _explain_missing_package(
  package: str, error: ModuleNotFoundError
) -> ImportError:
  """Returns the error for a package that is not installed."""
  command = _EXTRAS.get(package)
  if command is None:
    return TargetError(str(error), name=error.name)
  return TargetError(f"it is in {package}: {command}", name=package)
