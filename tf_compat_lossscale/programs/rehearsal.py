# SPDX-License-Identifier: Apache-2.0
"""`run --float16-on-cpu`: the graph rewrite on CPUs, and what it converted."""

from __future__ import annotations

import atexit
import functools
import re
import sys
from typing import Any
import weakref

import tensorflow.compat.v1 as tf

from tf_compat_lossscale import graph_rewrite
from tf_compat_lossscale._core.tf import rewrite

# An op by which an optimizer of TensorFlow updates a variable.
_UPDATE = re.compile(r"(Resource)?(Sparse)?Apply[A-Z]")
_counted: weakref.WeakSet[Any] = weakref.WeakSet()  # Sessions.
_printed: set[str] = set()


def start(quiet: bool) -> None:
  """Turns the rewrite on for CPUs, and tells what it does in each session."""
  graph_rewrite.enable_on_cpu()
  if quiet:
    return
  atexit.register(_tell_at_exit)
  base: Any = tf.Session.__mro__[1]  # `InteractiveSession` has it, too.
  run = base.run

  @functools.wraps(run)
  def run_and_tell(
    self: Any,
    fetches: Any,
    feed_dict: Any = None,
    options: Any = None,
    run_metadata: Any = None,
  ) -> Any:
    if self in _counted:
      return run(self, fetches, feed_dict, options, run_metadata)
    asked = tf.RunOptions(output_partition_graphs=True)
    if options is not None:
      asked.MergeFrom(options)
    metadata = tf.RunMetadata() if run_metadata is None else run_metadata
    result = run(self, fetches, feed_dict, asked, metadata)
    _tell(self, metadata.partition_graphs)
    if options is None or not options.output_partition_graphs:
      metadata.ClearField("partition_graphs")
    return result

  base.run = run_and_tell


def _tell(session: Any, graphs: Any) -> None:
  """Prints what was converted, if a run was the first step of a session.

  A run is a step if it has products, convolutions or updates of variables.
  Other runs initialize or read variables. A line is printed once.
  """
  count = graph_rewrite.count_in_graphs(graphs)
  (done, total), (more, others) = count.products, count.convolutions
  if not total + others and not any(
    _UPDATE.match(node.op) for graph in graphs for node in graph.node
  ):
    return
  _counted.add(session)
  line = str(count)
  if not done + more:
    line += f": {_explain(session, total + others, count.casts)}"
  _say(line)


def _tell_at_exit() -> None:
  """Prints that no run was a step, unless the program failed."""
  if not _printed and not hasattr(sys, "last_value"):
    options = tf.config.optimizer.get_experimental_options()
    state = "on" if options.get("auto_mixed_precision") else "off"
    _say(
      "not counted: no session.run took a step, as if tf.function or Keras "
      f"does; the graph rewrite is {state}"
    )


def _say(text: str) -> None:
  """Prints a line, once in a process."""
  if text not in _printed and sys.stderr is not None:
    _printed.add(text)
    print(f"tf-lossscale: float16: {text}", file=sys.stderr, flush=True)


def _explain(session: Any, total: int, casts: int) -> str:
  """Returns why none of the products and convolutions was converted."""
  options = rewrite.find_options(session)
  toggles = options.rewrite_options
  if not total:
    return "the graph has no op that the rewrite begins with"
  if options.place_pruned_graph:
    return "no graph of an InteractiveSession is rewritten: use a Session"
  if casts:
    return f"they compute in float32, if {graph_rewrite.EMULATE} is not false"
  if toggles.auto_mixed_precision_cpu == rewrite.ON:
    return "the graph rewrite is on, but left the graph as it is"
  if not rewrite.is_rewrite_enabled():
    return (
      "the graph rewrite is off: call enable_mixed_precision_graph_rewrite, or "
      "in TensorFlow 1 set TF_ENABLE_AUTO_MIXED_PRECISION=1"
    )
  if toggles.auto_mixed_precision == rewrite.OFF:
    return "the session's ConfigProto has auto_mixed_precision off"
  return "the session is older than the graph rewrite: create it later"
