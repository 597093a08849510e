# SPDX-License-Identifier: Apache-2.0
"""Optimizers that wrap optimizers: Horovod's, `SyncReplicasOptimizer`, ours."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import tensorflow.compat.v2 as tf

# The attributes in which objects that are no `tf.train.Optimizer` hold the
# optimizer that they wrap; those of TensorFlow and Horovod may be properties.
_NAMES = ("_optimizer", "_opt", "optimizer")
# Some objects make a new optimizer at each access, which would never end.
_MOST = 64


def walk(
  optimizer: Any, is_end: Callable[[Any], bool] = lambda _: False
) -> Iterator[Any]:
  """Yields an optimizer, then the optimizers within, the outermost first.

  Args:
    optimizer: An optimizer, or an object that wraps one.
    is_end: Whether to leave out what is within an optimizer.
  """
  waiting = [optimizer]
  for each in waiting:  # The list grows meanwhile.
    yield each
    for x in [] if is_end(each) else _list_inner(each):
      is_new = all(x is not y for y in waiting)  # It may refer to itself.
      if is_new and len(waiting) < _MOST:
        waiting.append(x)


def _list_inner(optimizer: Any) -> list[Any]:
  """Returns the optimizers that an optimizer holds in its attributes."""
  found = [getattr(optimizer, name, None) for name in _NAMES]
  own = list(getattr(optimizer, "__dict__", {}).values())
  found += [x for x in own if isinstance(x, tf.compat.v1.train.Optimizer)]
  return [x for x in found if x is not None]
