# SPDX-License-Identifier: Apache-2.0
"""Parts of gradient accumulation: checks of optimizers, and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import accumulators
from tf_compat_lossscale._core import agreements
from tf_compat_lossscale._core import reducing
from tf_compat_lossscale._core import sync_replicas
from tf_compat_lossscale._core.tf import graphs

_HALF = (tf.float16, tf.bfloat16)
_PACKAGE = __name__.partition(".")[0]


class Answers:
  """Whether micro-batches in graphs ended a window that was skipped.

  Each graph keeps its tensors; this object is the key.
  """

  def keep(self, applied: tf.Tensor) -> None:
    """Keeps the answer of a micro-batch in the current graph."""
    graph = tf.compat.v1.get_default_graph()
    graphs.keep_on_graph(graph, self, _make_list).append(applied)

  def find(self) -> tf.Tensor | None:
    """Returns the last answer in the current graph or in one around it."""
    graph: Any = tf.compat.v1.get_default_graph()
    while graph is not None:
      answers = graphs.keep_on_graph(graph, self, _make_list)
      if answers:
        return answers[-1]
      graph = getattr(graph, "outer_graph", None)
    return None


def _make_list() -> list[Any]:
  return []


def check_options(drops: Sequence[str], drop: Any, transform: Any) -> None:
  """Raises a ValueError if an option is none of those that there are.

  Args:
    drops: The values that `drop` may have.
    drop: The argument of `accumulate`.
    transform: The argument of `accumulate`.
  """
  if drop not in drops:
    raise ValueError(
      f"drop must be {' or '.join(map(repr, drops))}, but got {drop!r}."
    )
  if transform is not None and not callable(transform):
    raise ValueError(
      "transform must be a function of (gradient, variable) pairs or None, "
      f"but got {transform!r}."
    )


def read_gradients(
  optimizer: Any, sums: Sequence[accumulators.Sum], divisor: Any
) -> list[Any]:
  """Returns the gradients of a window, in a cross-replica context.

  Args:
    optimizer: The optimizer, which may reduce gradients over processes.
    sums: The sums of gradients.
    divisor: What the sums are divided by.

  Returns:
    The gradients, per replica if there are any.
  """

  def read() -> list[Any]:
    pairs = []
    for each in sums:
      value = accumulators.choose_part(each.parts).read_value()
      pairs.append((value / tf.cast(divisor, value.dtype), each.variable))
    pairs = reducing.reduce(optimizer, pairs)
    return [tf.cast(grad, var.dtype.base_dtype) for grad, var in pairs]

  strategy = tf.distribute.get_strategy()
  grads: list[Any] = strategy.extended.call_for_each_replica(read)
  return grads


def check(optimizer: Any, scaled: Any, accumulating: Any) -> None:
  """Raises a ValueError if an optimizer cannot accumulate.

  Args:
    optimizer: The optimizer.
    scaled: The class of optimizers that scale the loss.
    accumulating: The class of optimizers that accumulate.
  """
  if isinstance(optimizer, accumulating):
    raise ValueError(
      f"accumulate: optimizer accumulates already: {optimizer!r}. Multiply "
      "steps instead."
    )
  if sync_replicas.wraps_synchronizer(optimizer):
    raise ValueError(
      "accumulate: optimizer must not be or wrap a SyncReplicasOptimizer, but "
      f"got {optimizer!r}: the accumulation must be inside. Write "
      "SyncReplicasOptimizer(accumulate(MixedPrecisionLossScaleOptimizer(opt, "
      "loss_scale), steps), replicas_to_aggregate, total_num_replicas)."
    )
  if not isinstance(optimizer, scaled):
    raise ValueError(
      "accumulate: optimizer must be a MixedPrecisionLossScaleOptimizer or a "
      f"contrib.LossScaleOptimizer, but got {optimizer!r}. The order that "
      "works is accumulate(MixedPrecisionLossScaleOptimizer(opt, scale), "
      "steps), with any wrapper of another kind inside, as opt."
    )
  for method in (
    "compute_gradients",
    "apply_gradients",
    *optimizer._OVERRIDABLE,
  ):
    ours = getattr(type(optimizer), method).__module__
    if ours.partition(".")[0] != _PACKAGE:
      raise ValueError(
        f"accumulate: {type(optimizer).__name__} has a {method}() of its own, "
        "which would not be called: wrap the optimizer in a plain "
        "MixedPrecisionLossScaleOptimizer."
      )
  base = optimizer._active_optimizer
  if reducing.is_accumulating(base):
    raise ValueError(
      "accumulate: the DistributedOptimizer accumulates by itself, which does "
      "not go with loss scaling: leave out its backward_passes_per_step."
    )


def total_in_order(
  agreement: agreements.Agreement, pairs: Sequence[tuple[Any, Any]]
) -> list[tuple[Any, Any]]:
  """Adds numbers over workers, one after the other.

  All workers must exchange their numbers in the same order.

  Args:
    agreement: How workers exchange numbers.
    pairs: Float32 scalars, each with anything.

  Returns:
    The pairs, with the sums.
  """
  totals: list[tuple[Any, Any]] = []
  for number, other in pairs:
    with tf.control_dependencies([total for total, _ in totals]):
      totals.append((agreement.total(tf.identity(number)), other))
  return totals


def widen(grad: Any) -> Any:
  """Returns a half-precision gradient as float32, another one as it is."""
  if grad is None or grad.dtype not in _HALF:
    return grad
  if isinstance(grad, tf.IndexedSlices):
    values = tf.cast(grad.values, tf.float32)
    return tf.IndexedSlices(values, grad.indices, grad.dense_shape)
  return tf.cast(grad, tf.float32)


def list_tensors(
  strategy: tf.distribute.Strategy, pairs: Sequence[tuple[Any, Any]]
) -> list[tf.Tensor]:
  """Returns the gradients of all replicas that are not None."""
  found: list[tf.Tensor] = []
  for grad, _ in pairs:
    if grad is not None:
      found += strategy.experimental_local_results(grad)
  return found
