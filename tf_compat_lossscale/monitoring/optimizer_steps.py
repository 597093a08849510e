# SPDX-License-Identifier: Apache-2.0
"""Observes the steps of one optimizer: eager steps and steps of functions.

An optimizer has at most one `OptimizerSteps`. The optimizer's monitors own it,
and so do the functions that were traced since it was made. So a monitor that is
made later finds the steps of these functions.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
import threading
from typing import Any
import weakref

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import eager_steps
from tf_compat_lossscale._core.tf import graphs
from tf_compat_lossscale.monitoring import device_state
from tf_compat_lossscale.monitoring import states
from tf_compat_lossscale.monitoring import step_gradients
from tf_compat_lossscale.monitoring.steps import State
from tf_compat_lossscale.monitoring.steps import Step

# Several threads may take steps, and others may ask for them.
_LOCK = threading.RLock()


class OptimizerSteps:
  """The steps of one optimizer since this object was made.

  Attributes:
    attempted: How many steps there were.
    skipped: Of these, how many were skipped.
    variables: Weak references to the variables of the last step.
  """

  def __init__(self, steps: eager_steps.EagerSteps) -> None:
    """Begins to observe.

    Args:
      steps: The steps of the optimizer.
    """
    self.attempted = 0
    self.skipped = 0
    self.variables: tuple[Callable[[], Any], ...] = ()
    self._steps = steps
    self._log: collections.deque[Step] = collections.deque(
      maxlen=device_state.CAPACITY
    )
    self._state: device_state.DeviceState | None = None
    self._of_device = (0, 0)  # The steps that were taken from `_state`.
    self._probes: weakref.WeakSet[device_state.FunctionProbe] = (
      weakref.WeakSet()
    )
    self._wishes: weakref.WeakKeyDictionary[Any, int] = (
      weakref.WeakKeyDictionary()
    )
    steps.observer = self
    steps.take_unseen()  # Only steps from now on count.

  def __deepcopy__(self, memo: dict[int, Any]) -> OptimizerSteps:
    """Returns this object: it observes one optimizer, not its copies."""
    return self

  def add_monitor(self, monitor: Any, measure_every: int) -> None:
    """Adds a monitor, which this object does not own.

    Args:
      monitor: The monitor.
      measure_every: How often it wants the gradients of good steps measured, in
        steps; 0 if it wants no gradients.
    """
    with _LOCK:
      self._wishes[monitor] = measure_every
      if self._state is not None:
        self._state.set_measure_every(self._measure_every)

  @property
  def _measure_every(self) -> int:
    """The shortest interval that a monitor wants; 0 if none wants any."""
    return min(filter(None, self._wishes.values()), default=0)

  def begin(self, loss_scale: Any, global_step: Any) -> Any:
    """Returns the state before a step, which `end` needs.

    Args:
      loss_scale: The LossScale of the step.
      global_step: A variable or None.
    """
    return states.stack_state(loss_scale, global_step)

  def end(self, begun: Any, loss_scale: Any, record: Any) -> Any:
    """Takes note of a step; in a `tf.function`, returns an op that does so.

    Args:
      begun: What `begin` returned, or None.
      loss_scale: The LossScale of the step.
      record: A `step_records.Record`.
    """
    self.variables = record.variables
    after = states.stack_state(loss_scale, record.global_step)
    if begun is None:
      # A step that is always applied changes the global step alone.
      begun = after - tf.constant([0, 0, 1, 0], tf.float64)
    gradients = device_state.list_gradients(record)
    if tf.executing_eagerly():
      with _LOCK:
        self._note(bool(record.applied), begun, after, gradients)
      return None
    applied = tf.convert_to_tensor(record.applied)
    return self._write(applied, begun, after, gradients)

  def _note(
    self,
    applied: bool,
    before: tf.Tensor,
    after: tf.Tensor,
    gradients: list[step_gradients.Gradient],
  ) -> None:
    """Takes note of an eager step."""
    self._drain()
    every = self._measure_every
    is_due = every and (self.attempted + 1) % every == 0
    contents: step_gradients.Measured = {}
    if gradients and every and (is_due or not applied):
      rows = [step_gradients.measure([x.value]).numpy() for x in gradients]
      labels = [x.label for x in gradients]
      contents = step_gradients.decode(labels, np.concatenate(rows))
    self._append(
      Step(
        applied,
        State.decode(after.numpy()),
        State.decode(before.numpy()),
        **contents,
      )
    )

  def _append(self, step: Step) -> None:
    """Adds a step to the log, with the next number."""
    self.attempted += 1
    self.skipped += not step.applied
    step = step._replace(number=self.attempted, skipped=self.skipped)
    self._log.append(step)

  def _write(
    self,
    applied: tf.Tensor,
    before: tf.Tensor,
    after: tf.Tensor,
    gradients: list[step_gradients.Gradient],
  ) -> tf.Operation:
    """Returns an op of a function that takes note of a step."""
    with _LOCK:
      if self._state is None:
        self._state = device_state.DeviceState(self._measure_every)
      # If no monitor wants gradients, the probe has none.
      wanted_ever = gradients if self._measure_every else []
      probe = device_state.FunctionProbe(self, self._state, wanted_ever)
      self._probes.add(probe)
      self._steps.holders.add(probe)
      _keep(probe)
    number, wanted = self._state.write(applied, before, after)
    return tf.group(*probe.write(number, applied, wanted, wanted_ever))

  def _drain(self) -> None:
    """Moves the steps of functions to the log."""
    if self._state is None:
      return
    rows = self._state.take()
    if not rows:
      return
    every = self._measure_every
    measured: dict[int, step_gradients.Measured] = {}
    # Reading the probes takes much longer than reading rows.
    if any(not x.applied or (every and x.number % every == 0) for x in rows):
      for probe in list(self._probes):
        measured.update(probe.read())
    attempted, skipped = self._of_device
    for row in rows:
      # Rows that were overwritten count, though nothing else is known of them.
      missed = row.number - attempted - 1
      skips = row.skipped - skipped
      applied = _was_applied(row, missed, skips)
      self.attempted += missed
      self.skipped += skips - (not applied)
      contents = measured.get(row.number, {})
      self._append(row._replace(applied=applied, **contents))
      attempted, skipped = row.number, row.skipped
    self._of_device = attempted, skipped

  def take(self, seen: int, loss_scale: Any, global_step: Any) -> list[Step]:
    """Returns the steps after the first `seen` ones, as far as they are known.

    Args:
      seen: A number of steps.
      loss_scale: The loss scale, for the steps of functions that were traced
        before this object was made.
      global_step: The global step for these steps; by default, the last one
        that `apply_gradients` got, if any.
    """
    with _LOCK:
      self._drain()
      if self._steps.has_unobserved:
        self._add_unobserved(self.attempted == seen, loss_scale, global_step)
      return [step for step in self._log if step.number > seen]

  def _add_unobserved(
    self, is_next: bool, loss_scale: Any, global_step: Any
  ) -> None:
    """Adds a step of a function that was traced before this object was made.

    Args:
      is_next: Whether a step is to be added if there was one.
      loss_scale: The loss scale.
      global_step: A variable or None.
    """
    applied: bool | None = True
    if self._steps.has_variable:
      applied = self._steps.take_unseen()
    if applied is None or not is_next:
      return
    if global_step is None:
      global_step = self._steps.global_step()
    state = states.stack_state(loss_scale, global_step)
    self._append(Step(applied, State.decode(state.numpy())))


def find(optimizer: Any) -> OptimizerSteps:
  """Returns the observer of an optimizer; makes it first if there is none."""
  with _LOCK:
    steps = eager_steps.find(optimizer)
    observer = steps.observer
    return (
      observer
      if isinstance(observer, OptimizerSteps)
      else OptimizerSteps(steps)
    )


def _was_applied(row: Step, missed: int, skips: int) -> bool:
  """Returns whether the step of a row was applied.

  The counts decide; what the row says is of another step if two steps of
  functions that ran at the same time wrote it.

  Args:
    row: The row.
    missed: The number of steps before it that have no row.
    skips: How many of these steps and of the row's step were skipped.
  """
  if skips == 0:
    return True
  return row.applied and skips <= missed


def _keep(probe: device_state.FunctionProbe) -> None:
  """Makes the function that is traced own a probe, and those around it.

  Any of these functions may live longer than the others.
  """
  graph: Any = tf.compat.v1.get_default_graph()
  while graph is not None and hasattr(graph, "outer_graph"):
    graphs.keep_on_graph(graph, probe, lambda: probe)
    graph = graph.outer_graph
