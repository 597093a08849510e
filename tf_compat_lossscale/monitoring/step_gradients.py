# SPDX-License-Identifier: Apache-2.0
"""The gradients of a step: which there are, and what they hold."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import math
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import finite
from tf_compat_lossscale._core import step_records
from tf_compat_lossscale.monitoring import steps

# The numbers of a gradient: infinities, NaNs, zeros, size, largest magnitude,
# and of the finite magnitudes that are not 0: the sum of log2, the smallest.
COLUMNS = 7

# The contents of gradients, as lists of `steps.Contents` by role. The roles are
# fields of a `steps.Step`.
Measured = dict[str, Any]


class Gradient(NamedTuple):
  """A gradient of a replica.

  Attributes:
    role: Whether the program gave the gradient to `apply_gradients`, or
      `compute_gradients` computed it, or it is not unscaled yet.
    name: The name of the gradient's variable; unique in its step.
    value: The tensor.
  """

  role: str
  name: str
  value: tf.Tensor

  @property
  def label(self) -> tuple[str, str]:
    """The role and the name."""
    return self.role, self.name


def list_gradients(
  record: step_records.Record, find_value: Callable[[Any], tf.Tensor | None]
) -> list[Gradient]:
  """Returns the gradients of a step.

  Args:
    record: The step.
    find_value: Takes a gradient, or the values of an IndexedSlices. Returns the
      tensor to measure; None to leave the gradient out.
  """
  given, scaled = record.gradients, record.scaled
  changed = [
    [grad for grad, own in zip(computed, passed) if grad is not own]
    for computed, passed in zip(record.computed, given)
  ]
  roles = {"given": given, "computed": changed, "scaled": scaled}
  found = []
  for role, by_variable in roles.items():
    for name, grads in zip(record.names, by_variable):
      for grad in grads:
        if isinstance(grad, tf.IndexedSlices):
          grad = grad.values
        value = None if grad is None else find_value(grad)
        if value is not None:
          found.append(Gradient(role, name, value))
  return found


def group_by_device(gradients: Iterable[Gradient]) -> dict[str, list[Gradient]]:
  """Returns the gradients of each device, by the device's name."""
  found: dict[str, list[Gradient]] = {}
  for gradient in gradients:
    found.setdefault(gradient.value.device, []).append(gradient)
  return found


def measure(values: Sequence[tf.Tensor]) -> tf.Tensor:
  """Measures tensors.

  Args:
    values: Dense tensors of numbers, of any shapes; at least one.

  Returns:
    A float64 tensor of shape [number of tensors, `COLUMNS`].
  """
  return tf.stack([_measure_one(value) for value in values])


def decode(labels: Sequence[tuple[str, str]], rows: np.ndarray) -> Measured:
  """Returns the contents of gradients, added up over replicas.

  Args:
    labels: The role and the name of each gradient.
    rows: What `measure` returned for them.
  """
  found: dict[str, list[steps.Contents]] = {}
  for (role, name), row in zip(labels, rows.tolist()):
    infinities, nans, zeros, size = map(int, row[:4])
    count = size - zeros - infinities - nans
    typical = 2.0 ** (row[5] / count) if count > 0 else 0.0
    found.setdefault(role, []).append(
      steps.Contents(
        *(name, infinities, nans, zeros, size, row[4], typical, row[6])
      )
    )
  return {role: steps.add_replicas(x) for role, x in found.items()}


def measure_if(
  wanted: tf.Tensor,
  add: Callable[..., tf.Tensor],
  old: tf.Tensor,
  others: Sequence[tf.Tensor],
  values: Sequence[tf.Tensor],
  device: str,
) -> tf.Tensor:
  """Adds what gradients hold to a tensor, if a bool scalar is True.

  The branches of the `If` op are functions. Unlike a v1 cond, that op leaves no
  mark in a collection of the graph; and unlike that and a lowered `tf.cond`, no
  op of its branches costs a step that does not run the branch. A good step pays
  for the call and for each input. So the gradients are joined as the check for
  finiteness joins them, and graph optimizers let both share the joined tensors.

  Args:
    wanted: The bool scalar.
    add: Returns the new tensor. Takes `old`, what `measure` returns for the
      gradients, and `others`.
    old: A float64 tensor.
    others: Further tensors that `add` needs.
    values: The gradients, as `measure` takes them.
    device: The device of the op; "" to let TensorFlow choose.

  Returns:
    What `add` returns; `old` if `wanted` is False.
  """
  joined = finite.join_small(values)
  count = len(joined)

  def change(old: tf.Tensor, *inputs: tf.Tensor) -> tf.Tensor:
    rows = measure(finite.split_joined(joined, inputs[:count]))
    return add(old, rows, *inputs[count:])

  def keep(old: tf.Tensor, *inputs: tf.Tensor) -> tf.Tensor:
    del inputs
    return tf.identity(old)

  inputs = [old, *(part.value for part in joined), *others]
  specs = [tf.TensorSpec(x.shape, x.dtype) for x in inputs]
  # AutoGraph would only take time: the functions have no branches.
  then_branch, else_branch = (
    tf.function(branch, autograph=False).get_concrete_function(*specs)
    for branch in (change, keep)
  )
  with tf.device(device or None):
    (result,) = tf.raw_ops.StatelessIf(
      cond=wanted,
      input=inputs,
      Tout=[tf.float64],
      then_branch=then_branch,
      else_branch=else_branch,
    )
  return result


def _measure_one(value: tf.Tensor) -> tf.Tensor:
  """Returns the numbers of a tensor, of shape [`COLUMNS`]."""
  if value.dtype.is_complex:
    real, imag = tf.math.real(value), tf.math.imag(value)
    infinite = tf.math.is_inf(real) | tf.math.is_inf(imag)
    nan = tf.math.is_nan(real) | tf.math.is_nan(imag)
    magnitude = tf.maximum(tf.abs(real), tf.abs(imag))
  else:
    if not value.dtype.is_floating:
      value = tf.cast(value, tf.float64)
    infinite, nan = tf.math.is_inf(value), tf.math.is_nan(value)
    magnitude = tf.abs(value)
  # A cast to float64 is exact. Some dtypes, such as bfloat16, lack other ops.
  magnitude = tf.cast(magnitude, tf.float64)
  finite = tf.where(infinite | nan, tf.zeros_like(magnitude), magnitude)
  is_some = finite > 0
  ones = tf.ones_like(finite)
  some = tf.where(is_some, finite, ones)
  # The maximum of no elements is an infinity below 0.
  largest = tf.maximum(tf.reduce_max(finite), 0.0)
  smallest = tf.reduce_min(tf.where(is_some, finite, ones * tf.float64.max))
  numbers = [
    _count(infinite),
    # A complex number with an infinite and a NaN part counts as infinite.
    _count(nan & ~infinite),
    _count(tf.equal(magnitude, 0)),
    tf.cast(tf.size(magnitude, tf.int64), tf.float64),
    largest,
    tf.reduce_sum(tf.math.log(some)) / math.log(2),
    tf.where(largest > 0, smallest, 0.0),
  ]
  return tf.stack(numbers)


def _count(flags: tf.Tensor) -> tf.Tensor:
  """Returns how many flags are True, a float64 scalar."""
  return tf.reduce_sum(tf.cast(flags, tf.float64))
