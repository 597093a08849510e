"""The graph that owns new variables, and state that lives with a graph."""

from __future__ import annotations

from collections.abc import Callable
import threading
from typing import Any
import weakref

# Not plain `tensorflow`, which may stand for TensorFlow 1 (`tensorflow1.py`).
import tensorflow.compat.v2 as tf

_STATE = "_tf_compat_lossscale_state"  # The attribute of graphs that holds it.
_GRAPH_LOCK = threading.Lock()  # Several threads may build one graph.


def current_graph() -> tf.Graph | None:
  """The graph that holds the variables made here; None when eager.

  Inside a `tf.function`, a tf.data function or a branch of a v2 cond the
  default graph is that function's own, which holds no variables: `init_scope`
  leaves it. It is public; that the graph so found is the key by which state is
  kept is TensorFlow's private rule (`Graph._graph_key`).
  """
  if tf.executing_eagerly():
    return None
  with tf.init_scope():
    if tf.executing_eagerly():
      return None
    return tf.compat.v1.get_default_graph()


def state_on_graph(
  graph: tf.Graph, owner: Any, default: Callable[[], Any]
) -> Any:
  """What `owner` keeps for `graph`, made by `default` when there is none.

  Variables refer to their graph. Kept on their owner, they would keep every
  graph alive that it ever served; kept on the graph, they go with it. Graph
  collections would be the public place, but `export_meta_graph` writes those.

  Args:
    graph: The graph that is to hold the state.
    owner: A hashable object; the state is dropped when it goes.
    default: Makes the state of an owner that this graph does not know yet.

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
    return owners[owner]
