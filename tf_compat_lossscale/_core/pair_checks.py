# SPDX-License-Identifier: Apache-2.0
"""Checks of the (gradient, variable) pairs that `apply_gradients` gets."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import missing_gradients


def read(grads_and_vars: Iterable[Any]) -> tuple[Any, ...]:
  """Returns the (gradient, variable) pairs of this replica.

  A gradient that other replicas have and this one lacks is zero.

  Args:
    grads_and_vars: The pairs that `apply_gradients` got.

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
  return missing_gradients.fill(pairs)


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
  values = [getattr(grad, "values", grad) for grad in grads]
  if tf.executing_eagerly():
    return not any(np.any(tf.convert_to_tensor(x)) for x in values)
  types = [x.op.type if tf.is_tensor(x) else "Const" for x in values]
  return {*types} <= {"Const", "Fill", "ZerosLike"}


def has_ref_variable(variables: Iterable[Any]) -> bool:
  """Returns whether a variable is a TensorFlow 1 reference variable.

  The dtype of a reference variable differs from its base dtype.
  """
  dtypes = [getattr(variable, "dtype", None) for variable in variables]
  return any(
    isinstance(dtype, tf.DType) and dtype.base_dtype != dtype
    for dtype in dtypes
  )
