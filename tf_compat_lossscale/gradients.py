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

from tf_compat_lossscale._core.tf import control_flow

# In elements. Up to so many, joining a tensor with others costs less than an op
# for it alone; and up to so many, the exact check costs less than a sum and a
# cond.
_MANY_ELEMENTS = 1 << 13
_FEW_ELEMENTS = 1 << 14
# In tensors. The time that TensorFlow takes to optimize a graph grows with the
# square of an op's inputs.
_MANY_TENSORS = 128

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
  with tf.name_scope(control_flow.NAME_SCOPE):
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


def all_finite(grads: Any) -> tf.Tensor:
  """Whether no gradient of a nest holds an infinity or a NaN.

  The answer is exact, and mostly found without looking at every element by
  itself: the sum of a tensor that holds an infinity or a NaN is one, too, so
  where sums are finite, all is. A sum reads a gradient once and writes nothing.
  Only where one is not, since a gradient is bad or because finite elements add
  up to more than the dtype holds, are the elements looked at.

  Args:
    grads: Any nest of gradients; None and tensors without elements count as
      finite, and so does every tensor of whole numbers.

  Returns:
    A bool scalar.
  """
  with tf.name_scope(control_flow.NAME_SCOPE):
    values = [
      grad.values if isinstance(grad, tf.IndexedSlices) else grad
      for grad in tf.nest.flatten(grads)
      if grad is not None
    ]
    values = [
      value if isinstance(value, tf.Tensor) else tf.convert_to_tensor(value)
      for value in values
    ]
    values = _joined(
      value
      for value in values
      if value.dtype.is_floating or value.dtype.is_complex
    )

    def look_at_all() -> tf.Tensor:
      return _all([_is_finite(value) for value in values])

    counts = [value.shape.num_elements() for value in values]
    few = None not in counts and sum(counts) <= _FEW_ELEMENTS
    # A sum may overflow, which a debugger takes for an error.
    if few or control_flow.are_values_checked():
      return look_at_all()
    quick = _are_sums_finite(values)
    if control_flow.is_known(
      quick
    ):  # By constants, for which others may be fed.
      return look_at_all()
    return control_flow.cond(quick, lambda: tf.constant(True), look_at_all)


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


def _joined(values: Iterable[tf.Tensor]) -> list[tf.Tensor]:
  """The same elements in fewer tensors: an op costs more than it does there.

  Those of one device, dtype and shape behind the first axis go together, if
  they are known to be small.
  """
  joined = []
  groups: dict[Any, list[tf.Tensor]] = {}
  for value in values:
    shape = value.shape
    count = shape.num_elements()
    if count is None or count > _MANY_ELEMENTS:
      joined.append(value)
    else:
      device = "" if tf.executing_eagerly() else value.device
      # As a list: in TF 1 behavior a shape's sizes cannot be hashed.
      key = (value.dtype, device, shape.rank, *shape.as_list()[1:])
      groups.setdefault(key, []).append(value)
  for group in groups.values():
    for i in range(0, len(group), _MANY_TENSORS):
      members = group[i : i + _MANY_TENSORS]
      if len(members) == 1:
        joined += members
      elif members[0].shape.rank:
        joined.append(tf.concat(members, 0))
      else:
        joined.append(tf.stack(members))
  return joined


def _are_sums_finite(values: list[tf.Tensor]) -> tf.Tensor:
  """Returns True only if `values` are finite; False if their sums are not."""
  sums: dict[tf.DType, list[tf.Tensor]] = {}
  axes: dict[int, tf.Tensor] = {}
  for value in values:
    rank = value.shape.rank
    if rank is None:
      value, rank = tf.reshape(value, [-1]), 1
    if rank not in axes:
      axes[rank] = tf.constant(list(range(rank)), tf.int32)
    total = tf.raw_ops.Sum(input=value, axis=axes[rank])
    sums.setdefault(value.dtype, []).append(total)
  return _all([_is_finite(tf.add_n(totals)) for totals in sums.values()])


def _is_finite(values: tf.Tensor) -> tf.Tensor:
  """A bool scalar: whether every element is finite."""
  if values.dtype.is_complex:
    return _all(
      [_is_finite(tf.math.real(values)), _is_finite(tf.math.imag(values))]
    )
  finite = tf.math.is_finite(values)
  return finite if finite.shape.rank == 0 else tf.reduce_all(finite)


def _all(flags: list[tf.Tensor]) -> tf.Tensor:
  """The conjunction of bool scalars."""
  if len(flags) == 1:
    return flags[0]
  return tf.reduce_all(flags) if flags else tf.constant(True)
