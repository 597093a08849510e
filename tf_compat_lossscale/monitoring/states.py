# SPDX-License-Identifier: Apache-2.0
"""The state of training: the loss scale, and what is counted."""

from __future__ import annotations

import math
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale.monitoring.steps import State


def read_state(loss_scale: Any, global_step: Any) -> State:
  """Returns the state of training as float64 scalars; NaN for what is missing.

  Args:
    loss_scale: A LossScale.
    global_step: A variable or None.
  """
  weights = graph_weights.list_weights(loss_scale)
  return State(
    _read(loss_scale()),
    _read_count(weights.get("good_steps")),
    _read_count(global_step),
    _read_count(weights.get("skipped_steps")),
  )


def stack_state(loss_scale: Any, global_step: Any) -> tf.Tensor:
  """Returns the state of training as a float64 vector: see `read_state`."""
  return tf.stack(list(read_state(loss_scale, global_step)))


def _read(value: Any) -> tf.Tensor:
  """Returns the value of a variable, tensor or number as a float64 scalar."""
  # A plain conversion of a reference variable returns an older read op.
  read_now = getattr(value, "read_value", None)
  value = tf.convert_to_tensor(read_now() if callable(read_now) else value)
  if value.shape.rank != 0:
    value = tf.reshape(value, [])  # A user's loss scale may be of shape [1].
  return tf.cast(value, tf.float64)


def _read_count(value: Any) -> tf.Tensor:
  """Returns a count as a float64 scalar; NaN if a program has no such count."""
  if (
    value is None
    or value.shape.rank
    or not graph_weights.is_numeric(value.dtype)
  ):
    return tf.constant(math.nan, tf.float64)
  return _read(value)
