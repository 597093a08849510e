# SPDX-License-Identifier: Apache-2.0
"""The variables of gradient accumulation: sums of gradients, and two counts.

Each replica has sums of its own, so that replicas need not communicate before
the window ends.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import contextlib
import threading
from typing import Any
from typing import NamedTuple

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import finite
from tf_compat_lossscale._core.tf import control_flow
from tf_compat_lossscale._core.tf import graphs
from tf_compat_lossscale._core.tf import tracking

_HALF = (tf.float16, tf.bfloat16)
_LOCK = threading.RLock()  # Several threads may use one optimizer.


class Sum(NamedTuple):
  """The sum of the gradients of one variable.

  Attributes:
    variable: The variable that is trained.
    parts: For each replica of this process, the variable that has the sum.
  """

  variable: Any
  parts: tuple[tf.Variable, ...]


class _State:
  """The variables in one graph, and restores that wait for more.

  Attributes:
    weights: The variables, by their keys in checkpoints.
    deferred: Restores that wait, by the same keys.
    sums: The sums of gradients.
    micro_batches: How many micro-batches the window has; None at first.
    kept: For each replica, how many of them were added to the sums.
    is_closed: Whether an op was built that ends a window with these sums.
  """

  def __init__(self) -> None:
    self.weights: dict[str, Any] = {}
    self.deferred: dict[str, list[Any]] = {}
    self.sums: list[Sum] = []
    self.micro_batches: Any = None
    self.kept: tuple[tf.Variable, ...] = ()
    self.is_closed = False


class _Key:
  """The key by which a graph keeps the variables of one window."""

  def __init__(self) -> None:
    self.eager_state = _State()


class Window(tracking.WeightsByGraph):
  """The micro-batches since gradients were last applied.

  Methods are called in a cross-replica context.
  """

  def __init__(self) -> None:
    """Creates a window without variables."""
    super().__init__()
    self._key = _Key()

  @property
  def _state(self) -> _State:
    graph = graphs.find_graph()
    if graph is None:
      return self._key.eager_state
    return graphs.keep_on_graph(graph, self._key, _State)

  @property
  def _tracked_weights(self) -> dict[str, Any]:
    """The variables of the current graph, by their keys in checkpoints."""
    return self._state.weights

  @property
  def _waiting_restores(self) -> dict[str, list[Any]]:
    """The restores that wait for variables of the current graph."""
    return self._state.deferred

  @property
  def micro_batches(self) -> Any:
    """The variable that counts the micro-batches; None if there were none."""
    return self._state.micro_batches

  def list_variables(self) -> list[tf.Variable]:
    """Returns the variables in the current graph."""
    return list(self._state.weights.values())

  def prepare(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> list[Sum]:
    """Creates the variables that are missing.

    Args:
      grads_and_vars: (gradient, variable) pairs of a micro-batch.

    Returns:
      The sums: first those for `grads_and_vars`, in their order.

    Raises:
      ValueError: A variable cannot be accumulated for, or it is new and an op
        was built that ends a window without it.
    """
    pairs = list(grads_and_vars)
    with _LOCK:
      state = self._state
      # Outside of any cond, loop or function, none of which can own a variable.
      with tf.init_scope(), tf.compat.v1.name_scope(None):
        if state.micro_batches is None:
          self._create_counts(state)
        known = {id(each.variable) for each in state.sums}
        for grad, var in pairs:
          if grad is not None and id(var) not in known:
            _check(state, var)
            state.sums.append(self._create_sum(state, var))
            known.add(id(var))
      if not tf.executing_eagerly():
        state.is_closed = True
      sums = {id(each.variable): each for each in state.sums}
      listed = [sums.pop(id(var)) for _, var in pairs if id(var) in sums]
      return [*listed, *sums.values()]

  def _create_counts(self, state: _State) -> None:
    """Creates the variables that count."""
    state.micro_batches = tf.compat.v1.Variable(
      0,
      name="accumulation/micro_batches",
      dtype=tf.int64,
      trainable=False,
      use_resource=True,
    )
    state.weights["micro_batches"] = state.micro_batches
    self._restore_waiting("micro_batches", state.micro_batches)
    state.kept = self._create_parts(
      state, "kept_micro_batches", "accumulation/kept", [], tf.int64
    )

  def _create_sum(self, state: _State, var: Any) -> Sum:
    """Creates the variables for the sum of a variable's gradients."""
    dtype = tf.as_dtype(var.dtype).base_dtype
    dtype = tf.float32 if dtype in _HALF else dtype
    name = key = f"{var.name.split(':')[0]}/accumulated_gradient"
    number = 0
    while key in state.weights:  # Eager variables may share a name.
      number += 1
      key = f"{name}_{number}"
    strategy = tf.distribute.get_strategy()
    with strategy.extended.colocate_vars_with(var):
      shape = var.shape.as_list()
      return Sum(var, self._create_parts(state, key, name, shape, dtype))

  def _create_parts(
    self, state: _State, key: str, name: str, shape: list[int], dtype: tf.DType
  ) -> tuple[tf.Variable, ...]:
    """Creates a variable of zeros for each replica of this process."""
    variable = tf.compat.v1.Variable(
      lambda: tf.zeros(shape, dtype),
      name=name,
      dtype=dtype,
      trainable=False,
      use_resource=True,
      synchronization=tf.VariableSynchronization.ON_READ,
      aggregation=tf.VariableAggregation.SUM,
    )
    strategy = tf.distribute.get_strategy()
    parts = tuple(strategy.experimental_local_results(variable))
    several = strategy.num_replicas_in_sync > 1
    if several and len(parts) != len(strategy.extended.worker_devices):
      raise ValueError(
        "accumulate: each replica must have variables of its own, but "
        f"{type(strategy).__name__} lets replicas share them: use "
        "tf.distribute.MirroredStrategy, or no strategy."
      )
    for i, part in enumerate(parts):
      key_of_part = f"{key}/replica_{i}" if i else key
      state.weights[key_of_part] = part
      self._restore_waiting(key_of_part, part)
    return parts

  def add(
    self, grads_and_vars: Sequence[tuple[Any, Any]], only_finite: bool
  ) -> Any:
    """Adds a micro-batch to the sums.

    Args:
      grads_and_vars: The (gradient, variable) pairs, per replica if there are
        any.
      only_finite: Whether a replica leaves its gradients out if one of them is
        not finite.

    Returns:
      The number of micro-batches in the window, a scalar.
    """
    state = self._state
    sums = {id(each.variable): each for each in state.sums}
    unwrap = tf.distribute.get_strategy().experimental_local_results
    chosen = [
      (unwrap(grad), sums[id(var)].parts)
      for grad, var in grads_and_vars
      if grad is not None
    ]
    done = []
    for i, kept in enumerate(state.kept):
      pairs = [(grads[i], parts[i]) for grads, parts in chosen]
      with tf.device(kept.device):
        done.append(_add_in_replica(pairs, kept, only_finite))
    with tf.control_dependencies(done):
      counted = state.micro_batches.assign_add(1, read_value=False)
      with tf.control_dependencies([tf.group(counted)]):
        return tf.identity(tf.convert_to_tensor(state.micro_batches))

  def read_kept(self, reduce: Callable[[list[Any]], list[Any]]) -> tf.Tensor:
    """Returns how many micro-batches a replica added, on average.

    Args:
      reduce: Reduces (tensor, variable) pairs over processes. The reduced 1
        tells whether it adds up or averages.

    Returns:
      A float32 scalar.
    """
    strategy = tf.distribute.get_strategy()
    state = self._state

    def read() -> tf.Tensor:
      return tf.cast(choose_part(state.kept).read_value(), tf.float32)

    kept = strategy.extended.call_for_each_replica(read)
    total = strategy.reduce(tf.distribute.ReduceOp.SUM, kept, axis=None)
    pairs = [(total, state.kept[0]), (tf.ones([]), state.micro_batches)]
    (total, _), (ones, _) = reduce(pairs)
    return total / (ones * strategy.num_replicas_in_sync)

  def reset(self) -> tf.Operation | None:
    """Starts a new window: assigns 0 to all variables."""
    state = self._state
    done = [state.micro_batches.assign(0, read_value=False)]
    for parts in (state.kept, *(each.parts for each in state.sums)):
      for part in parts:
        with tf.device(part.device):
          zeros = tf.zeros(part.shape, part.dtype)
          done.append(part.assign(zeros, read_value=False))
    return tf.group(done)


def lock_if_eager() -> contextlib.AbstractContextManager[Any]:
  """Returns a context that one thread at a time may enter eagerly.

  Between adding and counting, another thread could end the window. Graphs do
  that when they run, and replicas are threads that wait for each other, so the
  context does nothing there.
  """
  if not tf.executing_eagerly() or tf.distribute.has_strategy():
    return contextlib.nullcontext()
  return _LOCK


def choose_part(parts: Sequence[tf.Variable]) -> tf.Variable:
  """Returns the part of the replica that calls this function."""
  number = tf.distribute.get_replica_context().replica_id_in_sync_group
  return parts[int(tf.get_static_value(number)) % len(parts)]


def _check(state: _State, var: Any) -> None:
  """Raises a ValueError if a new variable cannot be accumulated for."""
  if state.is_closed:
    known = ", ".join(str(each.variable.name) for each in state.sums)
    raise ValueError(
      f"accumulate: {var.name} has a gradient for the first time, but a step "
      f"that is in a graph already ends windows without it; it has {known}. "
      "Let the first step that you build have the gradients of all variables."
    )
  if not var.shape.is_fully_defined():
    raise ValueError(
      f"accumulate: the shape of {var.name} must be known, but is {var.shape}."
    )
  device = tf.DeviceSpec.from_string(getattr(var, "device", "") or "")
  if device.job == "ps":
    raise ValueError(
      f"accumulate: {var.name} is on a parameter server, where all workers "
      "would add to one sum. Accumulate over workers by "
      "tf.compat.v1.train.SyncReplicasOptimizer."
    )


def _add_in_replica(
  pairs: Sequence[tuple[Any, tf.Variable]], kept: tf.Variable, only_finite: bool
) -> Any:
  """Adds the gradients of one replica to its sums.

  Args:
    pairs: Gradients, each with the variable that has its sum.
    kept: The variable that counts what was added.
    only_finite: Whether nothing is added if a gradient is not finite.
  """

  def add() -> Any:
    done = [_add_to(total, grad) for grad, total in pairs]
    return tf.group([*done, kept.assign_add(1, read_value=False)])

  if not only_finite:
    return add()
  values = [_values_of(grad) for grad, _ in pairs]
  return control_flow.cond(finite.are_finite(values), add, tf.no_op)


def _values_of(grad: Any) -> tf.Tensor:
  values = grad.values if isinstance(grad, tf.IndexedSlices) else grad
  return tf.convert_to_tensor(values)


def _add_to(total: tf.Variable, grad: Any) -> Any:
  """Adds a gradient to a sum."""
  with tf.device(total.device):
    if isinstance(grad, tf.IndexedSlices):
      values = tf.cast(grad.values, total.dtype)
      slices = tf.IndexedSlices(values, grad.indices, grad.dense_shape)
      return total.scatter_add(slices)
    return total.assign_add(tf.cast(grad, total.dtype), read_value=False)
