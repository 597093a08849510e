# SPDX-License-Identifier: Apache-2.0
"""An optimizer that scales the loss for the optimizer that it wraps."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import functools
import threading
from typing import Any
from typing import cast
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


class _Call(threading.local):
  """What a call of an optimizer's method holds for methods that it calls.

  The parameters of those methods are TensorFlow 1.15's, which has no other way
  to hand a value on. Each thread has its own: replicas are threads.
  """

  def __init__(self) -> None:
    self._held: tuple[Any, Any, Any] = (None, None, None)

  @contextlib.contextmanager
  def holding(
    self, owner: Any, scale: Any = None, computed: Any = None
  ) -> Iterator[None]:
    """Holds values for the methods of an optimizer."""
    before, self._held = self._held, (owner, scale, computed)
    try:
      yield
    finally:
      self._held = before

  def find_scale(self, owner: Any) -> Any:
    """Returns the loss scale that an optimizer has read, or None."""
    return self._held[1] if self._held[0] is owner else None

  def find_computed(self, owner: Any) -> Any:
    """Returns what `find_computed` found, by the ids of variables, or None."""
    return self._held[2] if self._held[0] is owner else None


_call = _Call()


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

  # The private methods of TensorFlow 1.15's class, which subclasses override.
  _OVERRIDABLE: tuple[str, ...] = (
    "_apply_gradients",
    "_distributed_apply",
    "_doing_dynamic_loss_scaling",
    "_scale_grad",
    "_scale_loss",
    "_unscale_grads",
  )

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
    self._take(opt, scale)
    tracking.track(self, opt, "base_optimizer")
    tracking.track(
      self, self._list_active_children()["loss_scale"], "loss_scale"
    )

  def _take(self, opt: _Optimizer, scale: loss_scale_lib.LossScale) -> None:
    """Sets the attributes by which programs read and set what is wrapped."""
    self._optimizer = opt
    self._loss_scale = scale

  @property
  def _active_optimizer(self) -> _Optimizer:
    """The wrapped optimizer; a program may have set another."""
    return self._optimizer

  @property
  def _active_loss_scale(self) -> loss_scale_lib.LossScale:
    """The loss scale; a program may have set another."""
    return self._loss_scale

  def _find_method(self, name: str) -> Callable[..., Any]:
    """Returns a method that a subclass may have overridden.

    If TensorFlow's class had no such method, a subclass that has a method of
    that name means something else.
    """
    if name in self._OVERRIDABLE:
      return cast("Callable[..., Any]", getattr(self, name))
    own = getattr(MixedPrecisionLossScaleOptimizer, name)
    return functools.partial(own, self)

  @attributes.DefaultProperty
  def loss_scale(self) -> loss_scale_lib.LossScale:
    """The loss scale: call it for the current scale, a float32 scalar."""
    return self._active_loss_scale

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
    loss_scale = self._read_scale()
    scaled = self._active_optimizer.compute_gradients(
      self._scale_once(loss, loss_scale),
      var_list=var_list,
      gate_gradients=gate_gradients,
      aggregation_method=aggregation_method,
      colocate_gradients_with_ops=colocate_gradients_with_ops,
      grad_loss=grad_loss,
    )
    unscaled = self._unscale_once(scaled, loss_scale)
    step_records.keep_computed(self, [grad for grad, _ in scaled], unscaled)
    return unscaled

  def _read_scale(self) -> tf.Tensor:
    """Returns the loss scale, read once for each `compute_gradients`."""
    held = _call.find_scale(self)
    if held is None:
      held = tf.cast(self._active_loss_scale(), tf.float32)
    return held

  def _scale_once(self, loss: Any, loss_scale: tf.Tensor) -> Any:
    """Returns the scaled loss, or a function that returns it."""
    with _call.holding(self, scale=loss_scale):
      return self._find_method("_scale_loss")(loss)

  def _unscale_once(
    self, grads_and_vars: GradsAndVars, loss_scale: tf.Tensor
  ) -> list[tuple[gradients.Gradient, tf.Variable]]:
    """Returns (gradient, variable) pairs with unscaled gradients."""
    pairs = list(grads_and_vars)
    with _call.holding(self, scale=loss_scale):
      grads = self._find_method("_unscale_grads")([grad for grad, _ in pairs])
    return [(grad, var) for grad, (_, var) in zip(grads, pairs)]

  # The parameters of the next six are those of TensorFlow 1.15.
  def _doing_dynamic_loss_scaling(self) -> bool:
    """Returns whether the loss scale decides if a step is applied."""
    return not _is_inert(self._active_loss_scale)

  def _scale_loss(self, loss: Any) -> Any:
    """Returns the scaled loss, or a function that returns it."""
    return gradients.scale(loss, self._read_scale())

  def _unscale_grads(self, grads: Any) -> list[gradients.Gradient]:
    """Returns the gradients of the loss itself."""
    scale = self._read_scale()
    method = self._find_method("_scale_grad")
    own = MixedPrecisionLossScaleOptimizer._scale_grad
    if own in (getattr(method, "__func__", None), getattr(method, "func", 0)):
      return gradients.unscale(grads, scale)
    return [None if x is None else method(x, 1.0 / scale) for x in grads]

  def _scale_grad(
    self, grad: gradients.Gradient, loss_scale_reciprocal: tf.Tensor
  ) -> gradients.Gradient:
    """Returns a gradient multiplied by a number, in the gradient's dtype."""
    return _multiply(grad, loss_scale_reciprocal)

  def _distributed_apply(
    self,
    distribution: tf.distribute.Strategy,
    grads_and_vars: GradsAndVars,
    global_step: tf.Variable | None = None,
    name: str | None = None,
  ) -> tf.Operation | None:
    """Does the step for all replicas, in a cross-replica context."""
    pairs = tuple(grads_and_vars)
    # A subclass may pass fewer pairs, or pairs in another order.
    held = _call.find_computed(self) or {}
    computed = tuple(held.get(id(var), (None, None)) for _, var in pairs)
    return self._apply_and_record(
      distribution, pairs, global_step, name, computed
    )

  def _apply_gradients(
    self,
    distribution: tf.distribute.Strategy,
    grads_and_vars: GradsAndVars,
    global_step: tf.Variable | None,
    name: str | None,
  ) -> Any:
    """Applies the gradients on each replica, whatever they are."""
    return distribution.group(
      distribution.extended.call_for_each_replica(
        self._apply_in_replica, args=(grads_and_vars, global_step, name)
      )
    )

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
      if not self._find_method("_doing_dynamic_loss_scaling")():
        # The same call as without the wrapper, so that the variables get the
        # same names.
        always = step_records.Step(
          self._active_loss_scale, grads_and_vars, computed, global_step
        )
        with step_records.record(self, always, reads_before=False):
          always.op = self._active_optimizer.apply_gradients(
            grads_and_vars, global_step, name
          )
        step = always.op
      else:
        pair_checks.check_dtypes(grads_and_vars)
        step = tf.distribute.get_replica_context().merge_call(
          self._apply_everywhere,
          args=(grads_and_vars, global_step, name, computed),
        )
    train_ops.add(step)
    return step

  def _apply_everywhere(
    self,
    strategy: tf.distribute.Strategy,
    grads_and_vars: tuple[Any, ...],
    global_step: Any,
    name: str | None,
    computed: tuple[tuple[Any, Any], ...],
  ) -> tf.Operation | None:
    """Does the step by the method that a subclass may override."""
    held = {id(var): x for (_, var), x in zip(grads_and_vars, computed)}
    with _call.holding(self, computed=held):
      step: tf.Operation | None = self._find_method("_distributed_apply")(
        strategy, grads_and_vars, global_step, name
      )
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
    step = step_records.Step(
      self._active_loss_scale, grads_and_vars, computed, global_step
    )
    with step_records.record(self, step):
      step.applied, step.op = self._apply_across_replicas(
        strategy, grads_and_vars, global_step, name
      )
    return step.op

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
    update, should_apply = self._active_loss_scale.update(grads)
    grads.check_agreed(self._active_loss_scale)
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
    return gradients.NamedGradients(
      [grad for grad, _ in grads_and_vars],
      step_records.name_variables(grads_and_vars),
      self._find_agreement(),
    )

  def _find_agreement(self) -> agreements.Agreement | None:
    """Returns how workers agree, or None if they need not."""
    owner = self._find_scale_owner()
    return agreements.find(owner) or horovod.find_agreement(self)

  def _apply_if(
    self,
    should_apply: bool | tf.Tensor,
    strategy: tf.distribute.Strategy,
    grads_and_vars: tuple[Any, ...],
    global_step: Any,
    name: str | None,
    named: bool = True,
  ) -> Any:
    """Applies gradients on each replica, if they should be applied.

    Args:
      should_apply: A bool scalar; a Python bool builds no cond.
      strategy: The strategy.
      grads_and_vars: (gradient, variable) pairs, per replica.
      global_step: A variable or None.
      name: The step's name, or None.
      named: Whether variables are named after the cond: see `control_flow`.

    Returns:
      An op or tensor that applies the gradients; None if that has happened or
      if `should_apply` is the Python bool False.
    """
    name = self.get_name() if name is None else name

    def apply_on_each_replica() -> Any:
      return self._find_method("_apply_gradients")(
        strategy, grads_and_vars, global_step, f"{name}-wrapped"
      )

    if isinstance(should_apply, (bool, np.bool_)):
      step = apply_on_each_replica() if should_apply else None
    else:
      v1 = pair_checks.has_ref_variable(
        [*(var for _, var in grads_and_vars), global_step]
      )
      step = control_flow.cond(
        should_apply, apply_on_each_replica, tf.no_op, v1, named
      )
    return sync_replicas.set_back(step, grads_and_vars, global_step)

  @property
  def _apply_in_replica(self) -> Callable[..., Any]:
    """The function that applies gradients on a replica."""
    apply: Callable[..., Any] = self._active_optimizer.apply_gradients
    return apply

  def _group(self, ops: list[Any], name: str | None) -> tf.Operation | None:
    """Returns an op that runs all ops that are not None; None when eager."""
    if tf.executing_eagerly():
      return None
    name = self.get_name() if name is None else name
    return tf.group([op for op in ops if op is not None], name=name)

  def get_name(self) -> str:
    """Returns the name of the wrapped optimizer."""
    return self._active_optimizer.get_name()

  def get_slot(self, var: tf.Variable, name: str) -> tf.Variable | None:
    """Returns the wrapped optimizer's slot `name` for `var`, or None."""
    return self._active_optimizer.get_slot(var, name)

  def get_slot_names(self) -> list[str]:
    """Returns the names of the wrapped optimizer's slots."""
    # The wrapped optimizer is tracked, and answers the writer itself.
    if tracking.is_asked_by_writer():
      return []
    names: list[str] = self._active_optimizer.get_slot_names()
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
    weights = graph_weights.list_weights(self._active_loss_scale)
    return [*self._active_optimizer.variables(), *weights.values()]

  def _trackable_children(
    self, save_type: str = "checkpoint", **kwargs: Any
  ) -> dict[str, Any]:
    """Returns the children to save; more of them for a SavedModel."""
    children = super()._trackable_children(save_type, **kwargs)
    children.update(self._list_active_children())
    return {**children, **eager_steps.list_children(self, save_type)}

  def _lookup_dependency(self, name: str, *args: Any, **kwargs: Any) -> Any:
    """Returns the child to restore by that name, or None."""
    found = self._list_active_children().get(name)
    if found is None:
      found = super()._lookup_dependency(name, *args, **kwargs)
    return found

  def _list_active_children(self) -> dict[str, Any]:
    """Returns the children that are in use; a program may have set others."""
    scale, owner = self._active_loss_scale, self._find_scale_owner()
    is_tracked = isinstance(owner, tracking.Trackable)
    children = {
      "base_optimizer": self._active_optimizer,
      "loss_scale": owner if is_tracked else scale,
    }
    return {
      name: child
      for name, child in children.items()
      if isinstance(child, tracking.Trackable)
    }

  def _find_scale_owner(self) -> Any:
    """Returns the loss scale, or the manager for which it stands."""
    scale = self._active_loss_scale
    return getattr(scale, "manager", scale)

  def __repr__(self) -> str:
    return (
      f"MixedPrecisionLossScaleOptimizer({self._optimizer!r}, "
      f"{self._loss_scale!r})"
    )


def _is_inert(loss_scale: loss_scale_lib.LossScale) -> bool:
  """Returns whether `update` does nothing: a subclass may redefine it."""
  return type(loss_scale).update is loss_scale_lib.FixedLossScale.update


def _multiply(grad: Any, factor: tf.Tensor) -> gradients.Gradient:
  """Multiplies a gradient by a number, in the gradient's dtype.

  Args:
    grad: A gradient.
    factor: A float32 scalar. A float16 or bfloat16 gradient is multiplied in
      float32.

  Returns:
    The product, of the shape and dtype of `grad`.
  """
  if isinstance(grad, tf.IndexedSlices):
    return tf.IndexedSlices(
      _multiply(grad.values, factor), grad.indices, grad.dense_shape
    )
  wide = tf.float32 if grad.dtype in (tf.float16, tf.bfloat16) else grad.dtype
  return tf.cast(tf.cast(grad, wide) * tf.cast(factor, wide), grad.dtype)
