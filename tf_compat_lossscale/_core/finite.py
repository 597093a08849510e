# SPDX-License-Identifier: Apache-2.0
"""The check that tensors hold no infinity and no NaN, at little cost.

The sum of a tensor that holds an infinity or a NaN is not finite. So if the
sums are finite, the tensors are. A sum reads a tensor once and writes nothing;
an element-wise check writes a bool for each element. The elements are checked
only if a sum is not finite: because an element is not, or because finite
elements add up to more than the dtype holds. The answer is exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import control_flow

# The number of elements that one op concatenates. Fewer would take more ops;
# more would keep one core busy while the others wait. Up to that number in all,
# a check of the elements is cheaper than sums and a cond.
_FEW_ELEMENTS = 1 << 14
# The number of tensors that one op concatenates. TensorFlow's time to optimize
# a graph grows with the square of an op's inputs.
_MANY_TENSORS = 128


def are_finite(values: Iterable[tf.Tensor]) -> tf.Tensor:
  """Returns whether tensors hold no infinity and no NaN.

  Args:
    values: Dense tensors of floating-point or complex dtypes, of any shapes.

  Returns:
    A bool scalar; True if there are no tensors or no elements.
  """
  values = _join_small(values)

  def check_elements() -> tf.Tensor:
    return _all([_is_finite(value) for value in values])

  counts = [value.shape.num_elements() for value in values]
  few = None not in counts and sum(counts) <= _FEW_ELEMENTS
  # A debugger reports a sum that overflows as an error.
  if few or control_flow.are_values_checked():
    return check_elements()
  quick = _are_sums_finite(values)
  # A session may feed the constants that the sums are made of.
  if control_flow.is_known(quick):
    return check_elements()
  return control_flow.cond(quick, lambda: tf.constant(True), check_elements)


def _join_small(values: Iterable[tf.Tensor]) -> list[tf.Tensor]:
  """Concatenates small tensors, because an op costs more than a few elements.

  Tensors are joined if their shapes are known and they share a device, a dtype
  and all axes but the first.
  """
  joined = []
  groups: dict[Any, list[tf.Tensor]] = {}
  for value in values:
    shape = value.shape
    count = shape.num_elements()
    if count is None or count > _FEW_ELEMENTS:
      joined.append(value)
    else:
      device = "" if tf.executing_eagerly() else value.device
      # A list, because TensorFlow 1's sizes of axes have no hash.
      key = (value.dtype, device, shape.rank, *shape.as_list()[1:])
      groups.setdefault(key, []).append(value)
  for group in groups.values():
    for members in _split(group):
      if len(members) == 1:
        joined += members
      elif members[0].shape.rank:
        joined.append(tf.concat(members, 0))
      else:
        joined.append(tf.stack(members))
  return joined


def _split(group: list[tf.Tensor]) -> list[list[tf.Tensor]]:
  """Splits tensors into lists of what one op concatenates."""
  parts: list[list[tf.Tensor]] = []
  elements = 0
  for value in group:
    count = value.shape.num_elements()
    elements += count
    if not parts or elements > _FEW_ELEMENTS or len(parts[-1]) == _MANY_TENSORS:
      parts.append([])
      elements = count
    parts[-1].append(value)
  return parts


def _are_sums_finite(values: list[tf.Tensor]) -> tf.Tensor:
  """Returns whether the sums are finite: True only if the tensors are."""
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
  """Returns whether every element is finite, as a bool scalar."""
  if values.dtype.is_complex:
    return _all(
      [_is_finite(tf.math.real(values)), _is_finite(tf.math.imag(values))]
    )
  finite = tf.math.is_finite(values)
  return finite if finite.shape.rank == 0 else tf.reduce_all(finite)


def _all(flags: list[tf.Tensor]) -> tf.Tensor:
  """Returns the conjunction of bool scalars."""
  if len(flags) == 1:
    return flags[0]
  return tf.reduce_all(flags) if flags else tf.constant(True)
