# SPDX-License-Identifier: Apache-2.0
"""Gradients that some replicas have and others lack.

A loss that does not depend on a variable has the gradient None. If that is so
on some replicas alone, the gradient of these replicas is 0: a sum over replicas
needs a summand of each.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import control_flow


class _Kind(NamedTuple):
  """What the replicas that have a gradient have.

  Attributes:
    dtype: The dtype of the gradient.
    index_dtype: The dtype of the indices, if the gradient is a
      `tf.IndexedSlices`; None if it is dense.
  """

  dtype: tf.DType
  index_dtype: tf.DType | None


def fill(grads_and_vars: Iterable[tuple[Any, Any]]) -> tuple[Any, ...]:
  """Replaces None by zeros, if another replica has a gradient.

  Args:
    grads_and_vars: The (gradient, variable) pairs of this replica.

  Returns:
    The pairs. A gradient that is None on all replicas stays None.
  """
  pairs = tuple(grads_and_vars)
  if tf.distribute.get_strategy().num_replicas_in_sync == 1:
    return pairs
  kinds = tf.distribute.get_replica_context().merge_call(
    _find_kinds, args=([grad for grad, _ in pairs],)
  )
  return tuple(
    (_make_zeros(kind, var), var) if grad is None and kind else (grad, var)
    for kind, (grad, var) in zip(kinds, pairs)
  )


# AutoGraph would only take time.
@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def _find_kinds(
  strategy: tf.distribute.Strategy, grads: Sequence[Any]
) -> list[_Kind | None]:
  """Returns a kind for each gradient that only some replicas have, or None."""
  return [
    _find_kind(strategy.experimental_local_results(grad)) for grad in grads
  ]


def _find_kind(grads: Sequence[Any]) -> _Kind | None:
  """Returns the kind of a gradient, if only some replicas have it."""
  present = [grad for grad in grads if grad is not None]
  if not present or len(present) == len(grads):
    return None
  slices = [grad for grad in present if isinstance(grad, tf.IndexedSlices)]
  is_sparse = len(slices) == len(present)
  return _Kind(
    tf.as_dtype(present[0].dtype).base_dtype,
    slices[0].indices.dtype if is_sparse else None,
  )


def _make_zeros(kind: _Kind, var: tf.Variable) -> Any:
  """Returns a gradient of zeros; an IndexedSlices has no row."""
  with tf.name_scope(control_flow.NAME_SCOPE):
    shape: Any = var.shape
    if not shape.is_fully_defined():
      shape = tf.shape(var)
    if kind.index_dtype is None:
      return tf.zeros(shape, kind.dtype)
    shape = tf.convert_to_tensor(shape, kind.index_dtype)
    return tf.IndexedSlices(
      tf.zeros(tf.concat([[0], shape[1:]], 0), kind.dtype),
      tf.zeros([0], kind.index_dtype),
      shape,
    )
