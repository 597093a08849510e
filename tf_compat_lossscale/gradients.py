"""Pure functions over gradients: scale a loss, unscale, check for finiteness.

A gradient is a dense tensor, a `tf.IndexedSlices` (its values are then what is
scaled and checked) or None (which stays None and is always finite).
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from typing import Any
from typing import TypeAlias

import tensorflow.compat.v2 as tf

# Op names are no contract, but users fetch tensors by name: everything made
# here sits under one name that nobody gives to an op of their own.
NAME_SCOPE = "LossScaling"

Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices | None


def scale(
  loss: tf.Tensor | Callable[[], tf.Tensor], loss_scale: tf.Tensor
) -> tf.Tensor | Callable[[], tf.Tensor]:
  """Multiplies a loss by the loss scale, in the dtype of the loss.

  Args:
    loss: A floating-point tensor, or a function of no arguments that returns
      one.
    loss_scale: A float32 scalar.

  Returns:
    The scaled loss, of the shape and dtype of `loss`; a function where `loss`
    is one.
  """
  if callable(loss):
    return lambda: scale(loss(), loss_scale)
  with tf.name_scope(NAME_SCOPE):
    return loss * tf.cast(loss_scale, loss.dtype)


def unscale(grads: Iterable[Gradient], loss_scale: tf.Tensor) -> list[Gradient]:
  """Multiplies gradients by the reciprocal of the loss scale.

  A gradient of less than 32 bits is unscaled in float32 and cast back: in
  float16 the reciprocal of 2**25 would be 0.

  Args:
    grads: Gradients of a scaled loss.
    loss_scale: The float32 scalar that the loss was multiplied by.

  Returns:
    The gradients of the loss itself, each of its own shape and dtype.
  """
  grads = list(grads)
  if all(grad is None for grad in grads):
    return grads
  with tf.name_scope(NAME_SCOPE):
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


def all_finite(grads: Any) -> tf.Tensor:
  """Whether no gradient of a nest holds an infinity or a NaN.

  Args:
    grads: Any nest of gradients; None and tensors without elements count as
      finite, and so does every tensor of whole numbers.

  Returns:
    A bool scalar.
  """
  with tf.name_scope(NAME_SCOPE):
    flags = []
    for grad in tf.nest.flatten(grads):
      if grad is None:
        continue
      values = grad.values if isinstance(grad, tf.IndexedSlices) else grad
      if not isinstance(values, tf.Tensor):
        values = tf.convert_to_tensor(values)
      flags += _finite_flags(values)
    if not flags:
      return tf.constant(True)
    if len(flags) == 1:
      return flags[0]
    return tf.reduce_all(flags)


def all_replicas_finite(grads: Any) -> tf.Tensor:
  """Whether no gradient of any replica holds an infinity or a NaN.

  Args:
    grads: A nest of gradients, of per-replica ones under a `tf.distribute`
      strategy.

  Returns:
    A bool scalar, the same for all replicas.

  Raises:
    ValueError: In a replica context.
  """
  if not tf.distribute.has_strategy():
    return all_finite(grads)
  if not tf.distribute.in_cross_replica_context():
    raise ValueError(
      "LossScale.update() must be called in a cross-replica context, but was "
      "called in a replica context: pass it to "
      "tf.distribute.get_replica_context().merge_call(), or let the optimizer "
      "call it."
    )
  strategy = tf.distribute.get_strategy()
  # Strategies reduce sums of floats, not conjunctions of bools.
  finite = strategy.extended.call_for_each_replica(
    lambda of_replica: tf.cast(all_finite(of_replica), tf.float32),
    args=(grads,),
  )
  count = strategy.reduce(tf.distribute.ReduceOp.SUM, finite, axis=None)
  return tf.equal(count, strategy.num_replicas_in_sync)


def _finite_flags(values: tf.Tensor) -> list[tf.Tensor]:
  """Bool scalars that are all True where `values` is finite."""
  if values.dtype.is_floating:
    return [tf.reduce_all(tf.math.is_finite(values))]
  if values.dtype.is_complex:
    parts = (tf.math.real(values), tf.math.imag(values))
    return [flag for part in parts for flag in _finite_flags(part)]
  return []
