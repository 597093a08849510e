# SPDX-License-Identifier: Apache-2.0
"""Settings of each process that runs tests."""

from collections.abc import Iterator
import gc
import sys
from typing import Any

import pytest

# Or each process would compile TensorFlow's modules and the tests anew, for ten
# seconds.
sys.dont_write_bytecode = False

# Of a test's random seeds, `make test` takes so many.
_SEEDS = 2


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
  """Marks as thorough the cases that combine anew what other cases try.

  A test of two modes, three optimizers and four releases has 24 cases. Four of
  them try each mode, each optimizer and each release: `make test` runs these.
  """
  groups: dict[tuple[str, Any], list[pytest.Item]] = {}
  for item in items:
    name = getattr(item, "originalname", item.name)
    groups.setdefault((item.nodeid.partition("::")[0], name), []).append(item)
  for group in groups.values():
    kept = set(_cover(list(map(_list_values, group))))
    for i, item in enumerate(group):
      if i not in kept:
        item.add_marker("thorough")


def _list_values(item: pytest.Item) -> set[tuple[Any, ...]]:
  """Returns the values of a case: names of parameters, and ids of values."""
  spec = getattr(item, "callspec", None)
  left = dict(spec.params) if spec else {}
  found: set[tuple[Any, ...]] = {()}
  for mark in item.iter_markers("parametrize"):
    if getattr(mark.args[1], "combine", False):  # As `helpers.pairs` does.
      continue
    names = mark.args[0]
    if isinstance(names, str):
      names = [name.strip() for name in names.split(",")]
    values = [left.pop(name) for name in names]
    if names != ["seed"] or values[0] in list(mark.args[1])[:_SEEDS]:
      found.add((*names, *map(id, values)))
  return found | {(name, id(value)) for name, value in left.items()}


def _cover(cases: list[set[tuple[Any, ...]]]) -> Iterator[int]:
  """Yields indices of cases that have all values that any case has.

  They are few, if not the fewest: the next one has most values that are new.
  """
  left = set().union(*cases)
  while left:
    best = max(range(len(cases)), key=lambda i: len(cases[i] & left))
    yield best
    left -= cases[best]


def pytest_collection_finish() -> None:
  """Lets the garbage collector look only at what the tests make.

  TensorFlow's modules and the tests are a million objects that stay to the end.
  To look through them takes half a second, and each `gc.collect()` did.
  """
  gc.freeze()
