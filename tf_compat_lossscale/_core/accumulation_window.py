# SPDX-License-Identifier: Apache-2.0
"""The state of gradient accumulation: sums of gradients, and two counts.

`Window` holds the variables, their checkpoints, and the arithmetic: add, count,
read, reset. It knows no loss scale. `accumulation` decides when a window ends,
what is left out, and what is applied.

Each replica has sums of its own, so that replicas need not communicate before
the window ends.

In object-based checkpoints a sum is a slot of the variable that is trained. So
the object says whose sum it is: eager variables may share a name.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import contextlib
import threading
from typing import Any
from typing import NamedTuple
from typing import TypeAlias

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import agreements
from tf_compat_lossscale._core.tf import control_flow
from tf_compat_lossscale._core.tf import graphs
from tf_compat_lossscale._core.tf import tracking

# A function of the values of a replica's gradients; it returns a bool scalar.
Keeps: TypeAlias = Callable[[list[tf.Tensor]], tf.Tensor]

HALF = (tf.float16, tf.bfloat16)
_LOCK = threading.RLock()  # Several threads may use one optimizer.
_SLOT = "accumulated_gradient"
_COMPLETE = "complete"  # No slot: the writer asks for it after the slots.


class Sum(NamedTuple):
  """The sum of the gradients of one variable.

  Attributes:
    variable: The variable that is trained.
    parts: For each replica of this process, the variable that has the sum.
  """

  variable: Any
  parts: tuple[tf.Variable, ...]


class Counts(NamedTuple):
  """What the replicas of all processes have counted in a window.

  Attributes:
    added: How many micro-batches a replica has added on average, a float32
      scalar; 1 if there are none.
    any_added: Whether there are any, a bool scalar.
    is_complete: Whether no replica left out a micro-batch, a bool scalar.
  """

  added: tf.Tensor
  any_added: tf.Tensor
  is_complete: tf.Tensor


class _WaitingSlot(NamedTuple):
  """A restore of a sum that does not exist yet.

  Attributes:
    variable: The variable that the sum belongs to.
    name: The slot's name.
    position: TensorFlow's `CheckpointPosition` of the slot.
  """

  variable: Any
  name: str
  position: Any


class _State:
  """The variables in one graph, and restores that wait for more.

  Attributes:
    weights: The counts, by their keys in checkpoints.
    deferred: Restores that wait, by the same keys.
    slots: Restores of sums that wait.
    asked: By thread, the ids of the variables whose sums a writer has found.
    sums: The sums of gradients.
    micro_batches: How many micro-batches the window has; None at first.
    kept: For each replica, how many of them were added to the sums.
    is_closed: Whether an op was built that ends a window with these sums.
  """

  def __init__(self) -> None:
    self.weights: dict[str, Any] = {}
    self.deferred: dict[str, list[Any]] = {}
    self.slots: list[_WaitingSlot] = []
    self.asked: dict[int, set[int]] = {}
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

  Methods are called in a cross-replica context. The sums are slots, as
  optimizers have them. When TensorFlow loads a SavedModel, it cannot make slots
  of an object of this class, so the sums are plain children there.
  """

  def __init__(self) -> None:
    """Creates a window without variables."""
    super().__init__()
    self._key = _Key()
    # What each thread saves. A writer first asks for the children, then for
    # the slots.
    self._save_types: dict[int, str] = {}

  @property
  def _state(self) -> _State:
    graph = graphs.find_graph()
    if graph is None:
      return self._key.eager_state
    return graphs.keep_on_graph(graph, self._key, _State)

  @property
  def _tracked_weights(self) -> dict[str, Any]:
    """The counts of the current graph, by their keys in checkpoints."""
    return self._state.weights

  @property
  def _waiting_restores(self) -> dict[str, list[Any]]:
    """The restores that wait for variables of the current graph."""
    return self._state.deferred

  def _trackable_children(
    self, save_type: str = "checkpoint", **kwargs: Any
  ) -> dict[str, Any]:
    """Returns the children to save; for a SavedModel, also the sums."""
    self._save_types[threading.get_ident()] = save_type
    children = super()._trackable_children(save_type, **kwargs)
    if save_type != "savedmodel":
      return children
    sums = {
      f"sum_{i}_{_name_slot(j)}": part
      for i, each in enumerate(self._state.sums)
      for j, part in enumerate(each.parts)
    }
    return {**sums, **children}

  def _create_or_restore_slot_variable(
    self, slot_variable_position: Any, slot_name: str, variable: Any, **_: Any
  ) -> tf.Variable | None:
    """Returns the sum to restore, or lets the restore wait for the sum."""
    slot = self.get_slot(variable, slot_name)
    if slot is None:
      self._state.slots.append(
        _WaitingSlot(variable, slot_name, slot_variable_position)
      )
    return slot

  def get_slot_names(self) -> list[str]:
    """Returns the names of slots: one for each replica."""
    if self._save_types.get(threading.get_ident()) == "savedmodel":
      return []
    state = self._state
    state.asked[threading.get_ident()] = set()
    most = max((len(each.parts) for each in state.sums), default=0)
    return [*map(_name_slot, range(most)), _COMPLETE] if most else []

  def get_slot(self, var: Any, name: str) -> tf.Variable | None:
    """Returns the sum of a variable's gradients on one replica, or None.

    Args:
      var: Any object of a checkpoint. A writer asks for each, then asks whether
        that was all: what is not tracked would be lost.
      name: A name that `get_slot_names` returned.

    Raises:
      ValueError: The window has a sum of a variable that the writer did not
        ask for.
    """
    state = self._state
    asked = state.asked.setdefault(threading.get_ident(), set())
    if name == _COMPLETE:
      self._check_tracked(state, asked)
      return None
    variable = _unwrap(var)
    for each in state.sums:
      if each.variable is variable:
        asked.add(id(variable))
        names = [_name_slot(i) for i in range(len(each.parts))]
        return each.parts[names.index(name)] if name in names else None
    return None

  def _check_tracked(self, state: _State, tracked: set[int]) -> None:
    """Raises a ValueError if a sum cannot be saved.

    Args:
      state: The variables in the current graph.
      tracked: The ids of the variables that the checkpoint has.
    """
    lost = [x.variable for x in state.sums if id(x.variable) not in tracked]
    if not lost or (
      tf.executing_eagerly()
      and int(tf.convert_to_tensor(state.micro_batches)) == 0
    ):
      return  # Within no window the sums are 0.
    raise ValueError(
      "accumulate: the window's sums are kept with the variables that they are "
      f"for, but {_join_names(lost)} cannot be found from the objects of this "
      "checkpoint, so that it could not be resumed: track the variables, too, "
      "as in tf.train.Checkpoint(optimizer=optimizer, model=model)."
    )

  @property
  def micro_batches(self) -> Any:
    """The variable that counts the micro-batches; None if there were none."""
    return self._state.micro_batches

  def list_variables(self) -> list[tf.Variable]:
    """Returns the variables in the current graph."""
    state = self._state
    parts = (part for each in state.sums for part in each.parts)
    return [*state.weights.values(), *parts]

  def prepare(
    self, grads_and_vars: Iterable[tuple[Any, Any]], is_shared: bool = False
  ) -> list[Sum]:
    """Creates the variables that are missing.

    Args:
      grads_and_vars: (gradient, variable) pairs of a micro-batch.
      is_shared: Whether one worker adds on behalf of all workers.

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
        for var in self._list_needed(state, pairs):
          if id(var) not in known:
            _check(state, var, is_shared)
            state.sums.append(self._create_sum(var))
            known.add(id(var))
      if not tf.executing_eagerly():
        state.is_closed = True
      sums = {id(each.variable): each for each in state.sums}
      listed = [sums.pop(id(var)) for _, var in pairs if id(var) in sums]
      return [*listed, *sums.values()]

  def _list_needed(
    self, state: _State, pairs: list[tuple[Any, Any]]
  ) -> list[Any]:
    """Returns the variables that must have sums.

    A checkpoint may have a sum of a variable that gets no gradient any more. It
    counts if the window goes on.
    """
    waiting = [_unwrap(slot.variable) for slot in state.slots]
    goes_on = (
      tf.executing_eagerly()
      and int(tf.convert_to_tensor(state.micro_batches)) > 0
    )
    given = {id(var) for _, var in pairs}
    return [
      *(var for grad, var in pairs if grad is not None),
      *(var for var in waiting if goes_on or id(var) in given),
    ]

  def _create_counts(self, state: _State) -> None:
    """Creates the variables that count."""
    state.micro_batches = tf.compat.v1.Variable(
      0,
      name="accumulation/micro_batches",
      dtype=tf.int64,
      trainable=False,
      use_resource=True,
    )
    kept = _create_parts("accumulation/kept", [], tf.int64)
    state.kept = kept
    state.weights["micro_batches"] = state.micro_batches
    for i, part in enumerate(kept):
      suffix = f"/replica_{i}" if i else ""
      state.weights[f"kept_micro_batches{suffix}"] = part
    for key, variable in state.weights.items():
      self._restore_waiting(key, variable)

  def _create_sum(self, var: Any) -> Sum:
    """Creates the variables for the sum of a variable's gradients."""
    dtype = tf.as_dtype(var.dtype).base_dtype
    dtype = tf.float32 if dtype in HALF else dtype
    strategy = tf.distribute.get_strategy()
    with strategy.extended.colocate_vars_with(var):
      shape = var.shape.as_list()
      name = f"{str(var.name).split(':')[0]}/{_SLOT}"
      parts = _create_parts(name, shape, dtype)
    names = {_name_slot(i): part for i, part in enumerate(parts)}
    waiting = []
    for slot in self._state.slots:
      if _unwrap(slot.variable) is var and slot.name in names:
        # An older restore than the slot has had does nothing.
        slot.position.restore(names[slot.name])
      else:
        waiting.append(slot)
    self._state.slots = waiting
    return Sum(var, parts)

  def add(
    self, grads_and_vars: Sequence[tuple[Any, Any]], keeps: Keeps | None
  ) -> Any:
    """Adds a micro-batch to the sums.

    Args:
      grads_and_vars: The (gradient, variable) pairs, per replica if there are
        any.
      keeps: Tells whether a replica adds its gradients; None if it always
        does.

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
        done.append(_add_in_replica(pairs, kept, keeps))
    with tf.control_dependencies(done):
      counted = state.micro_batches.assign_add(1, read_value=False)
      with tf.control_dependencies([tf.group(counted)]):
        return tf.identity(tf.convert_to_tensor(state.micro_batches))

  def read_counts(
    self,
    reduce: Callable[[list[Any]], list[Any]],
    agreement: agreements.Agreement | None,
  ) -> Counts:
    """Returns what the replicas of all processes have counted.

    Args:
      reduce: Reduces (tensor, variable) pairs over processes.
      agreement: How processes add up numbers, if `reduce` does not.
    """
    strategy = tf.distribute.get_strategy()
    state = self._state
    window = tf.identity(tf.convert_to_tensor(state.micro_batches))

    def read() -> tuple[tf.Tensor, tf.Tensor]:
      added = _choose_part(state.kept).read_value()
      left = tf.maximum(window - added, 0)
      return tf.cast(added, tf.float32), tf.cast(left, tf.float32)

    numbers = [
      strategy.reduce(tf.distribute.ReduceOp.SUM, number, axis=None)
      for number in strategy.extended.call_for_each_replica(read)
    ]
    if agreement is None:
      pairs = reduce(list(zip(numbers, (state.kept[0], state.micro_batches))))
      numbers = [number for number, _ in pairs]
    else:
      numbers = agreement.totals(numbers)
    added, left = numbers
    window = tf.cast(window, tf.float32)
    any_added, is_complete = added > 0, tf.equal(left, 0)
    # The share is the same for a sum and a mean over processes.
    some = tf.where(any_added, window * added / (added + left), 1.0)
    return Counts(tf.where(is_complete, window, some), any_added, is_complete)

  def read_gradients(
    self,
    sums: Sequence[Sum],
    divisor: Any,
    reduce: Callable[[list[Any]], list[Any]],
  ) -> list[tuple[Any, Any]]:
    """Returns the (gradient, variable) pairs of a window, per replica.

    Args:
      sums: The sums of gradients.
      divisor: What the sums are divided by.
      reduce: Reduces (gradient, variable) pairs over processes.
    """

    def read() -> list[Any]:
      pairs = []
      for each in sums:
        value = _choose_part(each.parts).read_value()
        pairs.append((value / tf.cast(divisor, value.dtype), each.variable))
      return [
        tf.cast(grad, var.dtype.base_dtype) for grad, var in reduce(pairs)
      ]

    strategy = tf.distribute.get_strategy()
    grads = strategy.extended.call_for_each_replica(read)
    return [(grad, each.variable) for grad, each in zip(grads, sums)]

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


def _choose_part(parts: Sequence[tf.Variable]) -> tf.Variable:
  """Returns the part of the replica that calls this function."""
  number = tf.distribute.get_replica_context().replica_id_in_sync_group
  return parts[int(tf.get_static_value(number)) % len(parts)]


def _create_parts(
  name: str, shape: list[int], dtype: tf.DType
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
  return parts


def _name_slot(replica: int) -> str:
  """Returns the name of the slots of one replica."""
  return f"{_SLOT}_replica_{replica}" if replica else _SLOT


def _unwrap(var: Any) -> Any:
  """Returns the variable of TensorFlow that a variable of Keras 3 has."""
  value = getattr(var, "value", None)
  return value if isinstance(value, tf.Variable) else var


def _join_names(variables: Iterable[Any]) -> str:
  return ", ".join(str(var.name) for var in variables)


def _check(state: _State, var: Any, is_shared: bool) -> None:
  """Raises a ValueError if a new variable cannot be accumulated for."""
  if state.is_closed:
    known = _join_names(each.variable for each in state.sums)
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
  if device.job == "ps" and not is_shared:
    raise ValueError(
      f"accumulate: {var.name} is on a parameter server, where all workers "
      "would add to one sum. Let one worker add for all: "
      "tf.compat.v1.train.SyncReplicasOptimizer(accumulate(...), ...)."
    )


def _add_in_replica(
  pairs: Sequence[tuple[Any, tf.Variable]],
  kept: tf.Variable,
  keeps: Keeps | None,
) -> Any:
  """Adds the gradients of one replica to its sums.

  Args:
    pairs: Gradients, each with the variable that has its sum.
    kept: The variable that counts what was added.
    keeps: As `Window.add` takes it.
  """

  def add() -> Any:
    done = [_add_to(total, grad) for grad, total in pairs]
    return tf.group([*done, kept.assign_add(1, read_value=False)])

  if keeps is None:
    return add()
  values = [_values_of(grad) for grad, _ in pairs]
  return control_flow.cond(keeps(values), add, tf.no_op)


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
