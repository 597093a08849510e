# SPDX-License-Identifier: Apache-2.0
"""A step with a loss scale, composed of functions.

```
scale = loss_scale()                       # Read once a step.
grads = compute(scale_loss(loss, scale))   # compute_gradients
grads = unscale(grads, scale)
if needs_check():                          # apply_gradients
  take(grads)                              # Check, update, apply or skip.
else:
  apply(grads)
```

Each optimizer with a loss scale composes its step of its own functions and of
those in this module. `take` is called once for all replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from typing import Any
from typing import NamedTuple
from typing import TypeAlias

from absl import logging
import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale import gradients
from tf_compat_lossscale._core import agreements
from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core import horovod
from tf_compat_lossscale._core import pair_checks
from tf_compat_lossscale._core import step_records
from tf_compat_lossscale._core import sync_replicas
from tf_compat_lossscale._core import train_ops
from tf_compat_lossscale._core.tf import autograph
from tf_compat_lossscale._core.tf import control_flow

GradsAndVars: TypeAlias = Iterable[tuple[gradients.Gradient, tf.Variable]]
Pairs: TypeAlias = list[tuple[gradients.Gradient, tf.Variable]]
# Functions of (strategy, pairs, global_step, name): the last two may be None.
# The pairs are per replica if there are any.
ApplyEverywhere: TypeAlias = Callable[[Any, Any, Any, str | None], Any]
Take: TypeAlias = ApplyEverywhere  # Returns the op.
# Returns whether the step is applied, and an op that does the step; eagerly
# None for the op.
Decide: TypeAlias = Callable[
  [Any, Any, Any, str | None], tuple[bool | tf.Tensor, Any]
]


def unscale(pairs: GradsAndVars, scale: tf.Tensor) -> Pairs:
  """Returns (gradient, variable) pairs with unscaled gradients."""
  pairs = list(pairs)
  grads = gradients.unscale([grad for grad, _ in pairs], scale)
  return [(grad, var) for grad, (_, var) in zip(grads, pairs)]


class ScaledStep(NamedTuple):
  """The way in which an optimizer takes a step with its loss scale.

  Attributes:
    owner: The optimizer that the program sees. Its steps are recorded, and
      errors name it.
    loss_scale: The LossScale.
    compute: The method `compute_gradients` of an optimizer that knows no loss
      scale.
    take: Takes a step whose gradients are checked, for all replicas.
    scale_loss: Multiplies a loss, or what a function returns, by the scale.
    unscale: Returns (gradient, variable) pairs with unscaled gradients.
    needs_check: Returns whether gradients are checked before they are applied.
    apply: The method `apply_gradients` of an optimizer that knows no loss
      scale, if `needs_check` may return False.
    read: How a program reads the loss scale, for a warning; "" if it cannot.
  """

  owner: Any
  loss_scale: Any
  compute: Callable[..., GradsAndVars]
  take: Take
  scale_loss: Callable[[Any, tf.Tensor], Any] = gradients.scale
  unscale: Callable[[GradsAndVars, tf.Tensor], Pairs] = unscale
  needs_check: Callable[[], bool] = lambda: True
  apply: Callable[..., Any] | None = None
  read: str = ""

  def compute_gradients(self, loss: Any, *args: Any, **kwargs: Any) -> Pairs:
    """Returns (gradient, variable) pairs of a loss, by way of the scaled loss.

    Args:
      loss: A floating-point tensor, or a function that returns one.
      *args: The other arguments of the optimizer's method.
      **kwargs: Its keyword arguments.
    """
    # One read, for another worker may change the scale between two reads.
    scale = tf.cast(autograph.convert(self.loss_scale)(), tf.float32)
    graph_weights.note_read(self.loss_scale)
    loss = self.scale_loss(loss, scale)
    scaled = autograph.convert(self.compute)(loss, *args, **kwargs)
    pairs = self.unscale(scaled, scale)
    step_records.keep_computed(self.owner, pairs)
    return pairs

  def apply_gradients(
    self,
    grads_and_vars: GradsAndVars,
    global_step: Any = None,
    name: str | None = None,
  ) -> Any:
    """Takes the step, or skips it.

    Args:
      grads_and_vars: (gradient, variable) pairs, with unscaled gradients.
      global_step: A variable or None.
      name: The returned op's name, or None.

    Returns:
      An op that does the step; None when eager.
    """
    pairs = pair_checks.read(grads_and_vars)
    is_unread = graph_weights.note_read(self.loss_scale)
    if is_unread and self.read and not pair_checks.are_zero(pairs):
      logging.warning(
        "%s.apply_gradients: compute_gradients was not called, and nobody read "
        "the loss scale. Call compute_gradients or minimize of this optimizer, "
        "or multiply the loss by %s and divide the gradients by it.",
        type(self.owner).__name__,
        self.read,
      )
    with train_ops.leave_out():
      if self.apply is None or self.needs_check():
        pair_checks.check_dtypes(pairs)
        op = tf.distribute.get_replica_context().merge_call(
          self.take, args=(pairs, global_step, name)
        )
      else:
        # The same call as without a loss scale, so that the variables get the
        # same names.
        op = autograph.convert(self.apply)(pairs, global_step, name)
        step = step_records.Step(True, op, tuple(pairs), global_step)
        step_records.add_in_replica(self.owner, step)
    train_ops.add(op)
    return op


def recorded(owner: Any, decide: Decide) -> Take:
  """Returns a function that takes a step as `decide` does, and records it."""

  def take(
    strategy: Any, pairs: Any, global_step: Any, name: str | None
  ) -> Any:
    applied, op = decide(strategy, pairs, global_step, name)
    step = step_records.Step(applied, op, tuple(pairs), global_step)
    return step_records.add(owner, step)

  return take


def update_then_apply(
  owner: Any, loss_scale: Any, apply: ApplyEverywhere
) -> Take:
  """Returns a function that updates the loss scale, then applies gradients.

  Args:
    owner: The optimizer that takes the step.
    loss_scale: Its LossScale, whose `update` says whether to apply gradients.
    apply: Applies gradients on each replica.
  """

  def decide(
    strategy: Any, pairs: Any, global_step: Any, name: str | None
  ) -> tuple[bool | tf.Tensor, Any]:
    grads = name_gradients(owner, loss_scale, pairs)
    update, answer = autograph.convert(loss_scale.update)(grads)
    grads.check_agreed(loss_scale)
    name = owner.get_name() if name is None else name
    op = apply_if(answer, apply, strategy, pairs, global_step, name)
    return answer, group([op, update], name)

  return recorded(owner, decide)


def name_gradients(
  owner: Any, loss_scale: Any, pairs: GradsAndVars
) -> gradients.NamedGradients:
  """Returns gradients, with their names and with the agreement on them.

  Args:
    owner: The optimizer that takes the step.
    loss_scale: Its LossScale.
    pairs: (gradient, variable) pairs, per replica if there are any.
  """
  return gradients.NamedGradients(
    [grad for grad, _ in pairs],
    step_records.name_variables(pairs),
    find_agreement(owner, loss_scale),
  )


def find_agreement(owner: Any, loss_scale: Any) -> agreements.Agreement | None:
  """Returns how workers agree, or None if they need not."""
  scale = graph_weights.find_owner(loss_scale)
  return agreements.find(scale) or horovod.find_agreement(owner)


def on_each_replica(apply: Callable[..., Any]) -> ApplyEverywhere:
  """Returns a function that applies gradients on each replica.

  Args:
    apply: A method `apply_gradients`, called in replica contexts.
  """

  def apply_everywhere(
    strategy: Any, pairs: Any, global_step: Any, name: str | None
  ) -> Any:
    return strategy.group(
      strategy.extended.call_for_each_replica(
        autograph.convert(apply), args=(pairs, global_step, name)
      )
    )

  return apply_everywhere


def apply_if(
  answer: bool | tf.Tensor,
  apply: ApplyEverywhere,
  strategy: tf.distribute.Strategy,
  pairs: Any,
  global_step: Any,
  name: str,
  named: bool = True,
) -> Any:
  """Applies gradients if they should be applied.

  Args:
    answer: Whether they should, a bool scalar; a Python bool builds no cond.
    apply: Applies gradients on each replica.
    strategy: The strategy.
    pairs: (gradient, variable) pairs, per replica if there are any.
    global_step: A variable or None.
    name: The step's name.
    named: Whether variables are named after the cond: see `control_flow`.

  Returns:
    An op or tensor that applies the gradients; None if that has happened or if
    `answer` is the Python bool False.
  """

  def apply_now() -> Any:
    return apply(strategy, pairs, global_step, f"{name}-wrapped")

  if isinstance(answer, (bool, np.bool_)):
    op = apply_now() if answer else None
  else:
    v1 = pair_checks.has_ref_variable([*(var for _, var in pairs), global_step])
    op = control_flow.cond(answer, apply_now, tf.no_op, v1, named)
  return sync_replicas.set_back(op, pairs, global_step)


def group(ops: Iterable[Any], name: str) -> tf.Operation | None:
  """Returns an op that runs all ops that are not None; None when eager."""
  if tf.executing_eagerly():
    return None
  return tf.group([op for op in ops if op is not None], name=name)
