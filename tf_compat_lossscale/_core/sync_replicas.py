# SPDX-License-Identifier: Apache-2.0
"""Skipped steps under `tf.compat.v1.train.SyncReplicasOptimizer`.

`SyncReplicasOptimizer` adds up its workers' gradients in accumulators, one for
each variable, and passes the means to the optimizer inside. An accumulator has
a time step, and drops gradients that are older. Each mean that is taken adds 1
to the time step, and the step adds 1 to the global step. A skipped step leaves
the global step as it is. So the time steps must go back to the global step, or
else all later gradients are dropped, and the workers wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import optimizer_kinds
from tf_compat_lossscale._core.tf import control_flow

# The ops that take a mean from an accumulator, with the ops that set its time.
_SETTERS = {
  "AccumulatorTakeGradient": tf.raw_ops.AccumulatorSetGlobalStep,
  "SparseAccumulatorTakeGradient": tf.raw_ops.AccumulatorSetGlobalStep,
  "ResourceAccumulatorTakeGradient": (
    tf.raw_ops.ResourceAccumulatorSetGlobalStep
  ),
}
# A variable that `SyncReplicasOptimizer` has on each worker.
_LOCAL_STEP = "sync_rep_local_step"


def set_back(
  step: Any, pairs: Iterable[tuple[Any, Any]], global_step: Any
) -> Any:
  """Returns an op that does a step, then sets accumulators to the global step.

  Args:
    step: The op or tensor that does the step, or None.
    pairs: The (gradient, variable) pairs of the step, applied or skipped.
    global_step: The variable that counts the steps, or None.
  """
  if tf.executing_eagerly() or global_step is None:
    return step
  # Only then it is worth the time to look where gradients come from.
  if not any(_LOCAL_STEP in x.name for x in tf.compat.v1.local_variables()):
    return step
  takers = _find_takers(pairs)
  if not takers:
    return step
  before = [] if step is None else [step]
  with tf.name_scope(control_flow.NAME_SCOPE):
    with tf.control_dependencies(before):
      now = tf.cast(global_step.read_value(), tf.int64)
    for op in takers:
      handle = op.inputs[0]
      with op.graph.colocate_with(handle.op):
        before.append(_SETTERS[op.type](handle=handle, new_global_step=now))
    return tf.group(*before)


def _find_takers(pairs: Iterable[tuple[Any, Any]]) -> list[tf.Operation]:
  """Returns the ops that took gradients, which may have been clipped since."""
  values = [getattr(grad, "values", grad) for grad, _ in pairs]
  left = [x.op for x in values if isinstance(x, tf.Tensor)]
  seen: dict[tf.Operation, None] = {}
  while left:
    op = left.pop()
    if op not in seen:
      seen[op] = None
      left += [] if op.type in _SETTERS else [x.op for x in op.inputs]
  return [
    op
    for op in seen
    if op.type in _SETTERS
    and op.inputs[0].op.get_attr("shared_name").endswith(b"/grad_accum")
  ]


def check_order(optimizer: Any) -> None:
  """Raises a ValueError if an optimizer is or wraps a `SyncReplicasOptimizer`.

  The ops of a `SyncReplicasOptimizer` cannot be in a cond: a session could not
  run its queue. And a worker alone would decide whether to skip a step.
  """
  kind = tf.compat.v1.train.SyncReplicasOptimizer
  if any(isinstance(x, kind) for x in optimizer_kinds.walk(optimizer)):
    raise ValueError(
      f"A SyncReplicasOptimizer must be outside, but got {optimizer}: write "
      "SyncReplicasOptimizer(MixedPrecisionLossScaleOptimizer(...), n), with "
      "accumulate(...) between both if there is any."
    )
