# SPDX-License-Identifier: Apache-2.0
"""An optimizer that scales the loss for the optimizer that it wraps.

The functions after the class are the parts of a step. `contrib`, `environment`,
`accumulation` and `keras.optimizer` compose their steps of the same parts.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
import dataclasses
import functools
from typing import Any
from typing import NamedTuple
from typing import TypeAlias

from absl import logging
import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale import gradients
from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core import optimizer_kinds
from tf_compat_lossscale._core import pair_checks
from tf_compat_lossscale._core import sync_replicas
from tf_compat_lossscale._core.tf import autograph
from tf_compat_lossscale._core.tf import control_flow
from tf_compat_lossscale._core.tf import graphs
from tf_compat_lossscale._core.tf import optimizers
from tf_compat_lossscale._core.tf import tracking

__all__ = [
  "MixedPrecisionLossScaleOptimizer",
]
__dir__ = functools.partial(sorted, __all__)


_Optimizer: TypeAlias = tf.compat.v1.train.Optimizer
GradsAndVars: TypeAlias = Iterable[tuple[gradients.Gradient, tf.Variable]]
Pairs: TypeAlias = list[tuple[gradients.Gradient, tf.Variable]]


class _OfWrapped:
  """An attribute that programs set, and that the wrapped optimizer has.

  A subclass that sets it before it wraps an optimizer, or an attribute that the
  wrapped optimizer lacks, has it itself.
  """

  def __init__(self, name: str) -> None:
    self._name = name

  def __get__(self, owner: Any, cls: type) -> Any:
    if owner is None:
      return self
    own = vars(owner)
    if self._name in own:
      return own[self._name]
    return getattr(optimizer_kinds.find_inner(owner), self._name)

  def __set__(self, owner: Any, value: Any) -> None:
    own, inner = vars(owner), optimizer_kinds.find_inner(owner)
    if self._name in own or not hasattr(inner, self._name):
      own[self._name] = value
    else:
      setattr(inner, self._name, value)


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

  Attributes of the wrapped optimizer are read through this object. Of those,
  `_lr`, `_learning_rate` and `_momentum` are set through it, too.
  """

  _lr = _OfWrapped("_lr")
  _learning_rate = _OfWrapped("_learning_rate")
  _momentum = _OfWrapped("_momentum")
  _applies_first = False  # See `update_and_apply`.

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
      ValueError: `opt` is no such optimizer, or `get` refuses `loss_scale`, or
        `loss_scale` is None. If the loss scale can change: `opt` is an
        optimizer of Horovod with `backward_passes_per_step` above 1, or a
        `SyncReplicasOptimizer`, which must be outside.
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
    scale = None
    if isinstance(loss_scale, str) and loss_scale == "dynamic":
      scale = optimizer_kinds.find_scale_by_environment(opt)
    if scale is None:
      scale = loss_scale_lib.make(loss_scale)
    optimizer_kinds.warn_if_scaling(type(self).__name__, opt)
    if not _is_inert(scale):
      optimizer_kinds.check_order(opt)
      optimizer_kinds.check_passes(opt)
    super().__init__(optimizers.uses_locking(opt), optimizers.get_name(opt))
    self._wrap(opt, scale)

  def _wrap(
    self, opt: _Optimizer, loss_scale: loss_scale_lib.LossScale
  ) -> None:
    """Sets what is wrapped; `contrib` has other names for it."""
    self._optimizer = opt
    self._loss_scale = loss_scale
    for each in optimizer_kinds.walk(opt):  # The program's own scale wins.
      own = getattr(each, "__dict__", {})
      if own.pop(optimizer_kinds.BY_ENVIRONMENT, None) is not None:
        tracking.track(each, loss_scale, "loss_scale")

  @graph_weights.DefaultProperty
  def loss_scale(self) -> Any:
    """The `LossScale`: call it for the current scale, a float32 scalar."""
    return self._loss_scale

  @graph_weights.DefaultProperty
  def last_step_applied(self) -> tf.Tensor:
    """Whether the step was applied, a bool scalar; False if it was skipped.

    In a graph, also in that of a `tf.function`, the tensor belongs to the last
    call of `apply_gradients` there. To evaluate it runs that step's check of
    the gradients. Eagerly, it is the value of the last eager step. To know of a
    step that a `tf.function` took, return the tensor from the function.

    Raises:
      RuntimeError: There was no step yet in this graph, or eagerly.
    """
    return read_last_applied(self)

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
    scaled, factor = compute_scaled(
      self._loss_scale,
      self._optimizer.compute_gradients,
      loss,
      var_list=var_list,
      grad_loss=grad_loss,
      **how,
    )
    pairs = self._unscale(scaled, factor)
    keep_computed(self, pairs)
    return pairs

  def _unscale(self, pairs: Pairs, factor: tf.Tensor) -> Pairs:
    return unscale(pairs, factor)

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
    pairs = pair_checks.read(grads_and_vars)
    warn_if_unread(self, self._loss_scale, pairs)
    if _is_inert(self._loss_scale):
      return self._apply_unchecked(pairs, global_step, name)
    apply = self._optimizer.apply_gradients
    step = functools.partial(
      update_and_apply, self, self._loss_scale, apply, self._applies_first
    )
    return take_step(step, pairs, global_step, name)

  def _apply_unchecked(
    self, pairs: Any, global_step: Any, name: str | None
  ) -> Any:
    """Applies gradients by the call that a program without loss scale makes.

    So the variables get the same names.
    """
    with graphs.leave_out_of_train_op():
      apply = autograph.convert(self._optimizer.apply_gradients)
      op = apply(list(pairs), global_step, name)
    keep_step_of_replica(self, op, pairs, global_step)
    graphs.add_to_train_op(op)
    return op

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

  def variables(self) -> list[tf.Variable]:
    """Returns the variables of the wrapped optimizer, then the loss scale's.

    The variables are those of the current graph.
    """
    graph_weights.note_read(self._loss_scale)
    weights = graph_weights.list_weights(self._loss_scale)
    inner = optimizers.list_variables(self._optimizer)
    return [*inner, *weights.values()]

  def __getattr__(self, name: str) -> Any:
    """Returns an attribute of the wrapped optimizer.

    Raises:
      AttributeError: Neither optimizer has it.
    """
    inner = optimizer_kinds.find_inner(self)
    return optimizer_kinds.read_of_wrapped(self, inner, name)

  def __dir__(self) -> list[str]:
    """Returns the names of all attributes but `get_slot_names`.

    Writers of checkpoints take an object with that name for the owner of slots.
    """
    return [name for name in super().__dir__() if name != "get_slot_names"]

  def _trackable_children(
    self, save_type: str = "checkpoint", **kwargs: Any
  ) -> dict[str, Any]:
    children: dict[str, Any] = super()._trackable_children(save_type, **kwargs)
    return {**children, **self._list_wrapped()}

  def _lookup_dependency(self, name: str, *args: Any, **kwargs: Any) -> Any:
    found = self._list_wrapped().get(name)
    if found is None:
      found = super()._lookup_dependency(name, *args, **kwargs)
    return found

  def _list_wrapped(self) -> dict[str, Any]:
    """Returns what is wrapped now, by its names in checkpoints."""
    children = {"base_optimizer": self._optimizer}
    owner = graph_weights.find_owner(self._loss_scale)
    if isinstance(owner, tracking.Trackable):
      children["loss_scale"] = owner
    return children

  def __repr__(self) -> str:
    return f"{type(self).__name__}({self._optimizer!r}, {self._loss_scale!r})"


def _is_inert(loss_scale: loss_scale_lib.LossScale) -> bool:
  """Returns whether `update` does nothing: a subclass may redefine it."""
  return type(loss_scale).update is loss_scale_lib.FixedLossScale.update


def compute_scaled(
  loss_scale: Any,
  compute: Callable[..., GradsAndVars],
  loss: Any,
  *args: Any,
  **kwargs: Any,
) -> tuple[Pairs, tf.Tensor]:
  """Returns (gradient, variable) pairs of the scaled loss, and its factor.

  `compute` is the method `compute_gradients` of an optimizer that knows no loss
  scale; it gets the scaled loss and the other arguments.
  """
  graph_weights.note_read(loss_scale)
  # One read, for another worker may change the scale between two reads.
  factor = gradients.find_factor(autograph.convert(loss_scale)())
  scaled = gradients.scale_by(loss, factor)
  return list(autograph.convert(compute)(scaled, *args, **kwargs)), factor


def unscale(pairs: GradsAndVars, factor: tf.Tensor) -> Pairs:
  """Returns (gradient, variable) pairs with unscaled gradients."""
  pairs = list(pairs)
  grads = gradients.unscale_by([grad for grad, _ in pairs], factor)
  return [(grad, var) for grad, (_, var) in zip(grads, pairs)]


def take_step(
  step: Callable[..., Any], pairs: Any, global_step: Any, name: str | None
) -> Any:
  """Takes a step whose gradients are checked, for all replicas together.

  `step` is called in cross-replica context, with the strategy and the other
  arguments. It returns the op that does the step; None when eager.
  """
  pair_checks.check_dtypes(pairs)
  with graphs.leave_out_of_train_op():
    context = tf.distribute.get_replica_context()
    op = context.merge_call(step, args=(list(pairs), global_step, name))
  graphs.add_to_train_op(op)
  return op


def update_and_apply(
  owner: Any,
  loss_scale: loss_scale_lib.LossScale,
  apply: Callable[..., Any],
  applies_first: bool,
  strategy: tf.distribute.Strategy,
  pairs: Any,
  global_step: Any,
  name: str | None,
) -> Any:
  """Updates the loss scale, and applies the gradients or skips the step.

  The update says whether to apply the gradients. If `applies_first`, they are
  applied before, if they are finite, as in `tf.contrib`: the variables of the
  optimizer are named by the cond in which they are created.

  The owner is the optimizer that the program sees; by default, it also names
  the returned op. The other arguments are those of `apply_if`.

  Returns:
    An op that does so; None when eager.
  """
  name = owner.get_name() if name is None else name
  grads = list_gradients(loss_scale, pairs)
  update = autograph.convert(loss_scale.update)
  if applies_first:
    answer = grads.finite = gradients.all_replicas_finite(grads)
    op = apply_if(answer, apply, strategy, pairs, global_step, name)
    updated, _ = update(grads)
  else:
    updated, answer = update(grads)
    op = apply_if(answer, apply, strategy, pairs, global_step, name)
  op = group([op, updated], name)
  keep_step(owner, Step(answer, op, pairs, global_step))
  return op


def list_gradients(
  loss_scale: Any, pairs: GradsAndVars
) -> gradients.NamedGradients:
  """Returns the gradients of pairs, with their names.

  If workers agree (see `distributed.agree`), the list has their common answer.

  `update` of the loss scale gets the list.
  """
  pairs = list(pairs)
  grads = gradients.NamedGradients(
    [grad for grad, _ in pairs], name_variables(pairs)
  )
  owner = graph_weights.find_owner(loss_scale)
  agreement = getattr(owner, graph_weights.AGREEMENT, None)
  if agreement is not None:
    grads.finite = agreement(gradients.all_replicas_finite(grads))
  return grads


def name_variables(pairs: GradsAndVars) -> list[str]:
  """Returns a name for each variable of pairs, for messages."""
  return [str(getattr(var, "name", var)).removesuffix(":0") for _, var in pairs]


def apply_if(
  answer: bool | tf.Tensor,
  apply: Callable[..., Any],
  strategy: tf.distribute.Strategy,
  pairs: Any,
  global_step: Any,
  name: str,
  named: bool = True,
) -> Any:
  """Applies gradients if they should be applied.

  Args:
    answer: Whether they should, a bool scalar; a Python bool builds no cond.
    apply: A method `apply_gradients`, called in the context of each replica.
    strategy: Its replicas apply.
    pairs: (gradient, variable) pairs, per replica if there are any.
    global_step: A variable or None.
    name: The step's name.
    named: Whether variables are named after the cond: see `control_flow`.

  Returns:
    An op or tensor that applies the gradients; None if that has happened or if
    `answer` is the Python bool False.
  """

  apply = autograph.convert(apply)

  def apply_on_each_replica() -> Any:
    return strategy.group(
      strategy.extended.call_for_each_replica(
        apply, args=(pairs, global_step, f"{name}-wrapped")
      )
    )

  if isinstance(answer, (bool, np.bool_)):
    op = apply_on_each_replica() if answer else None
  else:
    answer = tf.convert_to_tensor(answer)
    v1 = pair_checks.has_ref_variable([*(var for _, var in pairs), global_step])
    op = control_flow.cond(answer, apply_on_each_replica, tf.no_op, v1, named)
  return sync_replicas.set_back(op, pairs, global_step)


def group(ops: Iterable[Any], name: str) -> tf.Operation | None:
  """Returns an op that runs all ops that are not None; None when eager."""
  if tf.executing_eagerly():
    return None
  return tf.group([op for op in ops if op is not None], name=name)


class Step(NamedTuple):
  """A call of `apply_gradients` in a graph, for a hook that watches it.

  Attributes:
    applied: Whether the step is applied: a bool scalar, or a Python bool if the
      answer does not depend on the gradients.
    op: The op that does the step; None when eager.
    pairs: The (gradient, variable) pairs, per replica if there are any.
    global_step: The variable that counts the steps that are applied, or None.
    ends: Whether this call ends a step: True, or a bool scalar.
  """

  applied: bool | tf.Tensor
  op: Any
  pairs: Any
  global_step: Any
  ends: bool | tf.Tensor = True


@dataclasses.dataclass
class _Built:
  """What an optimizer has built in one graph.

  Attributes:
    steps: The calls of `apply_gradients`, in their order.
    computed: The (gradient, variable) pairs that `compute_gradients` returned.
    owner: The optimizer, if it has built a step: the program may drop it, but
      those who watch the graph's sessions ask it.
  """

  steps: list[Step] = dataclasses.field(default_factory=list)
  computed: Pairs = dataclasses.field(default_factory=list)
  owner: Any = None


_APPLIED = "_last_step_applied"  # An attribute; it holds the last eager answer.


def find_built(owner: Any, graph: tf.Graph) -> _Built:
  """Returns what an optimizer has built in a graph; see `_Built`."""
  return graphs.keep_on_graph(graph, owner, _Built)


def list_optimizers(graph: tf.Graph) -> list[Any]:
  """Returns the optimizers that take steps which a graph's sessions can run."""
  return [
    built.owner
    for built in graphs.list_states(graph)
    if isinstance(built, _Built)
    and any(
      step.op is not None and graph.is_fetchable(step.op)
      for step in built.steps
    )
  ]


def has_computed(graph: tf.Graph) -> bool:
  """Returns whether an optimizer with a loss scale has computed gradients."""
  found = graphs.list_states(graph)
  return any(isinstance(each, _Built) and each.computed for each in found)


def keep_computed(owner: Any, pairs: Pairs) -> None:
  """Keeps what `compute_gradients` returns in a graph."""
  if not tf.executing_eagerly():
    graph = tf.compat.v1.get_default_graph()
    find_built(owner, graph).computed += pairs


def keep_step(owner: Any, step: Step) -> None:
  """Keeps what `last_step_applied` and hooks read of a step.

  Eagerly, only whether it was applied is kept.
  """
  if tf.executing_eagerly():
    vars(owner)[_APPLIED] = bool(step.applied)
    return
  unwrap = tf.distribute.get_strategy().experimental_local_results
  pairs = tuple((unwrap(grad), var) for grad, var in step.pairs)
  step = step._replace(pairs=pairs, op=getattr(step.op, "op", step.op))
  built = find_built(owner, tf.compat.v1.get_default_graph())
  built.steps.append(step)
  built.owner = owner


def keep_step_of_replica(
  owner: Any, op: Any, pairs: Any, global_step: Any
) -> None:
  """Keeps a step that each replica has applied, once for all replicas."""

  def keep(strategy: Any, op: Any, pairs: Any) -> None:
    op = None if op is None else strategy.experimental_local_results(op)[0]
    keep_step(owner, Step(True, op, pairs, global_step))

  tf.distribute.get_replica_context().merge_call(keep, args=(op, tuple(pairs)))


def read_last_applied(owner: Any) -> tf.Tensor:
  """Returns whether an optimizer's last step was applied, a bool scalar.

  Raises:
    RuntimeError: There was no step yet in this graph, or eagerly.
  """
  if tf.executing_eagerly():
    place, applied = "eager step", vars(owner).get(_APPLIED)
  else:
    place, applied = "step in this graph", None
    graph: Any = tf.compat.v1.get_default_graph()
    while graph is not None and applied is None:
      steps = find_built(owner, graph).steps
      applied = steps[-1].applied if steps else None
      # A branch of a cond is a graph within the graph that has the step.
      graph = getattr(graph, "outer_graph", None)
  if applied is None:
    raise RuntimeError(
      f"{owner!r} has taken no {place}: call minimize() or apply_gradients() "
      "before you read last_step_applied. A step that a tf.function, a branch "
      "of tf.cond or a loop takes is read there: return the tensor."
    )
  return tf.convert_to_tensor(applied)


def warn_if_unread(owner: Any, loss_scale: Any, pairs: GradsAndVars) -> None:
  """Logs a warning, once, if nothing can have scaled the loss."""
  if graph_weights.note_read(loss_scale) and not pair_checks.are_zero(pairs):
    logging.warning(
      "%s.apply_gradients: compute_gradients was not called, and nobody read "
      "the loss scale. Call compute_gradients or minimize of this optimizer, "
      "or multiply the loss by the loss scale and divide the gradients by it.",
      type(owner).__name__,
    )
