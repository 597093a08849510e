# SPDX-License-Identifier: Apache-2.0
"""The gradients of a step: which there are, and what they held by role."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import step_records
from tf_compat_lossscale.monitoring import gradient_statistics

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
  found = []
  rows = zip(record.names, record.gradients, record.computed, record.scaled)
  for name, given, computed, scaled in rows:
    changed = [grad for grad, own in zip(computed, given) if grad is not own]
    roles = (("given", given), ("computed", changed), ("scaled", scaled))
    for role, grads in roles:
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


def decode(labels: Sequence[tuple[str, str]], rows: np.ndarray) -> Measured:
  """Returns the contents of gradients.

  Args:
    labels: The role and the name of each gradient.
    rows: A matrix that has, for each, what `gradient_statistics.measure`
      returned.
  """
  found = {}
  for role in dict.fromkeys(role for role, _ in labels):
    places = [i for i, label in enumerate(labels) if label[0] == role]
    names = [labels[i][1] for i in places]
    found[role] = gradient_statistics.decode(names, rows[places])
  return found


def choose(
  wanted: tf.Tensor,
  branches: Sequence[Callable[..., tf.Tensor]],
  inputs: Sequence[tf.Tensor],
  device: str,
) -> tf.Tensor:
  """Adds an `If` op whose branches are functions.

  Args:
    wanted: A bool scalar.
    branches: The function to call if `wanted` is True, and the other one.
    inputs: The arguments of both functions.
    device: The device of the op; "" to let TensorFlow choose.

  Returns:
    The float64 tensor that the branch returned.
  """
  specs = [tf.TensorSpec(x.shape, x.dtype) for x in inputs]
  # AutoGraph would only take time: the functions have no branches.
  then_branch, else_branch = (
    tf.function(branch, autograph=False).get_concrete_function(*specs)
    for branch in branches
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
