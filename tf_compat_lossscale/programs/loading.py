# SPDX-License-Identifier: Apache-2.0
"""Loads the objects that the tables of old names refer to.

A target is a text such as `tf.data.experimental.map_and_batch`:

  tf.X       is X in `tensorflow.compat.v1`;
  other.X    is a module, or a member of a module, by its full name, such as
             `tf1_contrib.crf.crf_decode`;
  A or B     is A, or B if this TensorFlow has no A.
"""

from __future__ import annotations

import importlib
import re
from typing import Any
from typing import NamedTuple

_TENSORFLOW = "tensorflow.compat.v1"

_KERAS_2 = (
  "it is built on Keras 2: install tf_keras in TensorFlow's minor version, and "
  "run the program by `tf-lossscale run --keras2` or call "
  "tfl.use_keras_2() before TensorFlow is imported"
)
# Modules of `tensorflow.compat.v1` that exist on Keras 2 alone.
_ON_KERAS_2 = ("tf.layers.", "tf.nn.rnn_cell.", "tf.keras.")


class Table(NamedTuple):
  """A table of old names.

  Attributes:
    names: Module -> name in the module -> target.
    modules: Module -> the target that serves as the whole module.
    others: Further modules that an old release had.
  """

  names: dict[str, dict[str, str]]
  modules: dict[str, str]
  others: list[str]

  def find_module(self, name: str) -> str | None:
    """Returns the target that serves as a module, or None.

    If the table has no target for the module, the nearest of its parents with a
    target counts: modules below a module are then below its target.

    Args:
      name: The module's dotted name.
    """
    head, tail = name, ""
    while head:
      if head in self.modules:
        return self.modules[head] + tail
      head, _, last = head.rpartition(".")
      tail = f".{last}{tail}"
    return None

  def list_modules(self) -> frozenset[str]:
    """Returns the modules of the table, and those above them."""
    modules = set()
    for module in (*self.modules, *self.others):
      while module:
        modules.add(module)
        module = module.rpartition(".")[0]
    return frozenset(modules)


def read_table(text: str) -> Table:
  """Returns the table that a text means.

  Args:
    text: Lines of these kinds; a line that begins with four spaces continues
      the line before, and a comment begins with "#":

        data
          tf.data: Dataset Iterator=DatasetIterator

      The module `data` had the names `Dataset` and `Iterator`. Their targets
      are `tf.data.Dataset` and `tf.data.DatasetIterator`.

        keras = tf.keras

      The target `tf.keras` serves as the whole module `keras`.

        data.python: ops util

      There were the modules `data.python.ops` and `data.python.util`, too.
  """
  table = Table({}, {}, [])
  module = ""
  text = re.sub(r"\n {4}", " ", re.sub("#.*", "", text))
  for line in filter(str.strip, text.splitlines()):
    left, _, right = line.strip().partition(": ")
    if line.startswith(" "):
      for each in right.split():
        name, _, new = each.partition("=")
        homes = (f"{home}.{new or name}" for home in left.split(" or "))
        table.names.setdefault(module, {})[name] = " or ".join(homes)
    elif right:
      table.others.extend(f"{left}.{name}" for name in right.split())
    elif " = " in left:
      old, _, target = left.partition(" = ")
      table.modules[old] = target
    else:
      module = left
      table.others.append(module)
  return table


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
  """Returns the member of a module that a path of names leads to."""
  for name in names:
    try:
      value = getattr(value, name)
    except AttributeError:
      owner = getattr(value, "__name__", value)
      raise TargetError(f"{owner} has no {name} in this release") from None
  return value
