# SPDX-License-Identifier: Apache-2.0
"""Finds the steps and the ops that a run of a session does."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import Generic
from typing import TypeVar

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import step_records

_T = TypeVar("_T")

# The most sets of fetches whose answers are kept.
_MOST_KNOWN = 256


class SessionRuns(Generic[_T]):
  """Answers a question about the runs of a graph, by the ops that they run.

  Programs repeat their runs, so the answers are kept.
  """

  def __init__(
    self,
    graph: tf.Graph,
    answer: Callable[[set[tf.Operation], list[tf.Tensor]], _T],
  ) -> None:
    """Creates an object that knows no run yet.

    Args:
      graph: The graph.
      answer: Takes the ops that a run runs, and the tensors that it feeds.
    """
    self._graph = graph
    self._answer = answer
    self._version = graph.version
    # The items of a run are kept alive, because the key has their ids.
    self._known: dict[Any, tuple[list[Any], _T]] = {}

  def ask(self, args: tf.compat.v1.train.SessionRunArgs) -> _T:
    """Returns the answer for a run with these arguments."""
    graph, known = self._graph, self._known  # Several threads may ask.
    if graph.version != self._version or len(known) >= _MOST_KNOWN:
      self._version, self._known = graph.version, (known := {})
    fetched, fed = _list_leaves(args.fetches), list(args.feed_dict or ())
    # Equal names may be different objects.
    items = [*fetched, None, *fed]
    key = tuple([x if isinstance(x, str) else id(x) for x in items])
    found = known.get(key)
    if found is None:
      ops, tensors = _find_ops(graph, fetched, fed)
      answer = self._answer(list_ancestors(ops, tensors), tensors)
      known[key] = found = items, answer
    return found[1]


def list_steps(optimizer: Any, graph: tf.Graph) -> list[step_records.Record]:
  """Returns the steps of an optimizer that a session of a graph can run."""
  records = step_records.list_records(optimizer, graph)
  return [record for record in records if graph.is_fetchable(record.op)]


def list_ancestors(
  ops: Iterable[tf.Operation], fed: Iterable[tf.Tensor] = ()
) -> set[tf.Operation]:
  """Returns the ops that a session runs for some ops, these included.

  Args:
    ops: The ops.
    fed: The tensors that are fed, whose ops need not run.
  """
  known = {tensor.ref() for tensor in fed}
  found: set[tf.Operation] = set()
  waiting = list(ops)
  while waiting:
    op = waiting.pop()
    if op not in found:
      found.add(op)
      waiting += op.control_inputs
      waiting += [x.op for x in op.inputs if x.ref() not in known]
  return found


def _list_leaves(values: Any) -> list[Any]:
  """Returns the items of a nest, in the forms in which sessions take nests.

  `tf.nest` refuses dicts whose keys have no order, which sessions take.
  """
  if isinstance(values, (list, tuple)):
    return [leaf for value in values for leaf in _list_leaves(value)]
  if isinstance(values, Mapping):
    return [leaf for value in values.values() for leaf in _list_leaves(value)]
  return [values]


def _find_ops(
  graph: tf.Graph, fetches: Any, feeds: Any
) -> tuple[list[tf.Operation], list[tf.Tensor]]:
  """Returns the ops that a run fetches, and the tensors that it feeds.

  Args:
    graph: The graph of the session.
    fetches: The items that the session fetches.
    feeds: The items that the session feeds.

  Returns:
    The ops, without those whose fetched tensor is fed, and the tensors.
  """
  fed = [x for x in _list_elements(graph, feeds) if isinstance(x, tf.Tensor)]
  known = {x.ref() for x in fed}
  fetched = [
    getattr(x, "op", x)
    for x in _list_elements(graph, fetches)
    if not isinstance(x, tf.Tensor) or x.ref() not in known
  ]
  return fetched, fed


def _list_elements(graph: tf.Graph, values: Any) -> Iterator[Any]:
  """Yields the tensors and ops of items that a session takes."""
  for value in values:
    try:
      yield graph.as_graph_element(value)
    except (TypeError, ValueError, KeyError):
      # A composite, such as a SparseTensor; else the session itself will say
      # what is wrong.
      parts = tf.nest.flatten(value, expand_composites=True)
      if len(parts) != 1 or parts[0] is not value:
        yield from _list_elements(graph, parts)
