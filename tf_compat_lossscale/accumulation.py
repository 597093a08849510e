# SPDX-License-Identifier: Apache-2.0
"""Gradient accumulation that goes with loss scaling."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
import contextlib
import functools
import threading
from typing import Any
from typing import TypeAlias

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale import gradients
from tf_compat_lossscale import loss_scale_optimizer
from tf_compat_lossscale._core import arguments
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
__dir__ = functools.partial(sorted, __all__)


_Scaled: TypeAlias = loss_scale_optimizer.MixedPrecisionLossScaleOptimizer
_Pairs: TypeAlias = loss_scale_optimizer.Pairs
_Sums: TypeAlias = dict[Any, Any]
Transform: TypeAlias = Callable[[_Pairs], Any]

_COUNT = "micro_batches"
_SUM = "accumulated_gradient"
_HALF = (tf.float16, tf.bfloat16)


def accumulate(
  optimizer: _Scaled,
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


class AccumulatingOptimizer(_Scaled):
  """An optimizer that adds up gradients before it applies them.

  `accumulate` makes it. Each call of `apply_gradients` is one micro-batch:

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
  replicas. An optimizer of Horovod inside reduces each micro-batch.

  Of float16 and bfloat16 variables, `compute_gradients` returns gradients of
  float32, so that none becomes 0. The sums are dense, also for sparse
  gradients. A variable has a sum once it has had a gradient, and belongs to
  each window from then on: if it gets no gradient there, that counts as 0.

  Eagerly, `last_step_applied` is that of the last window that ended. In a
  graph, also in that of a `tf.function`, it is False if this micro-batch ended
  a window that was skipped, and True otherwise.

  In object-based checkpoints the sums are slots of the child `window`, and the
  number of micro-batches is its variable `micro_batches`; in name-based ones
  they are `VARIABLE/accumulated_gradient` and `accumulation/micro_batches`.
  """

  def __init__(
    self,
    optimizer: _Scaled,
    steps: arguments.Whole,
    mean: bool = True,
    transform: Transform | None = None,
  ) -> None:
    """Creates an optimizer with an empty window: see `accumulate`."""
    _check(optimizer)
    if transform is not None and not callable(transform):
      raise ValueError(f"transform must be a function, but got {transform!r}.")
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
    return tf.convert_to_tensor(np.int64(0) if count is None else count)

  def _unscale(self, pairs: _Pairs, factor: tf.Tensor) -> _Pairs:
    """Returns pairs with unscaled gradients, in float32 or wider."""
    return loss_scale_optimizer.unscale(_widen(pairs), factor)

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
      ValueError: In a cross-replica context of a `tf.distribute` strategy; or
        no variable has a gradient; or a variable has a gradient for the first
        time although an op was built that ends windows without it.
    """
    pairs = pair_checks.read(grads_and_vars)
    loss_scale_optimizer.warn_if_unread(self, self._loss_scale, pairs)
    return loss_scale_optimizer.take_step(
      self._take_micro_batch, _widen(pairs), global_step, name
    )

  def _take_micro_batch(
    self,
    strategy: tf.distribute.Strategy,
    pairs: Any,
    global_step: Any,
    name: str | None,
  ) -> tf.Operation | None:
    """Adds a micro-batch of all replicas, and ends the window if it is full."""
    name = self.get_name() if name is None else name
    eager = tf.executing_eagerly()
    with self._window.eager_known.lock if eager else contextlib.nullcontext():
      sums = self._window.prepare(pairs)
      v1 = pair_checks.has_ref_variable([*sums.values(), global_step])
      with tf.name_scope(control_flow.NAME_SCOPE):
        count = self._window.add(sums, pairs)
        ends = count >= self._steps
      applied = control_flow.cond(
        ends,
        lambda: self._end_window(strategy, sums, count, global_step, name),
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
    sums: _Sums,
    count: tf.Tensor,
    global_step: Any,
    name: str,
  ) -> tf.Tensor:
    """Applies or skips a window, and empties it; returns whether it applied."""
    with tf.name_scope(control_flow.NAME_SCOPE):
      divisor = count if self._mean else tf.ones_like(count)
      pairs = self._window.read(sums, divisor)
    grads = loss_scale_optimizer.list_gradients(self._loss_scale, pairs)
    grads.finite = gradients.all_replicas_finite(grads)
    update, answer = autograph.convert(self._loss_scale.update)(grads)
    with tf.name_scope(control_flow.NAME_SCOPE):
      # A loss scale that never changes does not look at the gradients.
      applied = tf.logical_and(grads.finite, answer)
    op = loss_scale_optimizer.apply_if(
      applied,
      self._transform_and_apply,
      strategy,
      tuple(pairs),
      global_step,
      name,
      # If the loss scale asks for no cond, no variable is named after this one.
      named=not isinstance(answer, (bool, np.bool_)),
    )
    with tf.name_scope(control_flow.NAME_SCOPE):
      done = loss_scale_optimizer.group([op, update, applied], "applied")
      with tf.control_dependencies([done]):
        reset = self._window.reset(sums)
      with tf.control_dependencies([reset]):
        return tf.identity(applied)

  def _transform_and_apply(
    self, pairs: _Pairs, global_step: Any, name: str | None
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


class _Known:
  """The sums in one graph, or eagerly.

  Attributes:
    sums: The sum of each variable, by the variable's `ref()`.
    is_closed: Whether an op was built that ends windows of these variables.
    lock: What an eager micro-batch holds.
  """

  def __init__(self) -> None:
    self.sums: _Sums = {}
    self.is_closed = False
    # Between adding and counting, another eager thread could end the window.
    self.lock = threading.RLock()

  def __reduce__(self) -> tuple[Any, ...]:
    return _Known, ()


class _Window(tf.compat.v1.train.Optimizer):
  """The sums of a window and its number of micro-batches.

  It is an optimizer, because TensorFlow saves and restores the slots of
  optimizers, in all of its formats; but it trains nothing.
  """

  def __init__(self) -> None:
    super().__init__(use_locking=False, name="accumulation")
    self.eager_known = _Known()

  def __getstate__(self) -> dict[str, Any]:
    """Returns what a copy gets: all but the sums of variables, which it lacks.

    Raises:
      ValueError: The window holds gradients, which the copy would lose.
    """
    count = self.find_count() if tf.executing_eagerly() else None
    if count is not None and int(count):
      raise ValueError(
        f"accumulate: an optimizer cannot be copied within a window, and "
        f"{int(count)} micro-batches are in it: copy it between windows."
      )
    return dict(vars(self))

  def find_count(self) -> Any:
    """Returns the current graph's number of micro-batches, or None."""
    return self._get_non_slot_variable(_COUNT, graph=graphs.find_graph())

  def prepare(self, pairs: Iterable[tuple[Any, Any]]) -> _Sums:
    """Creates the sums that are missing; returns all: see `_Known`."""
    known = self._find_known()
    # Outside of any cond, loop or function, none of which can own a variable.
    with tf.init_scope(), tf.compat.v1.name_scope(None):
      for grad, var in pairs:
        # A copy of a window has the sums, and finds them by their variables.
        is_used = grad is not None or self.get_slot(var, _SUM) is not None
        if is_used and var.ref() not in known.sums:
          zeros = tf.compat.v1.zeros_initializer()
          self._get_or_make_slot_with_initializer(
            var, zeros, var.shape, var.dtype, _SUM, _SUM
          )
    if not known.sums:
      raise ValueError("accumulate: no variable has a gradient.")
    known.is_closed = known.is_closed or not tf.executing_eagerly()
    return dict(known.sums)

  def _find_known(self) -> _Known:
    graph = graphs.find_graph()
    if graph is None:
      return self.eager_known
    return graphs.keep_on_graph(graph, self, _Known)

  def _get_or_make_slot_with_initializer(
    self,
    var: Any,
    initializer: Any,
    shape: Any,
    dtype: Any,
    *args: Any,
    **kw: Any,
  ) -> Any:
    """Returns a sum of float32 or wider, and makes it part of the window.

    A restore creates a sum by this method, too, before any gradient is there.
    """
    known = self._find_known()
    _check_variable(var, known)
    dtype = tf.float32 if dtype.base_dtype in _HALF else dtype.base_dtype
    strategy = getattr(var, "distribute_strategy", None)
    if strategy is None or tf.distribute.has_strategy():
      scope = contextlib.nullcontext()
    else:  # A restore may be outside of it.
      scope = strategy.scope()
    with scope:
      if self.find_count() is None:
        with tf.compat.v1.name_scope("accumulation"):
          self._create_non_slot_variable(np.int64(0), _COUNT, var)
      total = super()._get_or_make_slot_with_initializer(
        var, initializer, shape, dtype, *args, **kw
      )
    known.sums[var.ref()] = total
    return total

  def add(self, sums: _Sums, pairs: Iterable[tuple[Any, Any]]) -> tf.Tensor:
    """Adds a micro-batch to the sums; returns the number of micro-batches."""
    across = tf.distribute.get_strategy().extended
    pairs = [(grad, var) for grad, var in pairs if grad is not None]
    grads = [grad for grad, _ in pairs]
    if tf.distribute.has_strategy():
      grads = across.batch_reduce_to(tf.distribute.ReduceOp.SUM, pairs)
    done = [
      across.update(sums[var.ref()], _add_to, args=(grad,))
      for grad, (_, var) in zip(grads, pairs)
    ]
    count = self.find_count()
    with tf.control_dependencies([tf.group(done)]):
      counted = tf.group(count.assign_add(1, read_value=False))
    with tf.control_dependencies([counted]):
      return tf.identity(tf.convert_to_tensor(count))

  def read(self, sums: _Sums, divisor: tf.Tensor) -> list[tuple[Any, Any]]:
    """Returns (gradient, variable) pairs: the sums by the divisor.

    Each replica gets its share, for the optimizer adds up those of all.
    """
    strategy = tf.distribute.get_strategy()
    divisor = divisor * strategy.num_replicas_in_sync

    def read_in_replica() -> list[Any]:
      grads = []
      for ref, total in sums.items():
        grad = total.read_value() / tf.cast(divisor, total.dtype)
        grads.append(tf.cast(grad, ref.deref().dtype.base_dtype))
      return grads

    grads = strategy.extended.call_for_each_replica(read_in_replica)
    return [(grad, ref.deref()) for grad, ref in zip(grads, sums)]

  def reset(self, sums: _Sums) -> tf.Operation | None:
    """Starts a new window: assigns 0 to the sums and to the number."""
    update = tf.distribute.get_strategy().extended.update

    def set_to_zero(total: tf.Variable) -> Any:
      zeros = tf.zeros(total.shape, total.dtype)
      return total.assign(zeros, read_value=False)

    done = [update(total, set_to_zero) for total in sums.values()]
    return tf.group(done, self.find_count().assign(0, read_value=False))


def _add_to(total: tf.Variable, grad: Any) -> Any:
  dtype = total.dtype.base_dtype
  grad = gradients.map_values(lambda values: tf.cast(values, dtype), grad)
  if isinstance(grad, tf.IndexedSlices):
    return total.scatter_add(grad)
  return total.assign_add(grad, read_value=False)


def _widen(pairs: Iterable[tuple[Any, Any]]) -> tuple[Any, ...]:
  """Returns pairs with half-precision gradients as float32."""

  def widen(values: Any) -> Any:
    return tf.cast(values, tf.float32) if values.dtype in _HALF else values

  return tuple((gradients.map_values(widen, grad), var) for grad, var in pairs)


def _check_variable(var: Any, known: _Known) -> None:
  if known.is_closed:
    names = ", ".join(str(ref.deref().name) for ref in known.sums)
    raise ValueError(
      f"accumulate: {var.name} has a gradient for the first time, but a step "
      f"that is in a graph already ends windows of {names} alone. Let the "
      "first step that you build have the gradients of all variables, and "
      "restore checkpoints before it."
    )
  if not var.shape.is_fully_defined():
    raise ValueError(
      f"accumulate: the shape of {var.name} must be known, but is {var.shape}."
    )


def _check(optimizer: Any) -> None:
  if isinstance(optimizer, AccumulatingOptimizer):
    raise ValueError(
      f"accumulate: {optimizer!r} accumulates already: multiply steps instead."
    )
  optimizer_kinds.check_order(optimizer)
  if not isinstance(optimizer, _Scaled):
    raise ValueError(
      "accumulate: optimizer must be a MixedPrecisionLossScaleOptimizer or a "
      f"contrib.LossScaleOptimizer, but got {wrong_values.show(optimizer)}. "
      "The order that works is accumulate(MixedPrecisionLossScaleOptimizer("
      "opt, scale), steps), with any wrapper of another kind inside, as opt."
    )
  optimizer_kinds.check_passes(optimizer._optimizer)
  package = f"{__name__.partition('.')[0]}."
  for method in ("compute_gradients", "apply_gradients"):
    if not getattr(type(optimizer), method).__module__.startswith(package):
      raise ValueError(
        f"accumulate: {type(optimizer).__name__} has a {method}() of its own, "
        "which would not be called: wrap by a class that has none."
      )
