# SPDX-License-Identifier: Apache-2.0
"""Pieces of `tf.contrib.graph_editor`: walks through a graph.

Another name of that module is a function here that raises an error.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from typing import Any

import tensorflow.compat.v1 as tf

_MODULES = (
  "edit",
  "match",
  "reroute",
  "select",
  "subgraph",
  "transform",
  "util",
)


def get_forward_walk_ops(
  seed_ops: Any,
  inclusive: bool = True,
  within_ops: Iterable[Any] | None = None,
  within_ops_fn: Callable[[Any], bool] | None = None,
  stop_at_ts: Iterable[Any] = (),
  control_outputs: None = None,
) -> list[Any]:
  """Returns the ops that depend on some ops or tensors.

  Args:
    seed_ops: Ops, where the walk starts; tensors stand for their consumers.
    inclusive: Whether the ops where the walk starts count.
    within_ops: The ops that the walk may visit; all if None or empty.
    within_ops_fn: Tells of an op whether the walk may enter it.
    stop_at_ts: Tensors that the walk does not follow.
    control_outputs: Nothing makes `ControlOutputs` today.

  Returns:
    The ops, those where the walk starts first.
  """
  del control_outputs
  if isinstance(seed_ops, tf.Operation | tf.Tensor):
    seed_ops = [seed_ops]
  seeds = [op for seed in seed_ops for op in _list_consumers_or_itself(seed)]
  within = set(within_ops or ())
  stops = {tensor.ref() for tensor in stop_at_ts}
  found = dict.fromkeys(op for op in seeds if not within or op in within)
  starts = set(found)
  following = list(found)
  while following:
    for tensor in following.pop(0).outputs:
      for op in () if tensor.ref() in stops else tensor.consumers():
        if (
          op not in found
          and (not within or op in within)
          and (within_ops_fn is None or within_ops_fn(op))
        ):
          found[op] = None
          following.append(op)
  return [op for op in found if inclusive or op not in starts]


def _list_consumers_or_itself(seed: Any) -> list[Any]:
  return seed.consumers() if isinstance(seed, tf.Tensor) else [seed]


def __getattr__(name: str) -> Any:
  """Returns what stands for a function that TensorFlow 2 has no more."""
  if name.startswith("__") or name in _MODULES:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

  def fail(*args: Any, **kwargs: Any) -> Any:
    del args, kwargs
    raise NotImplementedError(
      f"tf.contrib.graph_editor.{name} is gone with TensorFlow 2, and nothing "
      "edits a graph today. Programs that save memory by it, such as "
      "memory_saving_gradients, run with that option off; tf.recompute_grad "
      "does the same for a function, with resource variables"
    )

  fail.__name__ = name
  return fail
