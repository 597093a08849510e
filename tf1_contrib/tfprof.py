# SPDX-License-Identifier: Apache-2.0
"""`tf.contrib.tfprof.model_analyzer`, by `tf.compat.v1.profiler`."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

_Options = tf.profiler.ProfileOptionBuilder
TRAINABLE_VARS_PARAMS_STAT_OPTIONS = _Options.trainable_variables_parameter()
FLOAT_OPS_OPTIONS = _Options.float_operation()


def print_model_analysis(
  graph: Any,
  run_meta: Any = None,
  op_log: Any = None,
  tfprof_cmd: str = "scope",
  tfprof_options: Any = TRAINABLE_VARS_PARAMS_STAT_OPTIONS,
) -> Any:
  """Prints and returns a profile of a graph.

  Args:
    graph: The `tf.Graph`.
    run_meta: The `tf.RunMetadata` of a traced step, or None.
    op_log: An `OpLogProto` with more about the ops, or None.
    tfprof_cmd: The view: "scope", "graph", "op" or "code".
    tfprof_options: A dict that `tf.profiler.ProfileOptionBuilder` built.

  Returns:
    A `GraphNodeProto` for "scope" and "graph", else a `MultiGraphNodeProto`.

  Raises:
    tf.errors.InvalidArgumentError: The view is unknown.
  """
  return tf.profiler.profile(
    graph,
    run_meta=run_meta,
    op_log=op_log,
    cmd=tfprof_cmd,
    options=tfprof_options,
  )
