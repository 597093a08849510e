# SPDX-License-Identifier: Apache-2.0
"""Ops that tell a session what a step did.

The ops are in a name scope of their own and change no other op. They measure
the gradients only if the step is skipped, or if a count of steps says so.
"""

from __future__ import annotations

from collections.abc import Iterable
import math
from typing import Any

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import step_records
from tf_compat_lossscale._core.tf import control_flow
from tf_compat_lossscale.monitoring import session_runs
from tf_compat_lossscale.monitoring import states
from tf_compat_lossscale.monitoring import step_gradients
from tf_compat_lossscale.monitoring import steps

# A scope that is entered by its full name takes no name from other ops.
_SCOPE = f"{control_flow.NAME_SCOPE}/monitoring/"
# The length of what is fetched without gradients: applied, and the state.
_WIDTH = 1 + len(steps.State._fields)


class Probe:
  """The ops for one call of `apply_gradients`.

  Attributes:
    step: The op that does the step.
    fetch: The float64 vector to fetch; fetching it runs the step. It has the
      state and all gradients, because a second fetch would cost a session more
      time than many ops do.
  """

  def __init__(
    self, record: step_records.Record, loss_scale: Any, measure_every: int
  ) -> None:
    """Adds the ops to the current graph.

    Args:
      record: The step.
      loss_scale: The LossScale of the step.
      measure_every: The gradients are measured if the step is skipped, and if
        the global step (or, without one, the number of good steps) is a
        multiple of this number. If the number is 0, they are never measured.
    """
    self.step = record.op
    watched = _list_watched(record) if measure_every else []
    self._labels = [x.label for x in watched]
    by_device = step_gradients.group_by_device(watched)
    # Each device measures all of its gradients at once.
    measured = [x for group in by_device.values() for x in group]
    rows_by_id = {id(x): i for i, x in enumerate(measured)}
    self._rows = [rows_by_id[id(x)] for x in watched]
    with tf.compat.v1.name_scope(_SCOPE):
      after = control_flow.make_successor(record.op)
      with tf.control_dependencies([after]):
        state = states.read_state(loss_scale, record.global_step)
      applied = tf.convert_to_tensor(record.applied)
      self._state = tf.stack([tf.cast(applied, tf.float64), *state])
      self.fetch = self._state
      if watched:
        wanted = ~applied | _is_multiple(state, measure_every)
      for device, group in by_device.items():
        values = [x.value for x in group]
        self.fetch = step_gradients.measure_if(
          wanted, _append, self.fetch, [], values, device
        )
    self._values = [x.value for x in watched]

  def choose_fetch(
    self, ancestors: set[tf.Operation], fed: Iterable[tf.Tensor]
  ) -> tf.Tensor:
    """Returns the tensor to fetch in a run that does the step.

    A run that feeds gradients may not compute the other gradients. The probe
    must not make the run compute these, so it measures nothing then.

    Args:
      ancestors: The ops that the run runs.
      fed: The tensors that the run feeds.
    """
    known = {tensor.ref() for tensor in fed}
    runs = (x.op in ancestors or x.ref() in known for x in self._values)
    return self.fetch if all(runs) else self._state

  @staticmethod
  def find_scale(values: np.ndarray) -> float:
    """Returns the loss scale after a step that a session fetched.

    NaN if the step was skipped, or its gradients were measured.
    """
    applied, scale = values.item(0), values.item(1)
    return scale if applied and len(values) == _WIDTH else math.nan

  def decode(self, values: np.ndarray) -> steps.Step:
    """Returns the step that a session fetched."""
    applied, *numbers = values[:_WIDTH].tolist()
    measured: step_gradients.Measured = {}
    if len(values) > _WIDTH:
      rows = values[_WIDTH:].reshape(-1, step_gradients.COLUMNS)
      measured = step_gradients.decode(self._labels, rows[self._rows])
    return steps.Step(bool(applied), steps.State.decode(numbers), **measured)


def stack_state(loss_scale: Any, global_step: Any) -> tf.Tensor:
  """Returns the state of training as a float64 vector."""
  with tf.compat.v1.name_scope(_SCOPE):
    return states.stack_state(loss_scale, global_step)


def _list_watched(record: step_records.Record) -> list[step_gradients.Gradient]:
  """Returns the gradients of a step that a session can read.

  A gradient that `compute_gradients` computed counts only if the step depends
  on that gradient: a probe must not make a session run other ops.
  """
  ancestors = session_runs.list_ancestors([record.op])
  graph = record.op.graph

  def find_value(value: Any) -> tf.Tensor | None:
    if not isinstance(value, tf.Tensor):
      value = _find_read(value, ancestors)
    if value is None or value.op not in ancestors:
      return None
    return value if graph.is_fetchable(value.op) else None

  return step_gradients.list_gradients(record, find_value)


def _find_read(
  variable: Any, ancestors: Iterable[tf.Operation]
) -> tf.Tensor | None:
  """Returns what a step reads of a variable that is passed as a gradient.

  A read op of the probe's own might run after the program has set the variable
  back to 0.

  Args:
    variable: A variable; or a NumPy array, which needs no probe.
    ancestors: The ops that the step runs.
  """
  handle = getattr(variable, "handle", None)
  if handle is None:  # The value of a reference variable is a tensor.
    value = getattr(variable, "value", None)
    return value() if callable(value) else None
  reads = (
    op.outputs[0]
    for op in ancestors
    if op.type == "ReadVariableOp" and op.inputs[0] is handle
  )
  return min(reads, key=lambda x: x.name, default=None)


def _is_multiple(state: steps.State, number: int) -> tf.Tensor:
  """Returns whether a count of steps is a multiple of a number."""
  # A comparison with NaN is False.
  count = state.global_step
  if tf.get_static_value(count) is not None:
    count = state.good_steps
  return tf.equal(tf.math.floormod(count, number), 0)


def _append(fetch: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
  """Returns a vector that has the rows of a matrix at its end."""
  return tf.concat([fetch, tf.reshape(rows, [-1])], 0)
