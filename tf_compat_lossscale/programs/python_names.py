# SPDX-License-Identifier: Apache-2.0
"""Names of the standard library that Python had in TensorFlow 1's time.

Python 3.10 and 3.11 removed them. `tf-lossscale run` puts them back, since no
Python that has them runs today's TensorFlow.
"""

from __future__ import annotations

import types
from typing import Any
from typing import NamedTuple

# The abstract classes that `collections` had beside `collections.abc`.
ABSTRACT = (
  *("AsyncGenerator", "AsyncIterable", "AsyncIterator", "Awaitable"),
  *("ByteString", "Callable", "Collection", "Container", "Coroutine"),
  *("Generator", "Hashable", "ItemsView", "Iterable", "Iterator"),
  *("KeysView", "Mapping", "MappingView", "MutableMapping"),
  *("MutableSequence", "MutableSet", "Reversible", "Sequence", "Set"),
  *("Sized", "ValuesView"),
)


class ArgSpec(NamedTuple):
  """The parameters of a function, as `inspect.getargspec` returned them."""

  args: list[str]
  varargs: str | None
  keywords: str | None
  defaults: tuple[Any, ...] | None


def add_to_collections(collections: types.ModuleType) -> None:
  """Sets the abstract classes that `collections` lacks."""
  import _collections_abc  # What Python itself loads at start.

  for name in ABSTRACT:
    if name not in vars(collections) and hasattr(_collections_abc, name):
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
