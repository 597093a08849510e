# SPDX-License-Identifier: Apache-2.0
"""Pure functions of gradients: scale a loss, unscale, check for finiteness.

A gradient is a dense tensor, a `tf.IndexedSlices` or None. Of an IndexedSlices,
the values are scaled and checked. None stays None and counts as finite.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from typing import Any
from typing import overload
from typing import TypeAlias

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import agreements
from tf_compat_lossscale._core import finite
from tf_compat_lossscale._core import step_records
from tf_compat_lossscale._core.tf import autograph
from tf_compat_lossscale._core.tf import control_flow

__all__ = [
  "Gradient",
  "NamedGradients",
  "all_finite",
  "all_replicas_finite",
  "name_gradients",
  "scale",
  "unscale",
]


def __dir__() -> list[str]:
  """Returns the names of the API."""
  return sorted(__all__)


Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices | None


class NamedGradients(list[Any]):
  """A list of gradients with the names of their variables, for messages.

  Attributes:
    names: The names, in the order of the gradients.
    agreement: How workers agree whether the gradients are finite; None if each
      worker has the same gradients, or is alone.
    was_checked: Whether `all_replicas_finite` got this list.
    finite: What `all_replicas_finite` returns for this list, if the caller of
      `update` knows that already; a bool scalar or None.
  """

  def __init__(
    self,
    grads: Iterable[Any],
    names: Iterable[str] = (),
    agreement: agreements.Agreement | None = None,
    finite: tf.Tensor | None = None,
  ) -> None:
    """Creates a list.

    Args:
      grads: Gradients, or per-replica values of gradients.
      names: A name for each gradient. TensorFlow makes copies without names.
      agreement: How workers agree, or None.
      finite: Whether the gradients of all replicas and workers are finite, or
        None.
    """
    super().__init__(grads)
    self.names = tuple(names)
    self.agreement = agreement
    self.finite = finite
    self.was_checked = False

  def check_agreed(self, loss_scale: Any) -> None:
    """Checks that the update of a loss scale kept to the agreement.

    Args:
      loss_scale: The loss scale whose `update` got this list.

    Raises:
      RuntimeError: `update` did not pass this list to `all_replicas_finite`.
    """
    if self.agreement is not None and not self.was_checked:
      raise RuntimeError(
        f"{loss_scale!r} cannot agree with other workers: its update() must "
        "pass the very list that it gets to gradients.all_replicas_finite()."
      )


@overload
def scale(
  loss: Callable[[], tf.Tensor], loss_scale: tf.Tensor
) -> Callable[[], tf.Tensor]: ...


@overload
def scale(loss: tf.Tensor, loss_scale: tf.Tensor) -> tf.Tensor: ...


def scale(
  loss: tf.Tensor | Callable[[], tf.Tensor], loss_scale: tf.Tensor
) -> tf.Tensor | Callable[[], tf.Tensor]:
  """Multiplies a loss by the loss scale, in the dtype of the loss.

  Args:
    loss: A floating-point tensor, or a function of no arguments that returns a
      floating-point tensor.
    loss_scale: A float32 scalar.

  Returns:
    The scaled loss, of the shape and dtype of `loss`. If `loss` is a function,
    a function that returns the scaled loss.
  """
  if callable(loss):
    return lambda: scale(autograph.convert(loss)(), loss_scale)
  with tf.name_scope(control_flow.NAME_SCOPE):
    return loss * tf.cast(loss_scale, loss.dtype)


def unscale(grads: Iterable[Gradient], loss_scale: tf.Tensor) -> list[Any]:
  """Multiplies gradients by the reciprocal of the loss scale.

  The rule for each gradient, by dtype:

  ```
  if grad is float16 or bfloat16:
    grad = cast(cast(grad, float32) * (1 / loss_scale), dtype)
  else:
    grad = grad * (1 / cast(loss_scale, dtype))
  ```

  In float16 itself, the reciprocal of 2**25 would be 0.

  Args:
    grads: Gradients of a scaled loss.
    loss_scale: The float32 scalar that the loss was multiplied by.

  Returns:
    The gradients of the loss itself, each of its own shape and dtype.
  """
  grads = list(grads)
  if all(grad is None for grad in grads):
    return grads
  with tf.name_scope(control_flow.NAME_SCOPE):
    reciprocal = 1.0 / loss_scale
    reciprocals = {tf.float32: reciprocal}

    def unscale_values(values: tf.Tensor) -> tf.Tensor:
      dtype = values.dtype
      if dtype in reciprocals:
        return values * reciprocals[dtype]
      if dtype in (tf.float16, tf.bfloat16):
        return tf.cast(tf.cast(values, tf.float32) * reciprocal, dtype)
      reciprocals[dtype] = 1.0 / tf.cast(loss_scale, dtype)
      return values * reciprocals[dtype]

    def unscale_gradient(grad: Gradient) -> Gradient:
      if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(
          unscale_values(grad.values), grad.indices, grad.dense_shape
        )
      return None if grad is None else unscale_values(grad)

    return [unscale_gradient(grad) for grad in grads]


def name_gradients(grads: Any) -> dict[str, Any]:
  """Returns the gradients of a nest by the names of their variables.

  Args:
    grads: A nest of gradients, or per-replica values of gradients.

  Returns:
    Name -> gradient, without None. If `grads` is no `NamedGradients`, or names
    are not unique, the gradient's position in the nest is part of the name.
  """
  leaves = tf.nest.flatten(grads)
  names = getattr(grads, "names", ())
  if len(names) != len(leaves):
    names = ["gradient"] * len(leaves)
  numbered = step_records.number_names(names)
  return {
    name: grad for name, grad in zip(numbered, leaves) if grad is not None
  }


def all_finite(grads: Any) -> tf.Tensor:
  """Returns whether no gradient of a nest holds an infinity or a NaN.

  Args:
    grads: Any nest of gradients. None, tensors without elements and tensors of
      whole numbers count as finite.

  Returns:
    A bool scalar.
  """
  with tf.name_scope(control_flow.NAME_SCOPE):
    return finite.are_finite(_list_values(grads))


def _list_values(grads: Any) -> list[tf.Tensor]:
  """Returns the tensors of a nest of gradients that can overflow."""
  values = [
    grad.values if isinstance(grad, tf.IndexedSlices) else grad
    for grad in tf.nest.flatten(grads)
    if grad is not None
  ]
  values = [
    value if isinstance(value, tf.Tensor) else tf.convert_to_tensor(value)
    for value in values
  ]
  return [
    value
    for value in values
    if value.dtype.is_floating or value.dtype.is_complex
  ]


def all_replicas_finite(grads: Any) -> tf.Tensor:
  """Returns whether no gradient of any replica holds an infinity or a NaN.

  If `grads` is a `NamedGradients` with an agreement, the answer is that of all
  workers.

  Args:
    grads: A nest of gradients; under a `tf.distribute` strategy, a nest of
      per-replica gradients.

  Returns:
    A bool scalar, the same for all replicas.

  Raises:
    ValueError: In a replica context.
  """
  if not isinstance(grads, NamedGradients):
    return _are_replicas_finite(grads)
  grads.was_checked = True
  if grads.finite is not None:
    return grads.finite
  own = _are_replicas_finite(grads)
  return own if grads.agreement is None else grads.agreement.all_finite(own)


def name_faults(
  grads: Any,
) -> tuple[tf.Tensor, Callable[[], tf.Tensor]]:
  """Returns `all_replicas_finite` of gradients, and a function of its reasons.

  Args:
    grads: As of `all_replicas_finite`.

  Returns:
    A pair: a bool scalar, and a function that returns the names of the
    gradients that are not finite, a vector of strings. The function may be
    called in a branch of a cond.

  Raises:
    ValueError: In a replica context.
  """
  agreement = getattr(grads, "agreement", None)
  named = name_gradients(grads)
  known = getattr(grads, "finite", None) is not None
  if agreement is not None or known or tf.distribute.has_strategy():

    def find_each() -> tf.Tensor:
      of_one = [
        NamedGradients([g], agreement=agreement) for g in named.values()
      ]
      return tf.stack([all_replicas_finite(grad) for grad in of_one])

    finite_at_all = all_replicas_finite(grads)
  else:
    named = {name: grad for name, grad in named.items() if _list_values(grad)}
    with tf.name_scope(control_flow.NAME_SCOPE):
      values = _list_values(list(named.values()))
      joined = finite.join_small(values, for_branch=True)

    def find_each() -> tf.Tensor:
      return finite.are_each_finite(joined)

    finite_at_all = all_finite([part.value for part in joined])

  def find_names() -> tf.Tensor:
    if not named:
      return tf.zeros([0], tf.string)
    return tf.boolean_mask(list(named), ~find_each())

  return finite_at_all, find_names


def _are_replicas_finite(grads: Any) -> tf.Tensor:
  """Returns whether the gradients of this worker's replicas are finite."""
  if not tf.distribute.has_strategy():
    return all_finite(grads)
  _check_cross_replica()
  strategy = tf.distribute.get_strategy()
  # Strategies reduce sums of floats, not conjunctions of bools.
  flags = strategy.extended.call_for_each_replica(
    lambda of_replica: tf.cast(all_finite(of_replica), tf.float32),
    args=(grads,),
  )
  count = strategy.reduce(tf.distribute.ReduceOp.SUM, flags, axis=None)
  return tf.equal(count, strategy.num_replicas_in_sync)


def _check_cross_replica() -> None:
  """Raises a ValueError in a replica context."""
  if not tf.distribute.in_cross_replica_context():
    raise ValueError(
      "LossScale.update() must be called in a cross-replica context, but was "
      "called in a replica context: pass it to "
      "tf.distribute.get_replica_context().merge_call(), or let the optimizer "
      "call it."
    )
