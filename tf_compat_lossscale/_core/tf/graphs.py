# SPDX-License-Identifier: Apache-2.0
"""Graphs: who owns variables, state, TRAIN_OP, and what a session runs.

Only public names are used here. TensorFlow's private counterparts are
`Graph._graph_key`, by which optimizers keep their variables apart, and the
graph collections of private objects. A public dictionary of a graph's own that
`export_meta_graph` does not write would replace `keep_on_graph`.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import threading
from typing import Any
from typing import TypeVar
import weakref

# Not plain `tensorflow`: a program may import TensorFlow 1 by that name.
import tensorflow.compat.v2 as tf

_T = TypeVar("_T")

_STATE = "_tf_compat_lossscale_state"  # The attribute of a graph.
_GRAPH_LOCK = threading.Lock()  # Several threads may build one graph.
# Held to remove ops from TRAIN_OP, because a removal shifts the other ops.
_REMOVING = threading.Lock()


def find_graph() -> tf.Graph | None:
  """Returns the graph that owns variables created now; None if eager.

  Inside a `tf.function`, a tf.data function or a branch of a v2 cond, the
  default graph is the function's own, which owns no variables. `init_scope`
  leaves the function.
  """
  if tf.executing_eagerly():
    return None
  with tf.init_scope():
    if tf.executing_eagerly():
      return None
    return tf.compat.v1.get_default_graph()


def list_states(graph: tf.Graph) -> list[Any]:
  """Returns what `keep_on_graph` keeps, in the order of creation."""
  with _GRAPH_LOCK:
    return [state for _, state in list(getattr(graph, _STATE, {}).values())]


def keep_on_graph(graph: tf.Graph, owner: Any, default: Callable[[], _T]) -> _T:
  """Returns an owner's state in a graph; creates the state on first use.

  Variables refer to their graph. If the owner kept them, the owner would keep
  alive every graph that it ever served. So the graph keeps them. Graph
  collections are the public place for such things, but `export_meta_graph`
  writes collections.

  The key is the owner's identity: a program's class may define equality without
  a hash. The graph drops the state when the owner is collected.
  """
  with _GRAPH_LOCK:
    owners = getattr(graph, _STATE, None)
    if owners is None:
      owners = {}
      setattr(graph, _STATE, owners)
    key = id(owner)
    if key not in owners:
      reference = weakref.ref(owner, lambda _: owners.pop(key, None))
      owners[key] = reference, default()
    state: _T = owners[key][1]
    return state


@contextlib.contextmanager
def leave_out_of_train_op() -> Iterator[None]:
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
  for op in list(ops):
    if id(op) in before or _is_runnable(op):
      continue
    with _REMOVING:
      # By identity, for a collection may hold tensors, and `==` of tensors
      # compares their elements.
      for i, other in enumerate(ops):
        if other is op:
          del ops[i]
          break


def add_to_train_op(op: Any) -> None:
  """Adds an op to the TRAIN_OP collection, if a session can run it."""
  if tf.executing_eagerly():
    return
  op = op.op if isinstance(op, tf.Tensor) else op
  ops = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAIN_OP)
  if _is_runnable(op) and id(op) not in map(id, ops):
    ops.append(op)


def _is_runnable(op: Any) -> bool:
  """Returns whether a session of the current graph can run an op or tensor."""
  graph = find_graph()
  op = op.op if isinstance(op, tf.Tensor) else op
  return (
    isinstance(op, tf.Operation)
    and op.graph is graph
    and graph.is_fetchable(op)
  )


def list_elements(graph: tf.Graph, values: Iterable[Any]) -> Iterator[Any]:
  """Yields the tensors and ops of items that a session takes."""
  for value in values:
    try:
      yield graph.as_graph_element(value)
    except (TypeError, ValueError, KeyError):
      # A composite; else the session itself will say what is wrong.
      parts = tf.nest.flatten(value, expand_composites=True)
      if len(parts) != 1 or parts[0] is not value:
        yield from list_elements(graph, parts)


def list_ancestors(
  ops: Iterable[tf.Operation], fed: Iterable[Any] = ()
) -> set[tf.Operation]:
  """Returns the ops that a session runs for some ops, these included.

  The ops of tensors that are fed need not run: `fed` has references to these.
  """
  found: set[tf.Operation] = set()
  waiting = list(ops)
  while waiting:
    op = waiting.pop()
    if op not in found:
      found.add(op)
      waiting += op.control_inputs
      waiting += [x.op for x in op.inputs if x.ref() not in fed]
  return found


def list_leaves(values: Any) -> list[Any]:
  """Returns the items of a nest of fetches.

  `tf.nest` refuses dicts whose keys have no order, which sessions take.
  """
  # First, because to ask whether something is a Mapping takes longer.
  if isinstance(values, (tf.Operation, tf.Tensor)):
    return [values]
  if isinstance(values, (list, tuple)):
    return [leaf for value in values for leaf in list_leaves(value)]
  if isinstance(values, Mapping):
    return [leaf for value in values.values() for leaf in list_leaves(value)]
  return [values]


@contextlib.contextmanager
def run_on_cpu() -> Iterator[None]:
  """Runs ops eagerly on the CPU, also in a program of graphs.

  `tf.__internal__` has the context manager in every supported release.
  """
  with tf.__internal__.eager_context.eager_mode(), tf.device("/cpu:0"):
    yield
