"""An optimizer that scales the loss for the one it wraps."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import threading
from typing import Any
from typing import TypeAlias

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale import gradients
from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale._core.tf import control_flow
from tf_compat_lossscale._core.tf import graphs
from tf_compat_lossscale._core.tf import tracking

_REMOVING = threading.Lock()  # Held to remove ops from TRAIN_OP.

_Optimizer: TypeAlias = tf.compat.v1.train.Optimizer
_GradsAndVars = Iterable[tuple[gradients.Gradient, tf.Variable]]


class MixedPrecisionLossScaleOptimizer(_Optimizer):
  """Wraps a `tf.compat.v1.train.Optimizer` and applies a loss scale to it.

  One step, whole:

  ```
  scale = loss_scale()                      # read once
  grads = gradients(loss * scale) / scale   # compute_gradients
  update_op, should_apply = loss_scale.update(grads)
  if should_apply:                          # apply_gradients
    opt.apply_gradients(grads)              # variables, slots, global_step
  ```

  Between the two calls gradients are unscaled: clip them, accumulate them or
  replace them as without loss scaling.

  In object-based checkpoints the wrapped optimizer is `base_optimizer` and the
  loss scale `loss_scale`, as in every release of TensorFlow that had this.
  """

  def __init__(
    self,
    opt: _Optimizer,
    loss_scale: loss_scale_lib.LossScale | float | str | dict[str, Any],
  ) -> None:
    """Wraps an optimizer.

    Args:
      opt: The optimizer that applies the gradients.
      loss_scale: What `get` takes: a LossScale, a number for a fixed one,
        'dynamic' or a config.

    Raises:
      ValueError: `opt` is no such optimizer, or `loss_scale` is None or none
        that `get` takes.
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
    super().__init__(getattr(opt, "_use_locking", False), opt.get_name())
    self._optimizer = opt
    self._loss_scale = scale
    self._track_trackable(opt, "base_optimizer")
    self._track_trackable(scale, "loss_scale")

  def compute_gradients(
    self,
    loss: tf.Tensor | Callable[[], tf.Tensor],
    var_list: Any = None,
    gate_gradients: int = _Optimizer.GATE_OP,
    aggregation_method: int | None = None,
    colocate_gradients_with_ops: bool = False,
    grad_loss: tf.Tensor | None = None,
  ) -> list[tuple[gradients.Gradient, tf.Variable]]:
    """Computes the gradients of a loss, scaled on the way.

    Args:
      loss: A floating-point tensor, or a function that returns one (when
        eager it must be a function).
      var_list: The variables to differentiate by; by default the graph's
        trainable ones, or those that `loss` reads when it is a function.
      gate_gradients: One of GATE_NONE, GATE_OP and GATE_GRAPH.
      aggregation_method: A value of `tf.AggregationMethod`.
      colocate_gradients_with_ops: Whether gradients go where their ops are.
      grad_loss: The gradient of what is minimized by `loss`, if not ones.

    Returns:
      (gradient, variable) pairs: the gradients unscaled, each of its
      variable's shape and dtype, or None.
    """
    # Read once: another worker may change it between two reads.
    loss_scale = tf.cast(self._loss_scale(), tf.float32)
    scaled = self._optimizer.compute_gradients(
      gradients.scale(loss, loss_scale),
      var_list=var_list,
      gate_gradients=gate_gradients,
      aggregation_method=aggregation_method,
      colocate_gradients_with_ops=colocate_gradients_with_ops,
      grad_loss=grad_loss,
    )
    scaled_grads = [grad for grad, _ in scaled]
    variables = [var for _, var in scaled]
    return list(zip(gradients.unscale(scaled_grads, loss_scale), variables))

  def apply_gradients(
    self,
    grads_and_vars: _GradsAndVars,
    global_step: tf.Variable | None = None,
    name: str | None = None,
  ) -> tf.Operation | None:
    """Applies gradients, unless the loss scale finds that they should not be.

    Args:
      grads_and_vars: (gradient, variable) pairs, the gradients unscaled.
      global_step: A variable that is to grow by 1 when gradients are applied.
      name: The returned op's name; by default that of the wrapped optimizer.

    Returns:
      An op that does the step and updates the loss scale; None when eager,
      where that has happened. A step that is left out changes no variable, no
      slot and not `global_step`.

    Raises:
      TypeError: A gradient is not floating-point (nor complex, as its variable
        is), and the loss scale is not a `FixedLossScale`.
      ValueError: In a cross-replica context of a `tf.distribute` strategy.
    """
    if tf.distribute.in_cross_replica_context():
      raise ValueError(
        "apply_gradients() must be called in a replica context, but was called "
        "in a cross-replica context: call it in the function that you pass to "
        "Strategy.run()."
      )
    grads_and_vars = tuple(grads_and_vars)
    with _train_ops_left_out():
      if _is_inert(self._loss_scale):
        # As if unwrapped, so that variables are named as if unwrapped.
        step = self._optimizer.apply_gradients(
          grads_and_vars, global_step, name
        )
      else:
        _check_dtypes(grads_and_vars)
        step = tf.distribute.get_replica_context().merge_call(
          self._apply_across_replicas,
          args=(grads_and_vars, global_step, name),
        )
    _add_train_op(step)
    return step

  def _apply_across_replicas(
    self,
    strategy: tf.distribute.Strategy,
    grads_and_vars: tuple[Any, ...],
    global_step: Any,
    name: str | None,
  ) -> tf.Operation | None:
    """Does a step, once for all replicas."""
    name = self.get_name() if name is None else name
    grads = [grad for grad, _ in grads_and_vars]
    variables = [var for _, var in grads_and_vars] + [global_step]

    def apply_on_each_replica() -> Any:
      return strategy.group(
        strategy.extended.call_for_each_replica(
          self._optimizer.apply_gradients,
          args=(grads_and_vars, global_step, f"{name}-wrapped"),
        )
      )

    def apply_if(should_apply: bool | tf.Tensor) -> Any:
      if isinstance(should_apply, (bool, np.bool_)):
        return apply_on_each_replica() if should_apply else None
      v1 = any(map(control_flow.is_ref_variable, variables))
      return control_flow.cond(
        should_apply, apply_on_each_replica, tf.no_op, v1
      )

    ops = self._update_and_apply(grads, apply_if)
    if tf.executing_eagerly():
      return None
    return tf.group([op for op in ops if op is not None], name=name)

  def _update_and_apply(
    self, grads: list[Any], apply_if: Callable[[bool | tf.Tensor], Any]
  ) -> tuple[Any, ...]:
    """Updates the loss scale, then applies gradients if it says so.

    Args:
      grads: The gradients, of all replicas.
      apply_if: Applies them where it is given True.

    Returns:
      What both gave; None for what has happened.
    """
    update_op, should_apply = self._loss_scale.update(grads)
    return apply_if(should_apply), update_op

  def get_name(self) -> str:
    """Returns the name of the wrapped optimizer."""
    return self._optimizer.get_name()

  def get_slot(self, var: tf.Variable, name: str) -> tf.Variable | None:
    """Returns the wrapped optimizer's slot `name` for `var`, or None."""
    return self._optimizer.get_slot(var, name)

  def get_slot_names(self) -> list[str]:
    """Returns the names of the wrapped optimizer's slots."""
    if tracking.is_checkpointing():
      return []  # The wrapped optimizer is tracked, and answers for itself.
    return self._optimizer.get_slot_names()

  def variables(self) -> list[tf.Variable]:
    """Returns the variables of the wrapped optimizer and of the loss scale.

    Those of the current graph, that is; the loss scale's come last.
    """
    return [*self._optimizer.variables(), *self._loss_scale._weights.values()]

  def __repr__(self) -> str:
    return (
      f"MixedPrecisionLossScaleOptimizer({self._optimizer!r}, "
      f"{self._loss_scale!r})"
    )


def _is_inert(loss_scale: loss_scale_lib.LossScale) -> bool:
  """Whether `update` is known to do nothing: a subclass may override it."""
  return type(loss_scale).update is loss_scale_lib.FixedLossScale.update


def _check_dtypes(grads_and_vars: _GradsAndVars) -> None:
  """Raises a TypeError if a gradient has a dtype that cannot be its own."""
  for grad, var in grads_and_vars:
    dtype = getattr(grad, "dtype", None)
    if dtype is None:
      continue
    dtype = tf.as_dtype(dtype).base_dtype
    if not dtype.is_floating and not (dtype.is_complex and _is_complex(var)):
      raise TypeError(
        f"The gradient of {getattr(var, 'name', var)} must be of the "
        f"variable's dtype or another floating-point one, but is of "
        f"{dtype.name}: {grad!r}. Cast it by tf.cast(gradient, "
        "variable.dtype), or leave the variable out."
      )


def _is_complex(var: Any) -> bool:
  return tf.as_dtype(getattr(var, "dtype", tf.float32)).is_complex


@contextlib.contextmanager
def _train_ops_left_out() -> Iterator[None]:
  """Removes from TRAIN_OP what is added meanwhile and no session can run.

  `Optimizer.apply_gradients` adds its op from wherever it is called. From
  inside a cond that op cannot be run by itself; under v2 control flow it lives
  in another graph, and a MetaGraph with it cannot be imported. An argument of
  `apply_gradients` would replace this function.
  """
  # A branch of a v2 cond shares the collections of the graph around it, and
  # other threads may add to them meanwhile.
  ops = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAIN_OP)
  before = set(map(id, ops))
  yield
  for op in [op for op in ops if id(op) not in before and not _is_runnable(op)]:
    with _REMOVING:  # Nobody else removes ops, which shifts the others.
      # By identity: a tensor may be in there, which compares by its elements.
      for i, other in enumerate(ops):
        if other is op:
          del ops[i]
          break


def _add_train_op(op: Any) -> None:
  """Adds an op to the TRAIN_OP collection, if a session can run it."""
  if tf.executing_eagerly():
    return
  op = op.op if isinstance(op, tf.Tensor) else op
  ops = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAIN_OP)
  if _is_runnable(op) and not any(op is other for other in ops):
    ops.append(op)


def _is_runnable(op: Any) -> bool:
  """Returns whether a session of the current graph can run an op or tensor."""
  graph = graphs.current_graph()
  op = op.op if isinstance(op, tf.Tensor) else op
  return (
    isinstance(op, tf.Operation)
    and op.graph is graph
    and graph.is_fetchable(op)
  )
