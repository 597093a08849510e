# SPDX-License-Identifier: Apache-2.0
"""The collection TRAIN_OP: the ops that a session can run to train."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import threading
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import graphs

# Held to remove ops from TRAIN_OP, because a removal shifts the other ops.
_REMOVING = threading.Lock()


@contextlib.contextmanager
def leave_out() -> Iterator[None]:
  """Removes ops from TRAIN_OP that are added meanwhile and that cannot be run.

  `Optimizer.apply_gradients` adds its op to that collection. An op inside a
  cond cannot be run by itself. Under v2 control flow, the op is in another
  graph, and a MetaGraph with such an entry cannot be imported. If
  `apply_gradients` took the collection as an argument, this function could go.
  """
  # A branch of a v2 cond shares the collections of the graph around the cond,
  # and other threads may add to them meanwhile.
  ops = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAIN_OP)
  before = set(map(id, ops))
  yield
  for op in [op for op in ops if id(op) not in before and not _is_runnable(op)]:
    with _REMOVING:
      # By identity, for a collection may hold tensors, and `==` of tensors
      # compares their elements.
      for i, other in enumerate(ops):
        if other is op:
          del ops[i]
          break


def add(op: Any) -> None:
  """Adds an op to the TRAIN_OP collection, if a session can run it."""
  if tf.executing_eagerly():
    return
  op = op.op if isinstance(op, tf.Tensor) else op
  ops = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAIN_OP)
  if _is_runnable(op) and not any(op is other for other in ops):
    ops.append(op)


def _is_runnable(op: Any) -> bool:
  """Returns whether a session of the current graph can run an op or tensor."""
  graph = graphs.find_graph()
  op = op.op if isinstance(op, tf.Tensor) else op
  return (
    isinstance(op, tf.Operation)
    and op.graph is graph
    and graph.is_fetchable(op)
  )
