# SPDX-License-Identifier: Apache-2.0
"""An optimizer that scales the loss for the optimizer that it wraps."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import contextvars
from typing import Any
from typing import TypeAlias

import tensorflow.compat.v2 as tf

from tf_compat_lossscale import gradients
from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale import scaled_steps
from tf_compat_lossscale._core import attributes
from tf_compat_lossscale._core import eager_steps
from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core import horovod
from tf_compat_lossscale._core import optimizer_kinds
from tf_compat_lossscale._core import step_records
from tf_compat_lossscale._core import sync_replicas
from tf_compat_lossscale._core import wrapped_optimizers
from tf_compat_lossscale._core.tf import autograph
from tf_compat_lossscale._core.tf import optimizers
from tf_compat_lossscale._core.tf import tracking

__all__ = [
  "MixedPrecisionLossScaleOptimizer",
]


def __dir__() -> list[str]:
  """Returns the names of the API."""
  return sorted(__all__)


_Optimizer: TypeAlias = tf.compat.v1.train.Optimizer

# The optimizer whose method runs in this context, and the scale that it read.
# Programs override and call its other methods with the parameters of TensorFlow
# 1.15, which have no place for the scale.
_held: contextvars.ContextVar[tuple[Any, tf.Tensor | None]] = (
  contextvars.ContextVar("held", default=(None, None))
)


@contextlib.contextmanager
def _holding(owner: Any, scale: tf.Tensor) -> Iterator[None]:
  """Holds the scale for the methods of an optimizer."""
  token = _held.set((owner, scale))
  try:
    yield
  finally:
    _held.reset(token)


class MixedPrecisionLossScaleOptimizer(
  wrapped_optimizers.Delegating, tf.compat.v1.train.Optimizer
):
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

  Attributes of the wrapped optimizer, such as `_lr`, are read and set through
  this object, unless it has an attribute of that name itself.
  """

  # The private methods of TensorFlow 1.15's class, which subclasses override.
  # `accumulate` refuses such a subclass: its steps do not call them.
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
    loss_scale: loss_scale_lib.Identifier,
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
        f", but got {optimizer_kinds.show_wrong(opt)}"
      )
    if loss_scale is None:
      raise ValueError(
        "loss_scale cannot be None: pass 'dynamic', a number of at least 1 or "
        "a LossScale, or use the optimizer without this wrapper."
      )
    scale = loss_scale_lib.make(loss_scale)
    optimizer_kinds.warn_if_scaling(type(self).__name__, opt)
    if not _is_inert(scale):
      sync_replicas.check_order(opt)
    horovod.check_passes(opt)
    optimizers.adopt(opt)
    super().__init__(optimizers.uses_locking(opt), optimizers.get_name(opt))
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

  @attributes.DefaultProperty
  def loss_scale(self) -> Any:
    """The `LossScale`: call it for the current scale, a float32 scalar."""
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
  ) -> list[tuple[Any, tf.Variable]]:
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
    how = {
      "gate_gradients": gate_gradients,
      "aggregation_method": aggregation_method,
      "colocate_gradients_with_ops": colocate_gradients_with_ops,
    }
    return self._compose_step().compute_gradients(
      loss, var_list=var_list, grad_loss=grad_loss, **how
    )

  def _compose_step(self) -> scaled_steps.ScaledStep:
    """Returns how this optimizer takes a step: by methods of TensorFlow 1.15.

    A program may have set another optimizer or loss scale since the last step.
    """
    return scaled_steps.ScaledStep(
      self,
      self._loss_scale,
      self._optimizer.compute_gradients,
      self._distributed_apply,
      self._scale_once,
      self._unscale_once,
      self._doing_dynamic_loss_scaling,
      self._optimizer.apply_gradients,
      read="loss_scale()",
    )

  def _scale_once(self, loss: Any, scale: tf.Tensor) -> Any:
    """Returns the scaled loss, or a function that returns it."""
    with _holding(self, scale):
      return autograph.convert(self._scale_loss)(loss)

  def _unscale_once(
    self, grads_and_vars: scaled_steps.GradsAndVars, scale: tf.Tensor
  ) -> scaled_steps.Pairs:
    """Returns (gradient, variable) pairs with unscaled gradients."""
    pairs = list(grads_and_vars)
    with _holding(self, scale):
      grads = autograph.convert(self._unscale_grads)(
        [grad for grad, _ in pairs]
      )
    return [(grad, var) for grad, (_, var) in zip(grads, pairs)]

  def _read_scale(self) -> tf.Tensor:
    """Returns the loss scale of this step, or reads the scale."""
    holder, scale = _held.get()
    if holder is self and scale is not None:
      return scale
    return tf.cast(autograph.convert(self._loss_scale)(), tf.float32)

  # The parameters of the next six are those of TensorFlow 1.15.
  def _doing_dynamic_loss_scaling(self) -> bool:
    """Returns whether the loss scale decides if a step is applied."""
    return not _is_inert(self._loss_scale)

  def _scale_loss(self, loss: Any) -> Any:
    """Returns the scaled loss, or a function that returns it."""
    return gradients.scale(loss, self._read_scale())

  def _unscale_grads(self, grads: Any) -> list[gradients.Gradient]:
    """Returns the gradients of the loss itself."""
    scale = self._read_scale()
    own = MixedPrecisionLossScaleOptimizer._scale_grad
    if getattr(self._scale_grad, "__func__", None) is own:
      return gradients.unscale(grads, scale)
    return [
      None if x is None else self._scale_grad(x, 1.0 / scale) for x in grads
    ]

  def _scale_grad(
    self, grad: gradients.Gradient, loss_scale_reciprocal: tf.Tensor
  ) -> gradients.Gradient:
    """Returns a gradient multiplied by a number, in the gradient's dtype."""
    return _multiply(grad, loss_scale_reciprocal)

  def _distributed_apply(
    self,
    distribution: tf.distribute.Strategy,
    grads_and_vars: scaled_steps.GradsAndVars,
    global_step: tf.Variable | None = None,
    name: str | None = None,
  ) -> tf.Operation | None:
    """Does the step for all replicas, in a cross-replica context."""
    take = scaled_steps.update_then_apply(
      self, self._loss_scale, self._apply_gradients
    )
    op: tf.Operation | None = take(
      distribution, tuple(grads_and_vars), global_step, name
    )
    return op

  def _apply_gradients(
    self,
    distribution: tf.distribute.Strategy,
    grads_and_vars: scaled_steps.GradsAndVars,
    global_step: tf.Variable | None,
    name: str | None,
  ) -> Any:
    """Applies the gradients on each replica, whatever they are."""
    apply = scaled_steps.on_each_replica(self._optimizer.apply_gradients)
    return apply(distribution, grads_and_vars, global_step, name)

  def apply_gradients(
    self,
    grads_and_vars: scaled_steps.GradsAndVars,
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
    op: tf.Operation | None = self._compose_step().apply_gradients(
      grads_and_vars, global_step, name
    )
    return op

  def get_name(self) -> str:
    """Returns the name of the wrapped optimizer."""
    return optimizers.get_name(self._active_optimizer)

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
    inner = optimizers.list_variables(self._active_optimizer)
    return [*inner, *weights.values()]

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
    scale = self._active_loss_scale
    owner = graph_weights.find_owner(scale)
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
