# SPDX-License-Identifier: Apache-2.0
"""Takes note of the steps that an optimizer does.

A graph keeps its steps, in tensors that exist anyway: see
`graphs.keep_on_graph`. Of a step that is eager or in a `tf.function`, the
optimizer knows only whether it was applied: see `eager_steps`.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import eager_steps
from tf_compat_lossscale._core.tf import control_flow
from tf_compat_lossscale._core.tf import graphs


class Step(NamedTuple):
  """A call of `apply_gradients`.

  Attributes:
    applied: Whether the step is applied: a bool scalar, or a Python bool if the
      answer does not depend on the gradients.
    op: The op that does the step; None when eager.
    pairs: The (gradient, variable) pairs of the step; per replica if the
      context is a cross-replica context.
    global_step: The variable that counts the steps that are applied, or None.
    ends: Whether this call ends a step, a bool scalar; None if each call does.
  """

  applied: bool | tf.Tensor
  op: Any
  pairs: tuple[tuple[Any, Any], ...]
  global_step: Any = None
  ends: tf.Tensor | None = None


class _Steps:
  """What one optimizer did in one graph.

  Attributes:
    computed: The (gradient, variable) pairs that `compute_gradients` returned.
    steps: The calls of `apply_gradients`, in their order.
  """

  def __init__(self) -> None:
    self.computed: list[tuple[Any, Any]] = []
    self.steps: list[Step] = []


def keep_computed(optimizer: Any, pairs: Iterable[tuple[Any, Any]]) -> None:
  """Keeps the pairs that `compute_gradients` returns in a graph.

  The program may clip these gradients before it applies them.
  """
  if not tf.executing_eagerly():
    graph = tf.compat.v1.get_default_graph()
    _find_steps(optimizer, graph).computed += pairs


def add(optimizer: Any, step: Step) -> Any:
  """Takes note of a step, in a cross-replica context.

  Returns:
    An op that does the step and takes note of it; None when eager.
  """
  keep(optimizer, step)
  return note(optimizer, step)


def add_in_replica(optimizer: Any, step: Step) -> None:
  """Takes note of a step of all replicas, in a replica context."""

  def merge(strategy: Any, applied: Any, op: Any, pairs: Any) -> None:
    unwrap = strategy.experimental_local_results
    ops = () if op is None else unwrap(op)
    add(
      optimizer,
      step._replace(
        applied=unwrap(applied)[0], op=ops[0] if ops else None, pairs=pairs
      ),
    )

  # All replicas together, so that the step counts once.
  context = tf.distribute.get_replica_context()
  context.merge_call(merge, args=(step.applied, step.op, step.pairs))


def keep(optimizer: Any, step: Step) -> None:
  """Keeps a step in the current graph, if there is one."""
  if not tf.executing_eagerly():
    unwrap = tf.distribute.get_strategy().experimental_local_results
    pairs = tuple((unwrap(grad), var) for grad, var in step.pairs)
    graph = tf.compat.v1.get_default_graph()
    op = getattr(step.op, "op", step.op)  # Replicas may get a tensor.
    kept = step._replace(op=op, pairs=pairs)
    _find_steps(optimizer, graph).steps.append(kept)


def note(optimizer: Any, step: Step) -> Any:
  """Takes note whether a step outside of graphs is applied.

  Returns:
    An op that does the step and takes note of it; None when eager.
  """
  if tf.executing_eagerly():
    eager_steps.find(optimizer).set(step.applied)
    return step.op
  if not eager_steps.is_outermost_eager():
    return step.op
  steps = eager_steps.find(optimizer)
  if isinstance(step.applied, bool) and step.applied:
    steps.set(True)  # The step is always applied: no op need say so.
    return step.op
  with tf.name_scope(control_flow.NAME_SCOPE):
    noted = steps.trace(step.applied)
    return tf.group(*([] if step.op is None else [step.op]), noted)


def read_last_applied(optimizer: Any) -> tf.Tensor:
  """Returns whether the last step was applied, as a bool scalar.

  Raises:
    RuntimeError: There was no step yet.
  """
  where = "taken no step"
  if tf.executing_eagerly():
    applied: Any = eager_steps.find(optimizer).read()
  else:
    last = (known.steps[-1:] for known in _list_around(optimizer))
    applied = next((steps[0].applied for steps in last if steps), None)
    where += (
      " in this graph, where the steps of a tf.function, of a branch of "
      "tf.cond or of a loop's body do not count"
    )
  if applied is None:
    raise RuntimeError(
      f"{optimizer!r} has {where}: call minimize() or apply_gradients() before "
      "you read last_step_applied."
    )
  return tf.convert_to_tensor(applied)


def name_variables(
  grads_and_vars: Iterable[tuple[Any, Any]],
) -> tuple[str, ...]:
  """Returns a name for each variable, for messages; see `number_names`."""
  names = (str(getattr(var, "name", var)) for _, var in grads_and_vars)
  return number_names(name.removesuffix(":0") for name in names)


def number_names(names: Iterable[str]) -> tuple[str, ...]:
  """Returns names that are unique: eager variables may share a name.

  Args:
    names: Names of which several may be equal.

  Returns:
    The names in the same order. One that is not unique ends in its position,
    counted from 0.
  """
  names = list(names)
  counts = collections.Counter(names)
  if len(counts) == len(names):
    return tuple(names)
  taken = {name for name in names if counts[name] == 1}
  found = []
  for i, name in enumerate(names):
    unique = name
    while counts[name] > 1 and (unique == name or unique in taken):
      unique = f"{unique} {i}"
    taken.add(unique)
    found.append(unique)
  return tuple(found)


def list_steps(optimizer: Any, graph: tf.Graph) -> list[Step]:
  """Returns the steps of an optimizer in a graph, in their order.

  Each gradient is a tuple of the gradients of all replicas.
  """
  return list(_find_steps(optimizer, graph).steps)


def list_computed(
  optimizer: Any, graph: tf.Graph
) -> list[tuple[Any, tf.Variable]]:
  """Returns the pairs that `compute_gradients` returned in a graph."""
  return list(_find_steps(optimizer, graph).computed)


def _list_around(optimizer: Any) -> Iterator[_Steps]:
  """Yields the steps of the current graph, then of the graphs around it.

  A branch of a cond is a graph within the graph that has the step.
  """
  graph: Any = tf.compat.v1.get_default_graph()
  while graph is not None:
    yield _find_steps(optimizer, graph)
    graph = getattr(graph, "outer_graph", None)


def _find_steps(optimizer: Any, graph: tf.Graph) -> _Steps:
  return graphs.keep_on_graph(graph, optimizer, _Steps)
