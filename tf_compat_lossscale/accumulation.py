# SPDX-License-Identifier: Apache-2.0
"""Gradient accumulation that goes with loss scaling."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import threading
from typing import Any
from typing import TypeAlias

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale import gradients
from tf_compat_lossscale import loss_scale_optimizer
from tf_compat_lossscale._core import arguments
from tf_compat_lossscale._core import attributes
from tf_compat_lossscale._core import optimizer_kinds
from tf_compat_lossscale._core import pair_checks
from tf_compat_lossscale._core import sync_replicas
from tf_compat_lossscale._core import wrong_values
from tf_compat_lossscale._core.tf import autograph
from tf_compat_lossscale._core.tf import control_flow
from tf_compat_lossscale._core.tf import graphs
from tf_compat_lossscale._core.tf import tracking

__all__ = [
  "AccumulatingOptimizer",
  "Transform",
  "accumulate",
]


def __dir__() -> list[str]:
  """Returns the names of the API."""
  return sorted(__all__)


_Scaled: TypeAlias = loss_scale_optimizer.MixedPrecisionLossScaleOptimizer
Transform: TypeAlias = Callable[[loss_scale_optimizer.Pairs], Any]

_COUNT = "micro_batches"
_HALF = (tf.float16, tf.bfloat16)
# Between adding and counting, another eager thread could end the window.
_LOCK = threading.RLock()


def accumulate(
  optimizer: loss_scale_optimizer.MixedPrecisionLossScaleOptimizer,
  steps: arguments.Whole,
  mean: bool = True,
  transform: Transform | None = None,
) -> AccumulatingOptimizer:
  """Returns an optimizer that applies the gradients of several micro-batches.

  ```
  opt = tfl.MixedPrecisionLossScaleOptimizer(
    tf.compat.v1.train.AdamOptimizer(1e-3), "dynamic"
  )
  train_op = tfl.accumulate(opt, steps=8).minimize(loss)
  ```

  Args:
    optimizer: A `MixedPrecisionLossScaleOptimizer` or a
      `contrib.LossScaleOptimizer`. The result uses its loss scale and the
      optimizer that it wraps.
    steps: The number of micro-batches in a window; whole, at least 1.
    mean: Whether the mean of the gradients is applied, or their sum.
    transform: A function that takes the (gradient, variable) pairs of a window
      that is applied, and returns the pairs to apply: to clip by the global
      norm, for instance. The gradients are those of one replica.

  Raises:
    ValueError: An argument is none of these; the message names it.
  """
  return AccumulatingOptimizer(optimizer, steps, mean, transform)


class AccumulatingOptimizer(
  loss_scale_optimizer.MixedPrecisionLossScaleOptimizer
):
  """An optimizer that adds up gradients before it applies them.

  `accumulate` makes such an optimizer. Each call of `apply_gradients` is one
  micro-batch:

  ```
  sums += grads                          # In float32 or wider.
  micro_batches += 1
  if micro_batches >= steps:             # The window ends.
    grads = sums / micro_batches
    should_apply = loss_scale.update(grads)
    if should_apply and all grads are finite:
      opt.apply_gradients(transform(grads), global_step)
    sums = micro_batches = 0
  ```

  So a window with an infinity or a NaN is skipped, and the loss scale falls
  once. Under a `tf.distribute` strategy, a micro-batch is the sum over all
  replicas. An optimizer of Horovod inside reduces the gradients of each
  micro-batch, as it always does.

  Of float16 and bfloat16 variables, `compute_gradients` returns gradients of
  float32, so that none becomes 0. The sums are dense, also for sparse
  gradients. A variable has a sum if it has had a gradient; if its gradients of
  a window are all None, they count as 0.

  In object-based checkpoints the sums are slots of the child `window`, and the
  number of micro-batches is its variable `micro_batches`; in name-based ones
  they are `VARIABLE/accumulated_gradient` and `accumulation/micro_batches`.
  """

  def __init__(
    self,
    optimizer: loss_scale_optimizer.MixedPrecisionLossScaleOptimizer,
    steps: arguments.Whole,
    mean: bool = True,
    transform: Transform | None = None,
  ) -> None:
    """Creates an optimizer with an empty window.

    The arguments are those of `accumulate`.
    """
    _check(optimizer)
    if transform is not None and not callable(transform):
      raise ValueError(
        "transform must be a function of (gradient, variable) pairs or None, "
        f"but got {transform!r}."
      )
    super().__init__(optimizer._optimizer, optimizer._loss_scale)
    self._steps = arguments.check_steps("steps", steps)
    self._mean = bool(mean)
    self._transform = transform
    self._window = _Window()
    tracking.track(self, self._window, "window")

  @property
  def steps(self) -> int:
    """The number of micro-batches in a window."""
    return self._steps

  @property
  def micro_batches(self) -> tf.Tensor:
    """The number of micro-batches in the window so far, an int64 scalar.

    After the last micro-batch of a window, the number is 0.
    """
    count = self._window.find_count()
    if count is None:
      return tf.constant(0, tf.int64)
    return tf.convert_to_tensor(count)

  @attributes.DefaultProperty
  def last_step_applied(self) -> tf.Tensor:
    """Whether the last window was applied, a bool scalar.

    Eagerly, a micro-batch within a window changes nothing. In a graph, also in
    that of a `tf.function`, the tensor is False if this micro-batch ended a
    window that was skipped, and True otherwise.

    Raises:
      RuntimeError: No window has ended yet.
    """
    return loss_scale_optimizer.read_last_applied(self)

  def _unscale(
    self, pairs: loss_scale_optimizer.Pairs, scale: tf.Tensor
  ) -> loss_scale_optimizer.Pairs:
    """Returns pairs with unscaled gradients, in float32 or wider."""
    wide = [(_widen(grad), var) for grad, var in pairs]
    return loss_scale_optimizer.unscale(wide, scale)

  def apply_gradients(
    self,
    grads_and_vars: loss_scale_optimizer.GradsAndVars,
    global_step: tf.Variable | None = None,
    name: str | None = None,
  ) -> tf.Operation | None:
    """Adds a micro-batch, and ends the window if the window is full.

    Args:
      grads_and_vars: (gradient, variable) pairs, with unscaled gradients.
      global_step: A variable to add 1 to if a window is applied.
      name: The returned op's name; by default that of the wrapped optimizer.

    Returns:
      An op that does so; None when eager: it has happened.

    Raises:
      TypeError: A gradient is neither floating-point nor complex like its
        variable.
      ValueError: In a cross-replica context of a `tf.distribute` strategy; or a
        variable has a gradient for the first time although an op was built
        that ends windows without it.
    """
    pairs = pair_checks.read(grads_and_vars)
    loss_scale_optimizer.warn_if_unread(self, self._loss_scale, pairs)
    pairs = tuple((_widen(grad), var) for grad, var in pairs)
    op: tf.Operation | None = loss_scale_optimizer.take_step(
      self._take_micro_batch, pairs, global_step, name
    )
    return op

  def _take_micro_batch(
    self,
    strategy: tf.distribute.Strategy,
    pairs: Any,
    global_step: Any,
    name: str | None,
  ) -> tf.Operation | None:
    """Adds a micro-batch of all replicas, and ends the window if it is full."""
    name = self.get_name() if name is None else name
    variables = self._window.prepare(pairs)
    missing = [pair for pair in pairs if pair[0] is None]
    v1 = pair_checks.has_ref_variable([*(var for _, var in pairs), global_step])
    eager = tf.executing_eagerly()
    with _LOCK if eager else contextlib.nullcontext():
      with tf.name_scope(control_flow.NAME_SCOPE):
        count = self._window.add(strategy, pairs)
        ends = count >= self._steps
      applied = control_flow.cond(
        ends,
        lambda: self._end_window(
          strategy, variables, missing, count, global_step, name
        ),
        lambda: tf.constant(True),
        v1,
      )
    op = sync_replicas.set_back(applied, pairs, global_step)
    op = loss_scale_optimizer.group([op], name)
    if not eager or bool(ends):
      step = loss_scale_optimizer.Step(applied, op, pairs, global_step, ends)
      loss_scale_optimizer.keep_step(self, step)
    return op

  def _end_window(
    self,
    strategy: tf.distribute.Strategy,
    variables: Sequence[Any],
    missing: Sequence[tuple[None, Any]],
    count: tf.Tensor,
    global_step: Any,
    name: str,
  ) -> tf.Tensor:
    """Applies the gradients of a window, or skips the step.

    Args:
      strategy: The strategy.
      variables: The variables that have sums.
      missing: Pairs of None and a variable that may have no sum.
      count: The number of micro-batches in the window, an int64 scalar.
      global_step: A variable or None.
      name: The step's name.

    Returns:
      A bool scalar, whether the gradients are applied.
    """
    known = {var.ref() for var in variables}
    with tf.name_scope(control_flow.NAME_SCOPE):
      divisor = count if self._mean else tf.ones_like(count)
      pairs = self._window.read(strategy, variables, divisor)
    pairs += [pair for pair in missing if pair[1].ref() not in known]
    grads = loss_scale_optimizer.list_gradients(self._loss_scale, pairs)
    with tf.name_scope(control_flow.NAME_SCOPE):
      grads.finite = gradients.all_replicas_finite(grads)
    update, answer = autograph.convert(self._loss_scale.update)(grads)
    with tf.name_scope(control_flow.NAME_SCOPE):
      applied = tf.logical_and(grads.finite, answer)
    # Without a cond of the loss scale's own, variables are named as without
    # this cond, too.
    named = not isinstance(answer, (bool, np.bool_))
    op = loss_scale_optimizer.apply_if(
      applied,
      self._transform_and_apply,
      strategy,
      tuple(pairs),
      global_step,
      name,
      named,
    )
    done = [each for each in (op, update) if each is not None]
    unwrap = strategy.experimental_local_results
    for grad, _ in pairs:
      done += [] if grad is None else unwrap(grad)
    with tf.name_scope(control_flow.NAME_SCOPE):
      with tf.control_dependencies([] if tf.executing_eagerly() else done):
        reset = self._window.reset(strategy, variables)
      with tf.control_dependencies([] if reset is None else [reset]):
        return tf.identity(applied)

  def _transform_and_apply(
    self, pairs: loss_scale_optimizer.Pairs, global_step: Any, name: str | None
  ) -> Any:
    """Applies the gradients of a window, transformed, on one replica."""
    if self._transform is not None:
      pairs = list(autograph.convert(self._transform)(list(pairs)))
    apply = autograph.convert(self._optimizer.apply_gradients)
    return apply(pairs, global_step, name)

  def variables(self) -> list[tf.Variable]:
    """Returns the variables of the base class, then those of the window.

    The variables are those of the current graph.
    """
    return [*super().variables(), *self._window.variables()]

  def __repr__(self) -> str:
    return (
      f"AccumulatingOptimizer({self._optimizer!r}, {self._loss_scale!r}, "
      f"steps={self._steps}, mean={self._mean})"
    )


class _State:
  """What a window has in one graph, or eagerly.

  Attributes:
    variables: The variables that have sums.
    is_closed: Whether an op was built that ends windows of these variables.
  """

  def __init__(self) -> None:
    self.variables: list[Any] = []
    self.is_closed = False


class _Window(tf.compat.v1.train.Optimizer):
  """The sums of a window and its number of micro-batches.

  It is an optimizer, because TensorFlow saves and restores the slots of
  optimizers, in all of its formats; but it trains nothing.
  """

  _SLOT = "accumulated_gradient"

  def __init__(self) -> None:
    """Creates a window without variables."""
    super().__init__(use_locking=False, name="accumulation")
    self._eager_state = _State()

  @property
  def _state(self) -> _State:
    graph = graphs.find_graph()
    if graph is None:
      return self._eager_state
    return graphs.keep_on_graph(graph, self, _State)

  def find_count(self) -> Any:
    """Returns the current graph's number of micro-batches, or None."""
    graph = graphs.find_graph()
    return self._get_non_slot_variable(_COUNT, graph=graph)

  def prepare(self, pairs: Sequence[tuple[Any, Any]]) -> list[Any]:
    """Creates the variables that are missing.

    Args:
      pairs: The (gradient, variable) pairs of a micro-batch.

    Returns:
      The variables that have sums.

    Raises:
      ValueError: A variable's shape is not known, or the variable is new and an
        op was built that ends windows without it.
    """
    state = self._state
    known = {var.ref() for var in state.variables}
    # A restored checkpoint may have created a sum before.
    new = [
      var
      for grad, var in pairs
      if var.ref() not in known
      and (grad is not None or self.get_slot(var, self._SLOT) is not None)
    ]
    for var in new:
      _check_variable(var, state)
    # Outside of any cond, loop or function, none of which can own a variable.
    with tf.init_scope(), tf.compat.v1.name_scope(None):
      for var in new:
        dtype = tf.as_dtype(var.dtype).base_dtype
        self._get_or_make_slot_with_initializer(
          var,
          tf.compat.v1.zeros_initializer(),
          var.shape,
          tf.float32 if dtype in _HALF else dtype,
          self._SLOT,
          self._SLOT,
        )
      if new and self.find_count() is None:
        with tf.compat.v1.name_scope("accumulation"):
          self._create_non_slot_variable(np.int64(0), _COUNT, new[0])
    state.variables += new
    state.is_closed = state.is_closed or not tf.executing_eagerly()
    return list(state.variables)

  def add(
    self, strategy: tf.distribute.Strategy, pairs: Sequence[tuple[Any, Any]]
  ) -> tf.Tensor:
    """Adds a micro-batch to the sums.

    Args:
      strategy: The strategy.
      pairs: The (gradient, variable) pairs, per replica if there are any.

    Returns:
      The number of micro-batches in the window, an int64 scalar.
    """
    pairs = [(grad, var) for grad, var in pairs if grad is not None]
    if tf.distribute.has_strategy():
      sum_up = tf.distribute.ReduceOp.SUM
      grads = strategy.extended.batch_reduce_to(sum_up, pairs)
    else:
      grads = [grad for grad, _ in pairs]
    done = [
      strategy.extended.update(
        self.get_slot(var, self._SLOT), _add_to, args=(grad,)
      )
      for grad, (_, var) in zip(grads, pairs)
    ]
    count = self.find_count()
    with _after(done), _after([count.assign_add(1, read_value=False)]):
      return tf.identity(tf.convert_to_tensor(count))

  def read(
    self,
    strategy: tf.distribute.Strategy,
    variables: Sequence[Any],
    divisor: tf.Tensor,
  ) -> list[tuple[Any, Any]]:
    """Returns the (gradient, variable) pairs of a window, per replica.

    The optimizer that applies them adds up those of all replicas.

    Args:
      strategy: The strategy.
      variables: The variables that have sums.
      divisor: What the sums are divided by, an int64 scalar.
    """
    divisor = divisor * strategy.num_replicas_in_sync

    def read_in_replica() -> list[Any]:
      grads = []
      for var in variables:
        total = self.get_slot(var, self._SLOT).read_value()
        grad = total / tf.cast(divisor, total.dtype)
        grads.append(tf.cast(grad, tf.as_dtype(var.dtype).base_dtype))
      return grads

    grads = strategy.extended.call_for_each_replica(read_in_replica)
    return list(zip(grads, variables))

  def reset(
    self, strategy: tf.distribute.Strategy, variables: Sequence[Any]
  ) -> tf.Operation | None:
    """Starts a new window: assigns 0 to all variables."""
    done = [
      strategy.extended.update(self.get_slot(var, self._SLOT), _set_to_zero)
      for var in variables
    ]
    return tf.group([*done, self.find_count().assign(0, read_value=False)])


def _after(ops: Sequence[Any]) -> contextlib.AbstractContextManager[Any]:
  """Returns a context whose ops run after others; eagerly, of no effect."""
  if tf.executing_eagerly():
    return contextlib.nullcontext()
  group: contextlib.AbstractContextManager[Any] = tf.control_dependencies(
    [tf.group(ops)]
  )
  return group


def _add_to(total: tf.Variable, grad: Any) -> Any:
  """Adds a gradient to a sum."""
  grad = _cast(grad, total.dtype.base_dtype)
  if isinstance(grad, tf.IndexedSlices):
    return total.scatter_add(grad)
  return total.assign_add(grad, read_value=False)


def _set_to_zero(total: tf.Variable) -> Any:
  """Assigns 0 to a sum."""
  return total.assign(tf.zeros(total.shape, total.dtype), read_value=False)


def _cast(grad: Any, dtype: tf.DType) -> Any:
  """Returns a gradient in another dtype."""
  if isinstance(grad, tf.IndexedSlices):
    values = tf.cast(grad.values, dtype)
    return tf.IndexedSlices(values, grad.indices, grad.dense_shape)
  return tf.cast(grad, dtype)


def _widen(grad: Any) -> Any:
  """Returns a half-precision gradient as float32, another one as it is."""
  if grad is None or grad.dtype not in _HALF:
    return grad
  return _cast(grad, tf.float32)


def _check_variable(var: Any, state: _State) -> None:
  """Raises a ValueError if a variable cannot have a sum."""
  if state.is_closed:
    known = ", ".join(str(each.name) for each in state.variables)
    raise ValueError(
      f"accumulate: {var.name} has a gradient for the first time, but a step "
      f"that is in a graph already ends windows without it; it has {known}. "
      "Let the first step that you build have the gradients of all variables."
    )
  if not var.shape.is_fully_defined():
    raise ValueError(
      f"accumulate: the shape of {var.name} must be known, but is {var.shape}."
    )


def _check(optimizer: Any) -> None:
  """Raises a ValueError if an optimizer cannot accumulate."""
  if isinstance(optimizer, AccumulatingOptimizer):
    raise ValueError(
      f"accumulate: optimizer accumulates already: {optimizer!r}. Multiply "
      "steps instead."
    )
  if sync_replicas.wraps_synchronizer(optimizer):
    raise ValueError(
      "accumulate: optimizer must not be or wrap a SyncReplicasOptimizer, but "
      f"got {optimizer!r}: the accumulation must be inside. Write "
      "SyncReplicasOptimizer(accumulate(MixedPrecisionLossScaleOptimizer(opt, "
      "loss_scale), steps), replicas_to_aggregate, total_num_replicas)."
    )
  if not isinstance(optimizer, _Scaled):
    is_keras = optimizer_kinds.is_keras(optimizer)
    why = "Optimizers of Keras cannot accumulate here. " if is_keras else ""
    raise ValueError(
      "accumulate: optimizer must be a MixedPrecisionLossScaleOptimizer or a "
      f"contrib.LossScaleOptimizer, but got {wrong_values.show(optimizer)}. "
      f"{why}The order that "
      "works is accumulate(MixedPrecisionLossScaleOptimizer(opt, scale), "
      "steps), with any wrapper of another kind inside, as opt."
    )
  for method in ("compute_gradients", "apply_gradients"):
    ours = getattr(type(optimizer), method).__module__
    if ours.partition(".")[0] != __name__.partition(".")[0]:
      raise ValueError(
        f"accumulate: {type(optimizer).__name__} has a {method}() of its own, "
        "which would not be called: wrap the optimizer in a plain "
        "MixedPrecisionLossScaleOptimizer."
      )
