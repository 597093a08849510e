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
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import control_flow

# Up to this number of elements in all, one op concatenates them, and a check of
# the elements is cheaper than sums and a cond.
_FEW_ELEMENTS = 1 << 14
# Of more elements, one op concatenates this number. Fewer would take more ops;
# more would keep one core busy while the others wait.
_PART_ELEMENTS = 1 << 12
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
  values = list(values)
  if len(values) > 1:
    values = [part.value for part in join_small(values)]
  # A debugger reports a sum that overflows as an error.
  if _are_few(values) or control_flow.are_values_checked():
    return are_elements_finite(values)
  quick = _are_sums_finite(values)
  # A session may feed the constants that the sums are made of.
  if control_flow.is_known(quick):
    return are_elements_finite(values)
  return control_flow.cond(
    quick,
    lambda: tf.constant(True),
    lambda: are_elements_finite(values),
  )


def _are_few(values: list[tf.Tensor]) -> bool:
  counts = [value.shape.num_elements() for value in values]
  return None not in counts and sum(counts) <= _FEW_ELEMENTS


class Joined(NamedTuple):
  """Tensors that were concatenated.

  Attributes:
    value: The concatenation; if there is one tensor, that tensor.
    positions: For each tensor, its position among the tensors that were given.
    rows: For each tensor, the length of its first axis; 1 for a scalar. Empty
      if there is one tensor.
  """

  value: tf.Tensor
  positions: list[int]
  rows: list[int]


def join_small(
  values: Iterable[tf.Tensor], for_branch: bool = False
) -> list[Joined]:
  """Concatenates small tensors, because an op costs more than a few elements.

  Tensors are joined if their shapes are known and they share a device, a dtype
  and all axes but the first. For the inputs of a branch, larger parts are
  joined: each input costs more than it gains that several cores concatenate.
  """
  values = list(values)
  few = for_branch or _are_few(values)
  most = _FEW_ELEMENTS if few else _PART_ELEMENTS
  parts: list[list[int]] = []  # The positions of what one op concatenates.
  # What tensors of a part share -> the last such part, and its elements.
  last: dict[Any, tuple[list[int], int]] = {}
  for i, value in enumerate(values):
    shape = value.shape
    count = shape.num_elements()
    if count is None or count > most:
      parts.append([i])
      continue
    device = "" if tf.executing_eagerly() else value.device
    # A list, because TensorFlow 1's sizes of axes have no hash.
    key = (value.dtype, device, shape.rank, *shape.as_list()[1:])
    part, total = last.get(key, (None, 0))
    if part is None or total + count > most or len(part) == _MANY_TENSORS:
      part, total = [], 0
      parts.append(part)
    part.append(i)
    last[key] = part, total + count
  return [_join([values[i] for i in part], part) for part in parts]


def _join(values: list[tf.Tensor], positions: list[int]) -> Joined:
  if len(values) == 1:
    return Joined(values[0], positions, [])
  if values[0].shape.rank:
    rows = [value.shape.as_list()[0] for value in values]
    return Joined(tf.concat(values, 0), positions, rows)
  return Joined(tf.stack(values), positions, [1] * len(values))


def are_each_finite(joined: list[Joined]) -> tf.Tensor:
  """Returns which tensors hold no infinity and no NaN.

  This takes few ops for many tensors: all ops in a branch cost, also those of a
  branch that does not run.

  Returns:
    A bool for each of the tensors that `join_small` got, in their order.
  """
  flags: list[tf.Tensor] = []
  positions: list[int] = []
  for part in joined:
    positions += part.positions
    if not part.rows:
      flags.append(tf.reshape(are_elements_finite([part.value]), [1]))
      continue
    good = _is_each_element_finite(part.value)
    if part.value.shape.rank > 1:
      good = tf.reduce_all(good, list(range(1, part.value.shape.rank)))
    bad = tf.cumsum(tf.cast(~good, tf.int32))
    ends = np.cumsum(part.rows)
    counts = tf.gather(tf.concat([[0], bad], 0), [0, *ends])
    flags.append(tf.equal(counts[1:], counts[:-1]))
  return tf.gather(tf.concat(flags, 0), np.argsort(positions))


class _Axes(dict[int, tf.Tensor]):
  """All axes of a tensor by its rank: a constant for each rank, not tensor."""

  def __missing__(self, rank: int) -> tf.Tensor:
    self[rank] = tf.constant(list(range(rank)), tf.int32)
    return self[rank]


def _are_sums_finite(values: list[tf.Tensor]) -> tf.Tensor:
  """Returns whether the sums are finite: True only if the tensors are."""
  sums: dict[tf.DType, list[tf.Tensor]] = {}
  axes = _Axes()
  for value in values:
    if value.shape.rank is None:
      value = tf.reshape(value, [-1])
    total = tf.raw_ops.Sum(input=value, axis=axes[value.shape.rank])
    sums.setdefault(value.dtype, []).append(total)
  return are_elements_finite([tf.add_n(totals) for totals in sums.values()])


def are_elements_finite(values: list[tf.Tensor]) -> tf.Tensor:
  """Returns whether every element of tensors is finite, as a bool scalar."""
  flags, axes = [], _Axes()
  for value in values:
    if value.shape.rank is None:
      value = tf.reshape(value, [-1])
    finite = _is_each_element_finite(value)
    if finite.shape.rank:
      finite = tf.raw_ops.All(input=finite, axis=axes[finite.shape.rank])
    flags.append(finite)
  if len(flags) == 1:
    return flags[0]
  # `tf.reduce_all` would take four ops more to find the axis of a list.
  return tf.raw_ops.All(input=flags, axis=[0]) if flags else tf.constant(True)


def _is_each_element_finite(values: tf.Tensor) -> tf.Tensor:
  if not values.dtype.is_complex:
    return tf.math.is_finite(values)
  real, imag = tf.math.real(values), tf.math.imag(values)
  return tf.math.is_finite(real) & tf.math.is_finite(imag)
