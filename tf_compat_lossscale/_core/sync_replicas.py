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

from tf_compat_lossscale._core.tf import control_flow

# The ends of the types of ops that take a mean, and of accumulators' names.
_TAKE, _ACCUMULATOR = "AccumulatorTakeGradient", b"/grad_accum"


def set_back(
  step: Any, pairs: Iterable[tuple[Any, Any]], global_step: Any
) -> Any:
  """Returns an op that does a step, then sets back the accumulators' time."""
  if tf.executing_eagerly() or global_step is None:
    return step
  names = [x.op.name for x in tf.compat.v1.local_variables()]
  if not any("sync_rep_local_step" in x for x in names):
    return step  # Each worker has that variable.
  takers = _find_takers(pairs)
  if not takers:
    return step
  ops = [] if step is None else [step]
  with tf.name_scope(control_flow.NAME_SCOPE):
    with tf.control_dependencies(ops):
      now = tf.cast(global_step.read_value(), tf.int64)
    for taker in takers:
      handle = taker.inputs[0]
      kind = "Resource" if taker.type.startswith("Resource") else ""
      set_step = getattr(tf.raw_ops, f"{kind}AccumulatorSetGlobalStep")
      with taker.graph.colocate_with(handle.op):
        ops.append(set_step(handle=handle, new_global_step=now))
    return tf.group(*ops)


def _find_takers(pairs: Iterable[tuple[Any, Any]]) -> list[tf.Operation]:
  """Returns the ops that took gradients, which may have been clipped since."""
  values = [getattr(grad, "values", grad) for grad, _ in pairs]
  left = [x.op for x in values if isinstance(x, tf.Tensor)]
  seen: dict[tf.Operation, None] = {}
  while left:
    op = left.pop()
    if op not in seen:
      seen[op] = None
      left += [] if op.type.endswith(_TAKE) else [x.op for x in op.inputs]
  takers = [op for op in seen if op.type.endswith(_TAKE)]
  names = [op.inputs[0].op.get_attr("shared_name") for op in takers]
  return [op for op, x in zip(takers, names) if x.endswith(_ACCUMULATOR)]
