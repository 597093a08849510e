# SPDX-License-Identifier: Apache-2.0
"""Pure functions of gradients: scale a loss, unscale, check for finiteness.

A gradient is a dense tensor, a `tf.IndexedSlices` or None. Of an IndexedSlices,
the values are scaled and checked. None stays None and counts as finite.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Iterable
import functools
from typing import Any
from typing import overload
from typing import TypeAlias

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import finite
from tf_compat_lossscale._core.tf import autograph
from tf_compat_lossscale._core.tf import control_flow

__all__ = [
  "Gradient",
  "NamedGradients",
  "all_finite",
  "all_replicas_finite",
  "float32_variable_storage_getter",
  "name_gradients",
  "scale",
  "unscale",
]
__dir__ = functools.partial(sorted, __all__)


Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices | None

# The reciprocal of a greater float32 is no normal number, so TensorFlow rounds
# it to 0.
_LARGEST_SCALE = 2.0**126


class NamedGradients(list[Any]):
  """A list of gradients that knows more than its elements.

  Attributes:
    names: The names of the gradients' variables, for messages.
    finite: What `all_replicas_finite` returns for this list, if the caller of
      `update` knows that already; a bool scalar or None.
  """

  def __init__(
    self,
    grads: Iterable[Any],
    names: Iterable[str] = (),
    finite: tf.Tensor | None = None,
  ) -> None:
    """Creates a list of gradients, or of per-replica values of gradients.

    TensorFlow makes copies without names.
    """
    super().__init__(grads)
    self.names = tuple(names)
    self.finite = finite


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
    loss_scale: A float32 scalar. One above 2**126 counts as 2**126, here and in
      `unscale`: float32 has no normal number that is its reciprocal.

  Returns:
    The scaled loss, of the shape and dtype of `loss`. If `loss` is a function,
    a function that returns the scaled loss.
  """
  return scale_by(loss, find_factor(loss_scale))


def find_factor(loss_scale: tf.Tensor) -> tf.Tensor:
  """Returns the loss scale, at most 2**126, as a float32 scalar.

  The minimum is that of float64, which the graph rewrite leaves as it is. In
  float32, the rewrite would compute it in float16 if it does so with the loss.
  There, 65536 is an infinity, its reciprocal is 0, and all unscaled gradients
  would be 0.
  """
  with tf.name_scope(control_flow.NAME_SCOPE):
    wide = tf.minimum(tf.cast(loss_scale, tf.float64), _LARGEST_SCALE)
    return tf.cast(wide, tf.float32)


def scale_by(loss: Any, factor: tf.Tensor) -> Any:
  """Does what `scale` does, by the factor that `find_factor` returned."""
  if callable(loss):
    return lambda: scale_by(autograph.convert(loss)(), factor)
  with tf.name_scope(control_flow.NAME_SCOPE):
    return loss * tf.cast(factor, loss.dtype)


def unscale(grads: Iterable[Gradient], loss_scale: tf.Tensor) -> list[Any]:
  """Multiplies gradients by the reciprocal of the loss scale.

  The rule for each gradient, by dtype:

  ```
  factor = min(loss_scale, 2**126)
  if grad is float16 or bfloat16:
    grad = cast(cast(grad, float32) * (1 / factor), dtype)
  else:
    grad = grad * (1 / cast(factor, dtype))
  ```

  In float16 itself, the reciprocal of 2**25 would be 0.

  Args:
    grads: Gradients of a scaled loss.
    loss_scale: The float32 scalar that `scale` got.

  Returns:
    The gradients of the loss itself, each of its own shape and dtype.
  """
  return unscale_by(grads, find_factor(loss_scale))


def unscale_by(grads: Iterable[Gradient], factor: tf.Tensor) -> list[Any]:
  """Does what `unscale` does, by the factor that `find_factor` returned."""
  with tf.name_scope(control_flow.NAME_SCOPE):
    reciprocals: dict[tf.DType, tf.Tensor] = {}

    def unscale_values(values: tf.Tensor) -> tf.Tensor:
      dtype = values.dtype
      if dtype in (tf.float16, tf.bfloat16):
        return tf.cast(unscale_values(tf.cast(values, tf.float32)), dtype)
      if dtype not in reciprocals:
        reciprocals[dtype] = 1.0 / tf.cast(factor, dtype)
      # Graph optimizers multiply the factors of a product in an order of their
      # own, and the reciprocal times a small gradient would be 0. They leave
      # this op where it is.
      return tf.math.multiply_no_nan(values, reciprocals[dtype])

    return [map_values(unscale_values, grad) for grad in grads]


def map_values(function: Callable[[Any], Any], grad: Any) -> Any:
  """Returns a gradient whose values a function of a tensor has changed.

  The function gets the values of an IndexedSlices. None stays None.
  """
  if isinstance(grad, tf.IndexedSlices):
    values = function(grad.values)
    return tf.IndexedSlices(values, grad.indices, grad.dense_shape)
  return None if grad is None else function(grad)


def float32_variable_storage_getter(
  getter: Callable[..., Any],
  name: str,
  shape: Any = None,
  dtype: Any = None,
  initializer: Any = None,
  *args: Any,
  trainable: bool | None = None,
  **kwargs: Any,
) -> Any:
  """Returns a half-precision variable's value; the variable itself is float32.

  It is a `custom_getter` of `tf.compat.v1.variable_scope`, for graphs that
  compute in float16. In float16 itself, small updates of a weight would be
  rounded away. The gradient of the cast brings each gradient to float32, so the
  optimizer, its slots and checkpoints are those of float32 training.

  ```
  with tf.variable_scope(
    "model", custom_getter=gradients.float32_variable_storage_getter
  ):
    w = tf.get_variable("w", [4, 1], tf.float16)  # A float16 tensor.
  ```

  Variables that are not trainable keep their dtype. The rule is from NVIDIA's
  "Training With Mixed Precision" guide for TensorFlow 1.

  Args:
    getter: What creates the variable; TensorFlow passes it.
    name: The variable's name.
    shape: The variable's shape.
    dtype: The dtype that the program asks for; float32 by default.
    initializer: A function, an initializer, a tensor or an array.
    *args: The getter's other arguments.
    trainable: Whether the variable is trained; None means True.
    **kwargs: The getter's other keyword arguments.

  Returns:
    The variable; or, if it is trainable and `dtype` is float16 or bfloat16, a
    tensor of that dtype with the value of the float32 variable.
  """
  wanted = tf.as_dtype(tf.float32 if dtype is None else dtype)
  is_half = wanted in (tf.float16, tf.bfloat16) and trainable is not False
  if is_half and isinstance(initializer, (tf.Tensor, np.ndarray, np.generic)):
    initializer = tf.cast(initializer, tf.float32)
  variable = getter(
    name,
    shape,
    tf.float32 if is_half else dtype,
    initializer,
    *args,
    trainable=trainable,
    **kwargs,
  )
  return tf.cast(variable, wanted) if is_half else variable


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
  numbered = number_names(names)
  return {
    name: grad for name, grad in zip(numbered, leaves) if grad is not None
  }


def number_names(names: Iterable[str]) -> tuple[str, ...]:
  """Returns names that are unique: eager variables may share a name.

  One that is not unique ends in its position, counted from 0.
  """
  names = list(names)
  counts = collections.Counter(names)
  taken = {name for name in names if counts[name] == 1}
  found = []
  for i, name in enumerate(names):
    unique = name
    while counts[name] > 1 and (unique == name or unique in taken):
      unique = f"{unique} {i}"
    taken.add(unique)
    found.append(unique)
  return tuple(found)


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
  found = []
  for grad in tf.nest.flatten(grads):
    if grad is None:
      continue
    value = grad.values if isinstance(grad, tf.IndexedSlices) else grad
    if not isinstance(value, tf.Tensor):
      value = tf.convert_to_tensor(value)
    if value.dtype.is_floating or value.dtype.is_complex:
      found.append(value)
  return found


def all_replicas_finite(grads: Any) -> tf.Tensor:
  """Returns whether no gradient of any replica holds an infinity or a NaN.

  If `grads` is a `NamedGradients` whose `finite` is known, that is the answer.

  Args:
    grads: A nest of gradients; under a `tf.distribute` strategy, a nest of
      per-replica gradients.

  Returns:
    A bool scalar, the same for all replicas.

  Raises:
    ValueError: In a replica context.
  """
  known: tf.Tensor | None = getattr(grads, "finite", None)
  if known is not None:
    return known
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
  flags = strategy.extended.call_for_each_replica(
    lambda of_replica: tf.cast(all_finite(of_replica), tf.float32),
    args=(grads,),
  )
  count = strategy.reduce(tf.distribute.ReduceOp.SUM, flags, axis=None)
  return tf.equal(count, strategy.num_replicas_in_sync)


def name_faults(
  grads: Any,
) -> tuple[tf.Tensor, Callable[[], tf.Tensor]]:
  """Returns `all_replicas_finite` of gradients, and a function of its reasons.

  Returns:
    A pair: a bool scalar, and a function that returns the names of the
    gradients that are not finite, a vector of strings. The function may be
    called in a branch of a cond.

  Raises:
    ValueError: In a replica context.
  """
  named = name_gradients(grads)
  known = getattr(grads, "finite", None) is not None
  if known or tf.distribute.has_strategy():

    def find_each() -> tf.Tensor:
      return tf.stack([all_replicas_finite([x]) for x in named.values()])

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
