# SPDX-License-Identifier: Apache-2.0
"""What Python's library and absl-py had in TensorFlow 1's time.

Python 3.10 and 3.11 removed the names. `tf-lossscale run` puts them back, since
no Python that has them runs today's TensorFlow.
"""

from __future__ import annotations

import _collections_abc  # What Python itself loads at start.
import functools
import re
import types
from typing import Any
from typing import NamedTuple

# The abstract classes that `collections` had beside `collections.abc`.
ABSTRACT = frozenset(_collections_abc.__all__) - {"Buffer"}


class ArgSpec(NamedTuple):
  """The parameters of a function, as `inspect.getargspec` returned them."""

  args: list[str]
  varargs: str | None
  keywords: str | None
  defaults: tuple[Any, ...] | None


def add_to_collections(collections: types.ModuleType) -> None:
  """Sets the abstract classes that `collections` lacks."""
  for name in ABSTRACT:
    if name not in vars(collections):
      setattr(collections, name, getattr(_collections_abc, name))


def add_to_inspect(inspect: types.ModuleType) -> None:
  """Sets `getargspec`, if `inspect` lacks it."""
  if hasattr(inspect, "getargspec"):
    return

  def getargspec(func: Any) -> ArgSpec:
    spec = inspect.getfullargspec(func)
    if spec.kwonlyargs or spec.annotations:
      raise ValueError(
        f"{func} has keyword-only parameters or annotations, which "
        "inspect.getargspec cannot express: use inspect.getfullargspec"
      )
    return ArgSpec(*spec[:4])

  inspect.getargspec = getargspec  # type: ignore[attr-defined]
  inspect.ArgSpec = ArgSpec  # type: ignore[attr-defined]


def split_choices(text: str) -> list[str]:
  """Returns the choices of a flag that a text means: its words.

  TensorFlow's official models, and programs that copied their flags, have the
  choices `("keras', 'graph_rewrite")` for the kind of mixed precision: one
  text, by a mistake. Old releases of absl-py looked for the flag's value in it.
  """
  return re.findall(r"[\w.+-]+", text)


def accept_texts(module: types.ModuleType) -> None:
  """Makes the parser of flags with choices accept a text.

  Args:
    module: The module `absl.flags._argument_parser`.
  """
  parser = module.EnumParser
  own = parser.__init__

  @functools.wraps(own)
  def init(self: Any, enum_values: Any, *args: Any, **kwargs: Any) -> None:
    if isinstance(enum_values, str):
      enum_values = split_choices(enum_values)
    own(self, enum_values, *args, **kwargs)

  parser.__init__ = init


def prepare(module: types.ModuleType) -> None:
  """Prepares one of the modules that this module is about."""
  prepare = {"collections": add_to_collections, "inspect": add_to_inspect}
  prepare.get(module.__name__, accept_texts)(module)
