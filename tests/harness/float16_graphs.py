# SPDX-License-Identifier: Apache-2.0
"""Converts graphs to float16 on a CPU, and lists what was converted.

Grappler's auto mixed precision has a mode for CPUs, which `tf.config` does not
show. By `ENVIRONMENT`, which TensorFlow reads at each conversion, the ops
themselves run in float16: give it to `helpers.run_alone`.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.eager import context

tf1 = tf.compat.v1
ENVIRONMENT = {"TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_EMULATE_FP16": "false"}
_ON = 1  # RewriterConfig.ON.


def session_config() -> tf1.ConfigProto:
  """Returns a configuration whose sessions convert graphs on a CPU."""
  config = tf1.ConfigProto()
  config.graph_options.rewrite_options.auto_mixed_precision_cpu = _ON
  return config


@contextlib.contextmanager
def converted_functions() -> Iterator[None]:
  """Makes functions that run first in this scope convert on a CPU."""
  eager = context.context()
  eager.ensure_initialized()
  old = eager.function_call_options
  config = tf1.ConfigProto.FromString(old.config_proto_serialized)
  config.MergeFrom(session_config())
  eager.function_call_options = context.FunctionCallOptions(
    executor_type=old.executor_type, config_proto=config
  )
  try:
    yield
  finally:
    eager.function_call_options = old


class Watch:
  """Notes the graphs that TensorFlow executes, after its optimizers.

  ```
  watch = Watch()
  watch.run(session, train_op)
  with watch.functions():
    step()  # A tf.function.
  watch.list_lowered()
  ```
  """

  def __init__(self) -> None:
    self._nodes: list[Any] = []

  def run(self, session: tf1.Session, fetches: Any, **kwargs: Any) -> Any:
    """Runs `session.run(fetches, **kwargs)`."""
    options = tf1.RunOptions(output_partition_graphs=True)
    metadata = tf1.RunMetadata()
    values = session.run(
      fetches, options=options, run_metadata=metadata, **kwargs
    )
    self._add(metadata.partition_graphs)
    return values

  @contextlib.contextmanager
  def functions(self) -> Iterator[None]:
    """Notes the graphs of the functions that run in this scope."""
    context.enable_run_metadata()
    try:
      yield
    finally:
      metadata = context.export_run_metadata()
      context.disable_run_metadata()
      for function in metadata.function_graphs:
        self._add([function.post_optimization_graph])

  def _add(self, graphs: Any) -> None:
    for graph in graphs:
      self._nodes += graph.node
      for function in graph.library.function:
        self._nodes += function.node_def

  def list_lowered(self) -> dict[str, str]:
    """Returns the float16 ops by name, and their kinds; without casts."""
    return {
      node.name: node.op
      for node in self._nodes
      if node.op != "Cast"
      and any(
        types_pb2.DT_HALF in (value.type, *value.list.type)
        for value in node.attr.values()
      )
    }
