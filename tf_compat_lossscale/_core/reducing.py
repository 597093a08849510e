# SPDX-License-Identifier: Apache-2.0
"""Optimizers that reduce gradients over processes as they compute them.

Horovod's `DistributedOptimizer` for `tf.compat.v1.train` is such an optimizer:
its `compute_gradients` asks the optimizer that it wraps, then reduces. To
accumulate gradients without communication, the two must be apart.
"""

from __future__ import annotations

import copy
from typing import Any

# What Horovod 0.21 to 0.28 call the function that reduces, the helper that
# accumulates, and the optimizer that is wrapped.
_REDUCE = "_allreduce_grads"


class _Given:
  """An optimizer whose gradients are known."""

  def __init__(self, pairs: list[tuple[Any, Any]]) -> None:
    self._pairs = pairs

  def compute_gradients(self) -> list[tuple[Any, Any]]:
    """Returns the (gradient, variable) pairs."""
    return self._pairs


def is_reducing(optimizer: Any) -> bool:
  """Returns whether an optimizer reduces as it computes gradients."""
  return hasattr(optimizer, _REDUCE) and hasattr(optimizer, "_optimizer")


def is_accumulating(optimizer: Any) -> bool:
  """Returns whether a reducing optimizer accumulates gradients itself."""
  return getattr(optimizer, "_agg_helper", None) is not None


def find_local(optimizer: Any) -> Any:
  """Returns the optimizer that computes gradients without communication."""
  while is_reducing(optimizer):
    optimizer = optimizer._optimizer
  return optimizer


def reduce(
  optimizer: Any, pairs: list[tuple[Any, Any]]
) -> list[tuple[Any, Any]]:
  """Reduces gradients as an optimizer does that computes them.

  A copy of the optimizer gets the gradients in place of the optimizer that it
  wraps. So all settings of the reduction count: compression, groups, variables
  that are local.

  Args:
    optimizer: Any optimizer.
    pairs: (gradient, variable) pairs.

  Returns:
    The pairs, with reduced gradients if the optimizer is reducing.
  """
  if not is_reducing(optimizer) or not pairs:
    return pairs
  twin = copy.copy(optimizer)
  twin._optimizer = _Given(reduce(optimizer._optimizer, pairs))
  return list(twin.compute_gradients())
