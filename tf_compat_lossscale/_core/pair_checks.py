# SPDX-License-Identifier: Apache-2.0
"""Checks and completes the pairs that `apply_gradients` gets."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import control_flow


def read(grads_and_vars: Iterable[Any]) -> tuple[Any, ...]:
  """Returns the (gradient, variable) pairs of this replica.

  A gradient that other replicas have and this one lacks is zero.

  Raises:
    ValueError: In a cross-replica context; or `grads_and_vars` is an iterator
      that was read before.
  """
  if tf.distribute.in_cross_replica_context():
    raise ValueError(
      "apply_gradients() must be called in a replica context, but was called "
      "in a cross-replica context: call it in the function that you pass to "
      "Strategy.run()."
    )
  pairs = tuple(grads_and_vars)
  if not pairs and isinstance(grads_and_vars, Iterator):
    raise ValueError(
      f"apply_gradients() got {grads_and_vars!r} without any pairs. If another "
      "optimizer has read the pairs before, such as hvd.DistributedOptimizer "
      "with backward_passes_per_step, then pass it a list: "
      "apply_gradients(list(zip(gradients, variables)))."
    )
  if tf.distribute.get_strategy().num_replicas_in_sync == 1:
    return pairs
  return fill(pairs)


def fill(grads_and_vars: Iterable[tuple[Any, Any]]) -> tuple[Any, ...]:
  """Replaces None by zeros, if another replica has a gradient.

  A loss that does not depend on a variable has the gradient None. If that is so
  on some replicas alone, the gradient of these replicas is 0: a sum over
  replicas needs a summand of each. A gradient that is None on all stays None.
  """
  pairs = tuple(grads_and_vars)

  def find_kinds(strategy: tf.distribute.Strategy, grads: Any) -> Any:
    return [_find_kind(strategy.experimental_local_results(x)) for x in grads]

  kinds = tf.distribute.get_replica_context().merge_call(
    find_kinds, args=([grad for grad, _ in pairs],)
  )
  return tuple(
    (_make_zeros(var, *kind), var) if grad is None and kind else (grad, var)
    for kind, (grad, var) in zip(kinds, pairs)
  )


def _find_kind(grads: Sequence[Any]) -> tuple[tf.DType, tf.DType | None] | None:
  """Returns the dtypes of a gradient, if only some replicas have it.

  The second is that of the indices, None if a replica has a dense gradient.
  """
  present = [grad for grad in grads if grad is not None]
  if not present or len(present) == len(grads):
    return None
  is_sparse = all(isinstance(grad, tf.IndexedSlices) for grad in present)
  indices = present[0].indices.dtype if is_sparse else None
  return tf.as_dtype(present[0].dtype).base_dtype, indices


def _make_zeros(
  var: tf.Variable, dtype: tf.DType, index_dtype: tf.DType | None
) -> Any:
  """Returns a gradient of zeros; an IndexedSlices has no row."""
  with tf.name_scope(control_flow.NAME_SCOPE):
    shape: Any = var.shape
    if not shape.is_fully_defined():
      shape = tf.shape(var)
    if index_dtype is None:
      return tf.zeros(shape, dtype)
    shape = tf.convert_to_tensor(shape, index_dtype)
    rows = tf.zeros(tf.concat([[0], shape[1:]], 0), dtype)
    return tf.IndexedSlices(rows, tf.zeros([0], index_dtype), shape)


def check_dtypes(grads_and_vars: Iterable[tuple[Any, Any]]) -> None:
  """Raises a TypeError if a gradient has a dtype that no gradient can have."""
  for grad, var in grads_and_vars:
    dtype = getattr(grad, "dtype", None)
    if dtype is None:
      continue
    dtype = tf.as_dtype(dtype).base_dtype
    if not dtype.is_floating and not (
      dtype.is_complex
      and tf.as_dtype(getattr(var, "dtype", tf.float32)).is_complex
    ):
      raise TypeError(
        f"The gradient of {getattr(var, 'name', var)} must be of the "
        f"variable's dtype or another floating-point one, but is of "
        f"{dtype.name}: {grad!r}. Cast it by tf.cast(gradient, "
        "variable.dtype), or leave the variable out."
      )


def are_zero(grads_and_vars: Iterable[tuple[Any, Any]]) -> bool:
  """Returns whether all gradients are 0 for sure: programs make slots so."""
  grads = [grad for grad, _ in grads_and_vars if grad is not None]
  return all(_is_zero(getattr(grad, "values", grad)) for grad in grads)


def _is_zero(values: Any) -> bool:
  if tf.executing_eagerly():
    return not np.any(tf.convert_to_tensor(values))
  # A function may get gradients that were computed eagerly, and have no op.
  if isinstance(values, tf.Tensor) and hasattr(values, "numpy"):
    return not np.any(values)
  kind = values.op.type if tf.is_tensor(values) else "Const"
  return kind in ("Const", "Fill", "ZerosLike")


def has_ref_variable(variables: Iterable[Any]) -> bool:
  """Returns whether a variable is a TensorFlow 1 reference variable.

  The dtype of a reference variable differs from its base dtype.
  """
  dtypes = [getattr(variable, "dtype", None) for variable in variables]
  return any(isinstance(x, tf.DType) and x.base_dtype != x for x in dtypes)
