# SPDX-License-Identifier: Apache-2.0
"""The graph that owns new variables, and state that lives with a graph.

Only public names are used here. TensorFlow's private counterparts are
`Graph._graph_key`, by which optimizers keep their variables apart, and the
graph collections of private objects. A public dictionary of a graph's own that
`export_meta_graph` does not write would replace `keep_on_graph`.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterator
import contextlib
import threading
from typing import TypeVar
import weakref

# Not plain `tensorflow`: a program may import TensorFlow 1 by that name.
import tensorflow.compat.v2 as tf

_T = TypeVar("_T")

_STATE = "_tf_compat_lossscale_state"  # The attribute of a graph.
_GRAPH_LOCK = threading.Lock()  # Several threads may build one graph.


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


def list_owners(graph: tf.Graph) -> list[Hashable]:
  """Returns the owners of state in a graph, in the order of its creation."""
  with _GRAPH_LOCK:
    return list(getattr(graph, _STATE, ()))


def keep_on_graph(
  graph: tf.Graph, owner: Hashable, default: Callable[[], _T]
) -> _T:
  """Returns an owner's state in a graph; creates the state on first use.

  Variables refer to their graph. If the owner kept them, the owner would keep
  alive every graph that it ever served. So the graph keeps them. Graph
  collections are the public place for such things, but `export_meta_graph`
  writes collections.

  Args:
    graph: The graph that keeps the state.
    owner: The key; the graph drops the state when the owner is collected.
    default: Creates the state if this graph has none for `owner`.

  Returns:
    The state.
  """
  with _GRAPH_LOCK:
    owners = getattr(graph, _STATE, None)
    if owners is None:
      owners = weakref.WeakKeyDictionary()
      setattr(graph, _STATE, owners)
    if owner not in owners:
      owners[owner] = default()
    state: _T = owners[owner]
    return state


@contextlib.contextmanager
def run_on_cpu() -> Iterator[None]:
  """Runs ops eagerly on the CPU, also in a program of graphs.

  `tf.__internal__` has the context manager in every supported release.
  """
  with tf.__internal__.eager_context.eager_mode(), tf.device("/cpu:0"):
    yield
