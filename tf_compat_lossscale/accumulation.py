# SPDX-License-Identifier: Apache-2.0
"""Gradient accumulation that goes with loss scaling."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import functools
from typing import Any
from typing import Literal
from typing import TypeAlias

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale import gradients
from tf_compat_lossscale import loss_scale_optimizer
from tf_compat_lossscale import scaled_steps
from tf_compat_lossscale._core import accumulation_window
from tf_compat_lossscale._core import arguments
from tf_compat_lossscale._core import attributes
from tf_compat_lossscale._core import finite
from tf_compat_lossscale._core import horovod
from tf_compat_lossscale._core import optimizer_kinds
from tf_compat_lossscale._core import pair_checks
from tf_compat_lossscale._core import step_records
from tf_compat_lossscale._core import sync_replicas
from tf_compat_lossscale._core import wrong_values
from tf_compat_lossscale._core.tf import autograph
from tf_compat_lossscale._core.tf import control_flow
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
Transform: TypeAlias = Callable[[scaled_steps.Pairs], Any]

_WINDOW, _MICRO_BATCH = "window", "micro_batch"
_PACKAGE = __name__.partition(".")[0]


def accumulate(
  optimizer: loss_scale_optimizer.MixedPrecisionLossScaleOptimizer,
  steps: arguments.Whole,
  drop: Literal["window", "micro_batch"] = "window",
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
    drop: What a micro-batch with an infinity or a NaN makes void: "window"
      skips the whole window; "micro_batch" leaves that micro-batch out. In both
      cases the loss scale falls, once, at the end of the window.
    mean: Whether the mean of the gradients is applied, or their sum.
    transform: A function that takes the (gradient, variable) pairs of a window
      that is applied, and returns the pairs to apply: to clip by the global
      norm, for instance. The gradients are those of one replica.

  Raises:
    ValueError: An argument is none of these; the message names it.
  """
  return AccumulatingOptimizer(optimizer, steps, drop, mean, transform)


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
    if should_apply:
      opt.apply_gradients(transform(grads), global_step)
    sums = micro_batches = 0
  ```

  With `drop="micro_batch"`, gradients that are not finite are not added, and
  the sums are divided by the number of micro-batches that were added. Each
  replica and each process decides for itself, and the number is that of all. If
  there is none, the window is a skipped step.

  Sums that are not finite are never applied, whatever the loss scale answers.

  Under `SyncReplicasOptimizer(accumulate(...))`, a micro-batch is the mean that
  the chief takes of all workers' gradients.

  `compute_gradients` does not communicate. Of float16 and bfloat16 variables,
  it returns gradients of float32, so that none becomes 0.

  The sums are dense, also for sparse gradients. A variable has a sum if it has
  had a gradient; if its gradients of a window are all None, they count as 0.

  In object-based checkpoints the counts are children of `window`, and the sums
  are slots of `window`; in name-based ones they are
  `VARIABLE/accumulated_gradient`,
  `accumulation/micro_batches` and `accumulation/kept`.
  """

  def __init__(
    self,
    optimizer: loss_scale_optimizer.MixedPrecisionLossScaleOptimizer,
    steps: arguments.Whole,
    drop: Literal["window", "micro_batch"] = "window",
    mean: bool = True,
    transform: Transform | None = None,
  ) -> None:
    """Creates an optimizer with an empty window.

    The arguments are those of `accumulate`.
    """
    _check(optimizer)
    arguments.check_word("drop", drop, (_WINDOW, _MICRO_BATCH))
    if transform is not None and not callable(transform):
      raise ValueError(
        "transform must be a function of (gradient, variable) pairs or None, "
        f"but got {transform!r}."
      )
    super().__init__(optimizer._active_optimizer, optimizer._active_loss_scale)
    self._steps = arguments.check_steps("steps", steps)
    self._drop: str = drop
    self._mean = bool(mean)
    self._transform = transform
    self._window = accumulation_window.Window()
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
    variable = self._window.micro_batches
    if variable is None:
      return tf.constant(0, tf.int64)
    return tf.convert_to_tensor(variable)

  @attributes.DefaultProperty
  def last_step_applied(self) -> tf.Tensor:
    """Whether the last window was applied, a bool scalar.

    Eagerly, a micro-batch within a window changes nothing. In a graph, also in
    that of a `tf.function`, the tensor is False if this micro-batch ended a
    window that was skipped, and True otherwise.

    Raises:
      RuntimeError: No window has ended yet.
    """
    return step_records.read_last_applied(self)

  def _compose_step(self) -> scaled_steps.ScaledStep:
    """Returns how this optimizer takes a micro-batch, without communication."""
    return scaled_steps.ScaledStep(
      self,
      self._loss_scale,
      horovod.find_local(self._optimizer).compute_gradients,
      self._take_micro_batch,
      unscale=_unscale_widely,
      read="loss_scale()",
    )

  def _take_micro_batch(
    self,
    strategy: tf.distribute.Strategy,
    grads_and_vars: tuple[Any, ...],
    global_step: Any,
    name: str | None,
  ) -> tf.Operation | None:
    """Adds a micro-batch for all replicas, and ends the window if it is full.

    Args:
      strategy: The strategy whose replicas call `apply_gradients`.
      grads_and_vars: (gradient, variable) pairs, per replica if there are any.
      global_step: A variable or None.
      name: The returned op's name, or None.

    Returns:
      An op that does so; None when eager.
    """
    name = self.get_name() if name is None else name
    with accumulation_window.lock_if_eager():
      applied, ends = self._add_micro_batch(
        strategy, grads_and_vars, global_step, name
      )
    if tf.executing_eagerly():
      return None
    op = sync_replicas.set_back(applied, grads_and_vars, global_step)
    op = scaled_steps.group([op], name)
    step_records.keep(
      self, step_records.Step(applied, op, grads_and_vars, global_step, ends)
    )
    return op

  def _add_micro_batch(
    self,
    strategy: tf.distribute.Strategy,
    grads_and_vars: tuple[Any, ...],
    global_step: Any,
    name: str,
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Adds a micro-batch, and ends the window if it is full.

    Returns:
      Two bool scalars: False if a window ends and is skipped; and whether a
      window ends.
    """
    aggregated = sync_replicas.are_aggregated(grads_and_vars)
    sums = self._window.prepare(grads_and_vars, is_shared=aggregated)
    with tf.name_scope(control_flow.NAME_SCOPE):
      keeps = finite.are_finite if self._drop == _MICRO_BATCH else None
      count = self._window.add(grads_and_vars, keeps)
      ends = count >= self._steps
    none = [(None, var) for grad, var in grads_and_vars if grad is None]
    variables = [*(var for _, var in grads_and_vars), global_step]
    applied = control_flow.cond(
      ends,
      lambda: self._end_window(strategy, sums, none, global_step, name),
      lambda: tf.constant(True),
      pair_checks.has_ref_variable(variables),
    )
    return applied, ends

  def _end_window(
    self,
    strategy: tf.distribute.Strategy,
    sums: Sequence[accumulation_window.Sum],
    none: Sequence[tuple[None, Any]],
    global_step: Any,
    name: str,
  ) -> tf.Tensor:
    """Applies the gradients of a window, or skips the step.

    Args:
      strategy: The strategy.
      sums: The sums of gradients.
      none: Pairs of None and a variable without a gradient.
      global_step: A variable or None.
      name: The step's name.

    Returns:
      A bool scalar, whether the gradients are applied.
    """
    with tf.name_scope(control_flow.NAME_SCOPE):
      pairs, counts = self._read_window(sums)
    known = {id(each.variable) for each in sums}
    pairs += [pair for pair in none if id(pair[1]) not in known]
    applied, op = self._apply_window(strategy, pairs, counts, global_step, name)
    step = step_records.Step(applied, op, tuple(pairs), global_step)
    op = step_records.note(self, step)
    with tf.name_scope(control_flow.NAME_SCOPE):
      done = [] if op is None else [op]
      with tf.control_dependencies([*done, *_list_tensors(strategy, pairs)]):
        reset = self._window.reset()
      with tf.control_dependencies([] if reset is None else [reset]):
        return tf.identity(applied)

  def _read_window(
    self, sums: Sequence[accumulation_window.Sum]
  ) -> tuple[list[tuple[Any, Any]], accumulation_window.Counts]:
    """Returns the gradients of the window, and what it has counted.

    Args:
      sums: The sums of gradients.

    Returns:
      A pair: (gradient, variable) pairs, per replica if there are any; and the
      counts of all processes.
    """
    reduce = functools.partial(horovod.reduce, self._optimizer)
    agreement = scaled_steps.find_agreement(self, self._loss_scale)
    counts = self._window.read_counts(reduce, agreement)
    divisor = counts.added if self._mean else 1
    return self._window.read_gradients(sums, divisor, reduce), counts

  def _apply_window(
    self,
    strategy: tf.distribute.Strategy,
    pairs: list[tuple[Any, Any]],
    counts: accumulation_window.Counts,
    global_step: Any,
    name: str,
  ) -> tuple[bool | tf.Tensor, tf.Operation | None]:
    """Updates the loss scale, then applies the gradients of a window.

    Args:
      strategy: The strategy.
      pairs: (gradient, variable) pairs, per replica if there are any.
      counts: What `_read_window` returned.
      global_step: A variable or None.
      name: The step's name.

    Returns:
      A pair: whether the gradients are applied, and an op that does so; eagerly
      None for the op.
    """
    grads = scaled_steps.name_gradients(self, self._loss_scale, pairs)
    with tf.name_scope(control_flow.NAME_SCOPE):
      # All workers exchange their counts before they exchange this answer.
      with tf.control_dependencies([counts.added]):
        is_finite = gradients.all_replicas_finite(grads)
      # The loss scale falls although the gradients that are left are finite.
      mark = tf.where(counts.is_complete, 0.0, float("inf"))
      good = tf.logical_and(is_finite, counts.is_complete)
    marked = gradients.NamedGradients(
      [*grads, mark],
      [*grads.names, "micro-batches that were left out"],
      grads.agreement,
      good,
    )
    update, answer = autograph.convert(self._loss_scale.update)(marked)
    is_fixed = isinstance(answer, (bool, np.bool_))
    if is_fixed and not answer:
      return False, scaled_steps.group([update], name)
    if not is_fixed:
      marked.check_agreed(self._loss_scale)
    with tf.name_scope(control_flow.NAME_SCOPE):
      answer = tf.convert_to_tensor(answer)
      applied = tf.where(counts.is_complete, answer, counts.any_added)
      applied = tf.logical_and(applied, is_finite)
    # Without `named`, name-based checkpoints have the names that variables get
    # without this cond.
    named = not is_fixed or self._drop == _MICRO_BATCH
    op = scaled_steps.apply_if(
      applied,
      scaled_steps.on_each_replica(self._transform_and_apply),
      strategy,
      tuple(pairs),
      global_step,
      name,
      named,
    )
    return applied, scaled_steps.group([op, update], name)

  def _transform_and_apply(
    self, pairs: scaled_steps.Pairs, global_step: Any, name: str | None
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
    return [*super().variables(), *self._window.list_variables()]

  def __repr__(self) -> str:
    return (
      f"AccumulatingOptimizer({self._optimizer!r}, {self._loss_scale!r}, "
      f"steps={self._steps}, drop={self._drop!r}, mean={self._mean})"
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
  for method in (
    "compute_gradients",
    "apply_gradients",
    *optimizer._OVERRIDABLE,
  ):
    ours = getattr(type(optimizer), method).__module__
    if ours.partition(".")[0] != _PACKAGE:
      raise ValueError(
        f"accumulate: {type(optimizer).__name__} has a {method}() of its own, "
        "which would not be called: wrap the optimizer in a plain "
        "MixedPrecisionLossScaleOptimizer."
      )
  if horovod.is_accumulating(optimizer._active_optimizer):
    raise ValueError(
      "accumulate: the DistributedOptimizer accumulates by itself, which does "
      "not go with loss scaling: leave out its backward_passes_per_step."
    )


def _unscale_widely(
  pairs: scaled_steps.GradsAndVars, scale: tf.Tensor
) -> scaled_steps.Pairs:
  """Returns pairs with unscaled gradients, in float32 or wider.

  So no gradient of a half-precision variable becomes 0.
  """
  return scaled_steps.unscale([(_widen(x), var) for x, var in pairs], scale)


def _widen(grad: Any) -> Any:
  """Returns a half-precision gradient as float32, another one as it is."""
  if grad is None or grad.dtype not in accumulation_window.HALF:
    return grad
  if isinstance(grad, tf.IndexedSlices):
    values = tf.cast(grad.values, tf.float32)
    return tf.IndexedSlices(values, grad.indices, grad.dense_shape)
  return tf.cast(grad, tf.float32)


def _list_tensors(
  strategy: tf.distribute.Strategy, pairs: Sequence[tuple[Any, Any]]
) -> list[tf.Tensor]:
  """Returns the gradients of all replicas that are not None."""
  found: list[tf.Tensor] = []
  for grad, _ in pairs:
    if grad is not None:
      found += strategy.experimental_local_results(grad)
  return found
