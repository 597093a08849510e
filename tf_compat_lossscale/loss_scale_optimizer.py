# SPDX-License-Identifier: Apache-2.0
"""An optimizer that scales the loss for the optimizer that it wraps."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from typing import Any
from typing import TypeAlias

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale import gradients
from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale._core import agreements
from tf_compat_lossscale._core import attributes
from tf_compat_lossscale._core import eager_steps
from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core import horovod
from tf_compat_lossscale._core import pair_checks
from tf_compat_lossscale._core import step_records
from tf_compat_lossscale._core import sync_replicas
from tf_compat_lossscale._core import train_ops
from tf_compat_lossscale._core.tf import control_flow
from tf_compat_lossscale._core.tf import optimizers
from tf_compat_lossscale._core.tf import tracking

_Optimizer: TypeAlias = tf.compat.v1.train.Optimizer
GradsAndVars = Iterable[tuple[gradients.Gradient, tf.Variable]]


class MixedPrecisionLossScaleOptimizer(_Optimizer):
  """An optimizer that wraps another and applies a loss scale to it.

  A whole step:

  ```
  scale = loss_scale()                      # read once a step
  grads = gradients(loss * scale) / scale   # compute_gradients
  update_op, should_apply = loss_scale.update(grads)
  if should_apply:                          # apply_gradients
    opt.apply_gradients(grads)              # variables, slots, global_step
  ```

  Between `compute_gradients` and `apply_gradients`, the gradients are unscaled:
  a program may clip, accumulate or replace them as without loss scaling.

  In object-based checkpoints the wrapped optimizer is `base_optimizer` and the
  loss scale is `loss_scale`, as in every release of TensorFlow that had this
  class.
  """

  def __init__(
    self,
    opt: _Optimizer,
    loss_scale: loss_scale_lib.LossScale | float | str | dict[str, Any],
  ) -> None:
    """Wraps an optimizer.

    Args:
      opt: The `tf.compat.v1.train.Optimizer` that applies the gradients.
      loss_scale: A LossScale, a number for a fixed loss scale, 'dynamic', or a
        config that `get` accepts.

    Raises:
      ValueError: `opt` is no such optimizer, or an optimizer of Horovod with
        `backward_passes_per_step` above 1, or `get` refuses `loss_scale`, or
        `loss_scale` is None, or `opt` is a `SyncReplicasOptimizer`, which must
        be outside (a loss scale that never changes may be on both sides).
    """
    if not isinstance(opt, tf.compat.v1.train.Optimizer):
      raise ValueError(
        '"opt" must be an instance of Optimizer (tf.compat.v1.train.Optimizer)'
        f", but got {opt!r} of type {type(opt).__name__}."
      )
    scale = loss_scale_lib.get(loss_scale)
    if scale is None:
      raise ValueError(
        "loss_scale cannot be None: pass 'dynamic', a number of at least 1 or "
        "a LossScale, or use the optimizer without this wrapper."
      )
    if not _is_inert(scale):
      sync_replicas.check_order(opt)
    horovod.check_passes(opt)
    optimizers.adopt(opt)
    super().__init__(optimizers.uses_locking(opt), opt.get_name())
    self._optimizer = opt
    self._loss_scale = scale
    tracking.track(self, opt, "base_optimizer")
    tracking.track(self, scale, "loss_scale")

  @attributes.DefaultProperty
  def loss_scale(self) -> loss_scale_lib.LossScale:
    """The loss scale: call it for the current scale, a float32 scalar."""
    return self._loss_scale

  @attributes.DefaultProperty
  def last_step_applied(self) -> tf.Tensor:
    """Whether the step was applied, a bool scalar; False if it was skipped.

    In a graph, also in that of a `tf.function`, the tensor belongs to the last
    call of `apply_gradients` there. To evaluate it runs that step's check of
    the gradients. Eagerly, it is the value of the last step, whether that step
    was eager or in a `tf.function`.

    Raises:
      RuntimeError: There was no step yet.
    """
    return step_records.read_last_applied(self)

  def compute_gradients(
    self,
    loss: tf.Tensor | Callable[[], tf.Tensor],
    var_list: Any = None,
    gate_gradients: int = _Optimizer.GATE_OP,
    aggregation_method: int | None = None,
    colocate_gradients_with_ops: bool = False,
    grad_loss: tf.Tensor | None = None,
  ) -> list[tuple[gradients.Gradient, tf.Variable]]:
    """Computes the gradients of a loss by way of the scaled loss.

    Args:
      loss: A floating-point tensor, or a function of no arguments that returns
        a floating-point tensor; when eager, a function.
      var_list: The variables to differentiate by; by default the graph's
        trainable variables, or the variables that the function `loss` reads.
      gate_gradients: One of GATE_NONE, GATE_OP and GATE_GRAPH.
      aggregation_method: A value of `tf.AggregationMethod`.
      colocate_gradients_with_ops: Whether gradients are placed on the devices
        of their ops.
      grad_loss: The gradient of the program's objective by `loss`; by default
        ones.

    Returns:
      (gradient, variable) pairs. The gradients are unscaled; each is of its
      variable's shape and dtype, or None.
    """
    # One read, for another worker may change the scale between two reads.
    loss_scale = tf.cast(self._loss_scale(), tf.float32)
    scaled = self._optimizer.compute_gradients(
      gradients.scale(loss, loss_scale),
      var_list=var_list,
      gate_gradients=gate_gradients,
      aggregation_method=aggregation_method,
      colocate_gradients_with_ops=colocate_gradients_with_ops,
      grad_loss=grad_loss,
    )
    unscaled = self._unscale(scaled, loss_scale)
    step_records.keep_computed(self, [grad for grad, _ in scaled], unscaled)
    return unscaled

  def _unscale(
    self, grads_and_vars: GradsAndVars, loss_scale: tf.Tensor
  ) -> list[tuple[gradients.Gradient, tf.Variable]]:
    """Returns (gradient, variable) pairs with unscaled gradients."""
    pairs = list(grads_and_vars)
    grads = gradients.unscale([grad for grad, _ in pairs], loss_scale)
    return [(grad, var) for grad, (_, var) in zip(grads, pairs)]

  def apply_gradients(
    self,
    grads_and_vars: GradsAndVars,
    global_step: tf.Variable | None = None,
    name: str | None = None,
  ) -> tf.Operation | None:
    """Applies gradients, unless the loss scale says that they should not be.

    Args:
      grads_and_vars: (gradient, variable) pairs, with unscaled gradients.
      global_step: A variable to add 1 to if the gradients are applied.
      name: The returned op's name; by default that of the wrapped optimizer.

    Returns:
      An op that does the step and updates the loss scale; None when eager: both
      have happened. A skipped step changes no variable, no slot and not
      `global_step`.

    Raises:
      TypeError: A gradient is neither floating-point nor complex like its
        variable, and the loss scale is not a `FixedLossScale`.
      ValueError: In a cross-replica context of a `tf.distribute` strategy.
    """
    grads_and_vars = pair_checks.read(grads_and_vars)
    computed = step_records.find_computed(self, grads_and_vars)
    with train_ops.leave_out():
      if _is_inert(self._loss_scale):
        # The same call as without the wrapper, so that the variables get the
        # same names.
        step = self._optimizer.apply_gradients(
          grads_and_vars, global_step, name
        )
        attempt = step_records.Attempt(
          self._loss_scale, grads_and_vars, computed, global_step
        )
        step = step_records.add_from_replica(self, attempt, None, True, step)
      else:
        pair_checks.check_dtypes(grads_and_vars)
        step = tf.distribute.get_replica_context().merge_call(
          self._apply_and_record,
          args=(grads_and_vars, global_step, name, computed),
        )
    train_ops.add(step)
    return step

  def _apply_and_record(
    self,
    strategy: tf.distribute.Strategy,
    grads_and_vars: tuple[Any, ...],
    global_step: Any,
    name: str | None,
    computed: tuple[tuple[Any, Any], ...],
  ) -> tf.Operation | None:
    """Does the step for all replicas, and records it.

    Args:
      strategy: The strategy whose replicas call `apply_gradients`.
      grads_and_vars: (gradient, variable) pairs, per replica if there are any.
      global_step: A variable or None.
      name: The returned op's name, or None.
      computed: What `find_computed` returned, per replica if there are any.

    Returns:
      An op that does the step; None when eager.
    """
    begun = step_records.begin(self, self._loss_scale, global_step)
    applied, step = self._apply_across_replicas(
      strategy, grads_and_vars, global_step, name
    )
    attempt = step_records.Attempt(
      self._loss_scale, grads_and_vars, computed, global_step
    )
    return step_records.add(self, attempt, begun, applied, step)

  def _apply_across_replicas(
    self,
    strategy: tf.distribute.Strategy,
    grads_and_vars: tuple[Any, ...],
    global_step: Any,
    name: str | None,
  ) -> tuple[bool | tf.Tensor, tf.Operation | None]:
    """Updates the loss scale, then applies the gradients, for all replicas.

    Args:
      strategy: The strategy whose replicas call `apply_gradients`.
      grads_and_vars: (gradient, variable) pairs, per replica if there are any.
      global_step: A variable or None.
      name: The returned op's name, or None.

    Returns:
      A pair: whether the step is applied, and an op that does the step; eagerly
      None for the op.
    """
    grads = self._name_gradients(grads_and_vars)
    update, should_apply = self._loss_scale.update(grads)
    grads.check_agreed(self._loss_scale)
    step = self._apply_if(
      should_apply, strategy, grads_and_vars, global_step, name
    )
    return should_apply, self._group([step, update], name)

  def _name_gradients(
    self, grads_and_vars: tuple[Any, ...]
  ) -> gradients.NamedGradients:
    """Returns the gradients, with their names and with the agreement on them.

    Args:
      grads_and_vars: (gradient, variable) pairs, per replica if there are any.
    """
    owner = getattr(self._loss_scale, "manager", self._loss_scale)
    return gradients.NamedGradients(
      [grad for grad, _ in grads_and_vars],
      step_records.name_variables(grads_and_vars),
      agreements.find(owner) or horovod.find_agreement(self),
    )

  def _apply_if(
    self,
    should_apply: bool | tf.Tensor,
    strategy: tf.distribute.Strategy,
    grads_and_vars: tuple[Any, ...],
    global_step: Any,
    name: str | None,
  ) -> Any:
    """Applies gradients on each replica, if they should be applied.

    Args:
      should_apply: A bool scalar; a Python bool builds no cond.
      strategy: The strategy.
      grads_and_vars: (gradient, variable) pairs, per replica.
      global_step: A variable or None.
      name: The step's name, or None.

    Returns:
      An op or tensor that applies the gradients; None if that has happened or
      if `should_apply` is the Python bool False.
    """
    name = self.get_name() if name is None else name

    def apply_on_each_replica() -> Any:
      return strategy.group(
        strategy.extended.call_for_each_replica(
          self._apply_in_replica,
          args=(grads_and_vars, global_step, f"{name}-wrapped"),
        )
      )

    if isinstance(should_apply, (bool, np.bool_)):
      step = apply_on_each_replica() if should_apply else None
    else:
      v1 = pair_checks.has_ref_variable(
        [*(var for _, var in grads_and_vars), global_step]
      )
      step = control_flow.cond(
        should_apply, apply_on_each_replica, tf.no_op, v1
      )
    return sync_replicas.set_back(step, grads_and_vars, global_step)

  @property
  def _apply_in_replica(self) -> Callable[..., Any]:
    """The function that applies gradients on a replica."""
    apply: Callable[..., Any] = self._optimizer.apply_gradients
    return apply

  def _group(self, ops: list[Any], name: str | None) -> tf.Operation | None:
    """Returns an op that runs all ops that are not None; None when eager."""
    if tf.executing_eagerly():
      return None
    name = self.get_name() if name is None else name
    return tf.group([op for op in ops if op is not None], name=name)

  def get_name(self) -> str:
    """Returns the name of the wrapped optimizer."""
    return self._optimizer.get_name()

  def get_slot(self, var: tf.Variable, name: str) -> tf.Variable | None:
    """Returns the wrapped optimizer's slot `name` for `var`, or None."""
    return self._optimizer.get_slot(var, name)

  def get_slot_names(self) -> list[str]:
    """Returns the names of the wrapped optimizer's slots."""
    # The wrapped optimizer is tracked, and answers the writer itself.
    if tracking.is_asked_by_writer():
      return []
    names: list[str] = self._optimizer.get_slot_names()
    return names

  def __dir__(self) -> list[str]:
    """Returns the names of all attributes but `get_slot_names`.

    Writers of checkpoints take an object with that name for the owner of slots.
    """
    return [name for name in super().__dir__() if name != "get_slot_names"]

  def variables(self) -> list[tf.Variable]:
    """Returns the variables of the wrapped optimizer, then the loss scale's.

    The variables are those of the current graph.
    """
    weights = graph_weights.list_weights(self._loss_scale)
    return [*self._optimizer.variables(), *weights.values()]

  def _trackable_children(
    self, save_type: str = "checkpoint", **kwargs: Any
  ) -> dict[str, Any]:
    """Returns the children to save; more of them for a SavedModel."""
    children = super()._trackable_children(save_type, **kwargs)
    return {**children, **eager_steps.list_children(self, save_type)}

  def __repr__(self) -> str:
    return (
      f"MixedPrecisionLossScaleOptimizer({self._optimizer!r}, "
      f"{self._loss_scale!r})"
    )


def _is_inert(loss_scale: loss_scale_lib.LossScale) -> bool:
  """Returns whether `update` does nothing: a subclass may redefine it."""
  return type(loss_scale).update is loss_scale_lib.FixedLossScale.update
