# SPDX-License-Identifier: Apache-2.0
"""Optimizers that wrap optimizers: Horovod's, `SyncReplicasOptimizer`, ours."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import tensorflow.compat.v2 as tf

# The attributes in which optimizers of TensorFlow and of Horovod hold the one
# that they wrap; some are properties.
_NAMES = ("_optimizer", "_opt")
# Some objects make a new optimizer at each access, which would never end.
_MOST = 64


def walk(
  optimizer: Any,
  is_end: Callable[[Any], bool] = lambda _: False,
  further: tuple[str, ...] = (),
) -> Iterator[Any]:
  """Yields an optimizer, then the optimizers within, the outermost first.

  Args:
    optimizer: An optimizer, or an object that wraps one.
    is_end: Whether to leave out what is within an optimizer.
    further: Names of further attributes that may hold a wrapped optimizer. A
      program's property of that name is evaluated.
  """
  waiting = [optimizer]
  for each in waiting:  # The list grows meanwhile.
    yield each
    for x in [] if is_end(each) else _list_inner(each, further):
      is_new = all(x is not y for y in waiting)  # It may refer to itself.
      if is_new and len(waiting) < _MOST:
        waiting.append(x)


def _list_inner(optimizer: Any, further: tuple[str, ...]) -> list[Any]:
  """Returns the optimizers that an optimizer holds in its attributes."""
  found = [getattr(optimizer, name, None) for name in (*_NAMES, *further)]
  own = list(getattr(optimizer, "__dict__", {}).values())
  found += [x for x in own if isinstance(x, tf.compat.v1.train.Optimizer)]
  return [x for x in found if x is not None]
