# SPDX-License-Identifier: Apache-2.0
"""The accumulators of `tf.compat.v1.train.SyncReplicasOptimizer`.

`SyncReplicasOptimizer` adds up the gradients of its workers in accumulators,
one for each variable, and passes the means to the optimizer that it wraps. An
accumulator has a time step, and drops gradients that are older. Each mean that
is taken adds 1 to the time step, and the optimizer adds 1 to the global step,
so that the two are equal. A skipped step leaves the global step as it is: so
the time steps must go back to the global step, or else all later gradients are
dropped and the workers wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import wrapped_optimizers
from tf_compat_lossscale._core.tf import control_flow

# The ops that take a mean from an accumulator, with the ops that set its time.
_SETTERS = {
  "AccumulatorTakeGradient": tf.raw_ops.AccumulatorSetGlobalStep,
  "SparseAccumulatorTakeGradient": tf.raw_ops.AccumulatorSetGlobalStep,
  "ResourceAccumulatorTakeGradient": (
    tf.raw_ops.ResourceAccumulatorSetGlobalStep
  ),
}
# The names that `SyncReplicasOptimizer` gives to its accumulators and to the
# variable that says which step a worker is at. Accumulators of other programs
# may have times of their own.
_SHARED_NAME = b"/grad_accum"
_LOCAL_STEP = "sync_rep_local_step"


def set_back(step: Any, grads_and_vars: Iterable[Any], global_step: Any) -> Any:
  """Sets accumulators to the global step after a step, applied or skipped.

  After a step that is applied, they have that time already. A micro-batch that
  does not end its window is no step: it leaves the global step as it is, too.

  Args:
    step: The op or tensor that does the step, or None.
    grads_and_vars: The (gradient, variable) pairs of the step.
    global_step: The variable that counts the steps, or None.

  Returns:
    `step`, or an op that does the step and then sets the accumulators.
  """
  takers = [] if global_step is None else _list_takers(grads_and_vars)
  if not takers:
    return step
  before = [] if step is None else [step]
  with tf.name_scope(control_flow.NAME_SCOPE):
    with tf.control_dependencies(before):
      now = tf.cast(global_step.read_value(), tf.int64)
    setters = []
    graph = tf.compat.v1.get_default_graph()
    for taker in takers:
      handle = taker.inputs[0]
      with graph.colocate_with(handle.op):
        setters.append(_SETTERS[taker.type](handle=handle, new_global_step=now))
    return tf.group(*before, *setters)


def are_aggregated(grads_and_vars: Iterable[Any]) -> bool:
  """Returns whether a `SyncReplicasOptimizer` has aggregated gradients.

  Then the chief alone applies them, on behalf of all workers.

  Args:
    grads_and_vars: (gradient, variable) pairs.
  """
  return bool(_list_takers(grads_and_vars))


def check_order(optimizer: tf.compat.v1.train.Optimizer) -> None:
  """Checks that no `SyncReplicasOptimizer` is below an optimizer to wrap.

  The ops of a `SyncReplicasOptimizer` cannot be in a cond: a session could not
  run its queue. And a worker alone would decide whether to skip a step.

  Raises:
    ValueError: `optimizer` is or wraps a `SyncReplicasOptimizer`.
  """
  if wraps_synchronizer(optimizer):
    raise ValueError(
      f'"opt" must not be or wrap a SyncReplicasOptimizer, but got '
      f"{optimizer!r}: an optimizer with a loss scale that changes must be "
      "inside. Write SyncReplicasOptimizer(MixedPrecisionLossScaleOptimizer("
      "opt, loss_scale), replicas_to_aggregate, total_num_replicas)."
    )


def wraps_synchronizer(optimizer: Any) -> bool:
  """Returns whether an optimizer is or wraps a `SyncReplicasOptimizer`."""
  return any(
    isinstance(each, tf.compat.v1.train.SyncReplicasOptimizer)
    for each in wrapped_optimizers.walk(optimizer)
  )


def _synchronizes() -> bool:
  """Returns whether a `SyncReplicasOptimizer` applies gradients in the graph.

  Only then it is worth the time to look where gradients come from.
  """
  return any(_LOCAL_STEP in v.name for v in tf.compat.v1.local_variables())


def _list_takers(grads_and_vars: Iterable[Any]) -> list[tf.Operation]:
  """Returns the ops that took the gradients of pairs from accumulators."""
  if tf.executing_eagerly() or not _synchronizes():
    return []
  return list(_find_takers(grad for grad, _ in grads_and_vars))


def _find_takers(grads: Iterable[Any]) -> Iterator[tf.Operation]:
  """Yields the ops that took gradients from accumulators, each once.

  The program may have clipped the gradients since, for instance.
  """
  left: list[tf.Operation] = []
  for grad in grads:
    parts = [grad]
    if isinstance(grad, tf.IndexedSlices):
      parts = [grad.values, grad.indices]
    left += [part.op for part in parts if isinstance(part, tf.Tensor)]
  seen = set()
  while left:
    op = left.pop()
    if id(op) in seen:
      continue
    seen.add(id(op))
    if op.type not in _SETTERS:
      left += [x.op for x in op.inputs]
    elif _is_synchronizing(op.inputs[0].op):
      yield op


def _is_synchronizing(accumulator: tf.Operation) -> bool:
  """Returns whether `SyncReplicasOptimizer` made an accumulator."""
  try:
    name: bytes = accumulator.get_attr("shared_name")
  except ValueError:
    return False
  return name.endswith(_SHARED_NAME)
