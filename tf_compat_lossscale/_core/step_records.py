# SPDX-License-Identifier: Apache-2.0
"""Records of steps: what monitoring needs to know of `apply_gradients`.

A record refers to tensors that exist anyway, so it adds no op to a graph. The
graph keeps its records: see `graphs.keep_on_graph`. Eagerly, a record is made
for an observer alone, which keeps no gradient: see `eager_steps`.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import threading
from typing import Any
from typing import NamedTuple
import weakref

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import eager_steps
from tf_compat_lossscale._core.tf import control_flow
from tf_compat_lossscale._core.tf import graphs


class Record(NamedTuple):
  """A call of `apply_gradients`.

  Attributes:
    applied: Whether the step is applied: a bool scalar, or a Python bool if the
      answer does not depend on the gradients.
    op: The op that does the step; None when eager.
    names: The names of the gradients' variables, each unique.
    variables: The variables, as weak references.
    gradients: For each variable and each replica, the gradient that
      `apply_gradients` got, or None.
    computed: In the same form, what `compute_gradients` returned for the
      variable in this graph, or None. The program may have clipped these
      gradients since.
    scaled: In the same form, that gradient before it was unscaled, if it is of
      a half-precision dtype, in which unscaling may round it to 0; or None.
    global_step: The variable that counts the steps that are applied; or a
      tensor, its value after the step; or None.
  """

  applied: bool | tf.Tensor
  op: Any
  names: tuple[str, ...]
  variables: tuple[Callable[[], Any], ...]
  gradients: tuple[tuple[Any, ...], ...]
  computed: tuple[tuple[Any, ...], ...]
  scaled: tuple[tuple[Any, ...], ...]
  global_step: Any


@dataclasses.dataclass(eq=False)
class Step:
  """A step on its way: what a block of `record` is to fill in.

  Attributes:
    loss_scale: The loss scale of the optimizer.
    grads_and_vars: The (gradient, variable) pairs of the step; per replica if
      the context is a cross-replica context.
    computed: What `find_computed` returned; per replica likewise.
    global_step: As `Record` has it.
    applied: As `Record` has it; the block sets it.
    op: As `Record` has it; the block sets it. After the block, an op that does
      the step and takes note of it; None when eager.
    begun: What the observer knows of the time before the step.
  """

  loss_scale: Any
  grads_and_vars: Sequence[tuple[Any, Any]]
  computed: Sequence[tuple[Any, Any]]
  global_step: Any
  applied: bool | tf.Tensor = True
  op: Any = None
  begun: Any = None


class _Computed(NamedTuple):
  """A gradient of `compute_gradients`: unscaled, and scaled if it is half.

  The variable is kept, for its id is the key.
  """

  unscaled: Any
  scaled: Any
  variable: Any


class _Steps:
  """What one optimizer did in one graph.

  Attributes:
    computed: In each thread, the last gradients that were computed, by the id
      of their variable. Nothing else leads from `apply_gradients` back to
      `compute_gradients`: a program makes new gradients when it clips them,
      drops pairs and changes their order; and each replica, as each thread of a
      program, has gradients of its own.
    records: The calls of `apply_gradients`, in their order.
    applied: Whether the last step was applied; None if there was none.
  """

  def __init__(self) -> None:
    self.computed = threading.local()
    self.records: list[Record] = []
    self.applied: bool | tf.Tensor | None = None


_HALF = (tf.float16, tf.bfloat16)


def keep_computed(
  optimizer: Any, scaled: Iterable[Any], pairs: Iterable[tuple[Any, Any]]
) -> None:
  """Keeps the gradients that `compute_gradients` returns, until they are found.

  Eagerly, they are kept only if an observer looks on.

  Args:
    optimizer: The optimizer.
    scaled: The gradients of the scaled loss.
    pairs: The same gradients, unscaled, each with its variable.
  """
  of_thread: dict[int, _Computed] = {}
  if not tf.executing_eagerly():
    steps = _find_steps(optimizer, tf.compat.v1.get_default_graph())
    of_thread = vars(steps.computed).setdefault("gradients", of_thread)
  elif eager_steps.find_observer(optimizer) is None:
    return
  else:
    eager_steps.find(optimizer).computed.gradients = of_thread
  for before, (grad, var) in zip(scaled, pairs):
    if grad is not None:
      is_half = grad.dtype in _HALF
      of_thread[id(var)] = _Computed(grad, before if is_half else None, var)


def find_computed(
  optimizer: Any, pairs: Iterable[tuple[Any, Any]]
) -> tuple[tuple[Any, Any], ...]:
  """Returns the gradients that this thread computed for variables.

  Args:
    optimizer: The optimizer.
    pairs: The (gradient, variable) pairs that `apply_gradients` got.

  Returns:
    For each variable a pair: the gradient that `compute_gradients` returned,
    and the same gradient before it was unscaled, each None if there is none.
  """
  of_thread: dict[int, _Computed] = {}
  if not tf.executing_eagerly():
    steps = _find_steps(optimizer, tf.compat.v1.get_default_graph())
    of_thread = vars(steps.computed).get("gradients", {})
  elif eager_steps.find_observer(optimizer) is not None:
    kept = eager_steps.find(optimizer).computed
    of_thread = vars(kept).pop("gradients", {})
  none = _Computed(None, None, None)
  return tuple(of_thread.get(id(var), none)[:2] for _, var in pairs)


@contextlib.contextmanager
def record(
  optimizer: Any, step: Step, reads_before: bool = True
) -> Iterator[Step]:
  """Records the step that a block does; a block that fails does none.

  Args:
    optimizer: The optimizer.
    step: The step. The block sets `applied` and `op`.
    reads_before: Whether an observer needs to know of the time before the step;
      not if the step is applied whatever the gradients are.

  Yields:
    The step.
  """
  observer = eager_steps.find_observer(optimizer)
  if reads_before and observer is not None:
    step.begun = observer.begin(step.loss_scale, step.global_step)
  yield step
  if tf.distribute.in_cross_replica_context() or (
    observer is None and tf.executing_eagerly()
  ):
    step.op = _add(optimizer, step)
    return

  def merge(
    strategy: Any, begun: Any, applied: Any, op: Any, pairs: Any, computed: Any
  ) -> Any:
    unwrap = strategy.experimental_local_results
    ops = () if op is None else unwrap(op)
    if observer is not None and ops:
      ops = (tf.group(ops),)
    merged = Step(step.loss_scale, pairs, computed, step.global_step)
    merged.begun = unwrap(begun)[0]
    merged.applied = unwrap(applied)[0]
    merged.op = ops[0] if ops else None
    return _add(optimizer, merged)

  pairs, computed = tuple(step.grads_and_vars), tuple(step.computed)
  # All replicas together, so that the step counts once.
  context = tf.distribute.get_replica_context()
  noted = context.merge_call(
    merge, args=(step.begun, step.applied, step.op, pairs, computed)
  )
  if observer is not None:
    step.op = noted


def _add(optimizer: Any, step: Step) -> tf.Operation | None:
  """Returns an op that does a step and takes note of it; None when eager."""
  observer = eager_steps.find_observer(optimizer)
  record: Any = None
  if observer is not None or not tf.executing_eagerly():
    record = _make(step)
  if tf.executing_eagerly():
    eager_steps.find(optimizer).set(step.applied)
    if observer is not None:
      observer.end(step.begun, step.loss_scale, record)
    return step.op
  graph = tf.compat.v1.get_default_graph()
  _find_steps(optimizer, graph).records.append(record)
  answer(optimizer, step.applied)
  if not eager_steps.is_outermost_eager():
    return step.op
  return _note_in_function(optimizer, step.loss_scale, step.begun, record)


def answer(optimizer: Any, applied: bool | tf.Tensor) -> None:
  """Says whether the last step in the current graph was applied.

  Args:
    optimizer: The optimizer.
    applied: The answer. If the step was added in a branch of a cond, the answer
      that is valid outside of the branch follows.
  """
  graph = tf.compat.v1.get_default_graph()
  _find_steps(optimizer, graph).applied = applied


def read_last_applied(optimizer: Any) -> tf.Tensor:
  """Returns whether the last step was applied, as a bool scalar.

  Raises:
    RuntimeError: There was no step yet.
  """
  where = "taken no step"
  if tf.executing_eagerly():
    applied: Any = eager_steps.find(optimizer).read()
  else:
    answers = (steps.applied for steps in _list_around(optimizer))
    applied = next((x for x in answers if x is not None), None)
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


def _make(step: Step) -> Record:
  """Returns the record of a step."""
  unwrap = tf.distribute.get_strategy().experimental_local_results
  if not tf.distribute.in_cross_replica_context():
    unwrap = _wrap
  return Record(
    step.applied,
    getattr(step.op, "op", step.op),  # Replicas may get a tensor.
    name_variables(step.grads_and_vars),
    tuple(_refer(var) for _, var in step.grads_and_vars),
    tuple(unwrap(grad) for grad, _ in step.grads_and_vars),
    tuple(unwrap(unscaled) for unscaled, _ in step.computed),
    tuple(unwrap(scaled) for _, scaled in step.computed),
    step.global_step,
  )


def _note_in_function(
  optimizer: Any, loss_scale: Any, begun: Any, record: Any
) -> tf.Operation | None:
  """Returns an op of a `tf.function` that does a step and takes note of it."""
  steps = eager_steps.find(optimizer)
  notes = []
  with tf.name_scope(control_flow.NAME_SCOPE):
    if isinstance(record.applied, bool) and record.applied:
      # The step is always applied: the function need not say so.
      steps.set(True)
    else:
      notes.append(steps.trace(record.applied))
    if record.global_step is not None:
      steps.global_step = _refer(record.global_step)
    if steps.observer is None:
      steps.has_unobserved = True
    else:
      with tf.control_dependencies([] if record.op is None else [record.op]):
        notes.append(steps.observer.end(begun, loss_scale, record))
    if not notes:
      return record.op
    own = [] if record.op is None else [record.op]
    return tf.group(*own, *notes)


def _refer(value: Any) -> Callable[[], Any]:
  """Returns a weak reference; of a tensor of a function, none."""
  return weakref.ref(value) if isinstance(value, tf.Variable) else _find_none


def _find_none() -> None:
  """Stands for a weak reference to an object that is gone."""


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


def _wrap(value: Any) -> tuple[Any]:
  return (value,)


def list_records(optimizer: Any, graph: tf.Graph) -> list[Record]:
  """Returns the records of an optimizer in a graph, in their order."""
  return list(_find_steps(optimizer, graph).records)


def has_stepped(optimizer: Any) -> bool:
  """Returns whether an optimizer took a step in this graph, or eagerly."""
  if tf.executing_eagerly():
    return eager_steps.has_stepped(optimizer)
  return any(steps.records for steps in _list_around(optimizer))


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
