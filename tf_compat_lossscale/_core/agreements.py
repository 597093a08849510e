# SPDX-License-Identifier: Apache-2.0
"""Agreements: workers that answer alike whether gradients are finite."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import control_flow

_KEY = "_agreement"  # The attribute of a loss scale or of a manager.


class Agreement:
  """A way in which workers find one answer from their own ones.

  Attributes:
    all_reduce: A function of a tensor that returns the sum over all workers.
  """

  def __init__(self, all_reduce: Callable[[tf.Tensor], Any]) -> None:
    """Creates an agreement by an all-reduce."""
    self.all_reduce = all_reduce

  def all_finite(self, finite: tf.Tensor) -> tf.Tensor:
    """Returns whether `finite` is True on all workers, a bool scalar.

    Args:
      finite: This worker's answer, a bool scalar.
    """
    with tf.name_scope(control_flow.NAME_SCOPE):
      found = tf.cast(tf.logical_not(finite), tf.float32)
      return tf.equal(self._reduce(found), 0)

  def totals(self, numbers: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the sums of numbers over all workers, float32 scalars.

    Args:
      numbers: This worker's float32 scalars. They are exchanged one after the
        other: all workers must do so in the same order.
    """
    totals: list[tf.Tensor] = []
    for number in numbers:
      with tf.control_dependencies(totals):
        number = tf.identity(number)
        with tf.name_scope(control_flow.NAME_SCOPE):
          totals.append(self._reduce(number))
    return totals

  def _reduce(self, value: tf.Tensor) -> tf.Tensor:
    """Returns the sum of a scalar over all workers."""
    reduced = tf.convert_to_tensor(self.all_reduce(value))
    if reduced.dtype != value.dtype or reduced.shape.rank not in (0, None):
      raise ValueError(
        f"all_reduce must return a scalar of {value.dtype.name}, as it got, "
        f"but returned {reduced!r}."
      )
    return tf.ensure_shape(reduced, [])


def put(owner: Any, agreement: Agreement | None) -> None:
  """Makes an agreement that of a loss scale or of a manager."""
  # An attribute of a trackable object would be looked at.
  vars(owner)[_KEY] = agreement


def find(owner: Any) -> Agreement | None:
  """Returns the agreement of a loss scale or of a manager, or None."""
  agreement: Agreement | None = getattr(owner, "__dict__", {}).get(_KEY)
  return agreement
