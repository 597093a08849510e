# SPDX-License-Identifier: Apache-2.0
"""Variables in which the steps of a `tf.function` leave what they did.

The function writes a row for each step into a ring of rows, so that a loop of
many steps in one call is known step by step. Gradients are measured only if the
step is skipped, or if a count of steps says so: the measuring is a branch of an
`If` op whose branches are functions, as in `probe`. On a good step it costs
nearly the same for hundreds of gradients as for one.
"""

from __future__ import annotations

from concurrent import futures
from typing import Any

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import step_records
from tf_compat_lossscale.monitoring import step_gradients
from tf_compat_lossscale.monitoring.steps import State
from tf_compat_lossscale.monitoring.steps import Step

# The rows of the ring: so many steps between two calls of `take` are known one
# by one.
CAPACITY = 1000

# Columns of the counts: attempted steps, skipped steps, and how often gradients
# of good steps are measured.
_ATTEMPTED, _SKIPPED, _EVERY = range(3)


def list_gradients(
  record: step_records.Record,
) -> list[step_gradients.Gradient]:
  """Returns the gradients of a step that the current context can read."""
  graph = None
  if not tf.executing_eagerly():
    graph = tf.compat.v1.get_default_graph()

  def find_value(value: Any) -> tf.Tensor | None:
    return value if graph is None or value.graph is graph else None

  return step_gradients.list_gradients(record, find_value)


class DeviceState:
  """The variables of one optimizer's steps in functions.

  They belong to no strategy: each step assigns to them once for all replicas.
  """

  def __init__(self, measure_every: int) -> None:
    """Creates the variables.

    Args:
      measure_every: How often the gradients of good steps are measured, in
        steps; 0 for never.
    """
    self._counts = _make_variable(np.array([0, 0, measure_every], np.int64))
    # The step's number, whether it was applied, the steps skipped so far, and
    # the states before and after the step.
    width = 3 + 2 * len(State._fields)
    self._ring = _make_variable(np.zeros([CAPACITY, width], np.float64))
    self._taken = 0

  def list_variables(self) -> list[tf.Variable]:
    """Returns the variables."""
    return [self._counts, self._ring]

  def set_measure_every(self, number: int) -> None:
    """Sets how often the gradients of good steps are measured."""
    counts = self._counts.numpy()
    # We add a difference, because a function may count at the same time.
    self._counts.assign_add([0, 0, number - int(counts[_EVERY])])

  def write(
    self, applied: tf.Tensor, before: tf.Tensor, after: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Writes a row for a step, in a function.

    Args:
      applied: Whether the step was applied, a bool scalar.
      before: The state before the step, a float64 vector.
      after: The state after the step.

    Returns:
      A pair: the step's number, and whether its gradients are wanted.
    """
    skipped = 1 - tf.cast(applied, tf.int64)
    one = tf.stack([tf.ones([], tf.int64), skipped, tf.zeros([], tf.int64)])
    # We read once, because another function may count between two reads.
    counts = tf.convert_to_tensor(self._counts.assign_add(one))
    number, every = counts[_ATTEMPTED], counts[_EVERY]
    facts = tf.stack([number, 1 - skipped, counts[_SKIPPED]])
    row = tf.concat([tf.cast(facts, tf.float64), before, after], 0)
    place = tf.math.floormod(number - 1, CAPACITY)
    self._ring.scatter_nd_update([[place]], [row])
    is_due = tf.equal(tf.math.floormod(number, tf.maximum(every, 1)), 0)
    return number, (every > 0) & (is_due | ~applied)

  def take(self) -> list[Step]:
    """Returns the steps since the last call in their order, without contents.

    Steps that are too long ago are left out, but they have numbers. If
    functions run at the same time, a step may count before another one that has
    not read its number yet. Both then write the same row: its `number` and
    `skipped` belong to each other, and the rest may be of either step.
    """
    # One read of the whole ring takes less time than two reads of parts.
    rows = self._ring.numpy()
    rows = rows[rows[:, 0] > self._taken]
    if not len(rows):
      return []
    rows = rows[np.argsort(rows[:, 0])]
    self._taken = int(rows[-1, 0])
    width = len(State._fields)
    return [
      Step(
        bool(x[1]),
        after=State.decode(x[3 + width :]),
        before=State.decode(x[3 : 3 + width]),
        number=int(x[0]),
        skipped=int(x[2]),
      )
      for x in rows
    ]


class FunctionProbe:
  """The ops and variables for one call of `apply_gradients` in a function.

  The graph of the function keeps the object, so that the variables live as long
  as the function.
  """

  def __init__(
    self,
    owner: Any,
    state: DeviceState,
    gradients: list[step_gradients.Gradient],
  ) -> None:
    """Creates the variables, for each device its own.

    Args:
      owner: An object that is to live as long as this one.
      state: The variables of all steps.
      gradients: The gradients.
    """
    self._owner = owner
    self._state = state
    by_device = step_gradients.group_by_device(gradients)
    self._parts = [_Part(device, own) for device, own in by_device.items()]
    self._labels = [x.label for own in by_device.values() for x in own]

  def list_variables(self) -> list[tf.Variable]:
    """Returns all variables that the function uses."""
    own = [part.variable for part in self._parts]
    return [*self._state.list_variables(), *own]

  def write(
    self,
    number: tf.Tensor,
    applied: tf.Tensor,
    wanted: tf.Tensor,
    gradients: list[step_gradients.Gradient],
  ) -> list[tf.Operation]:
    """Measures the gradients of a step if they are wanted, in a function."""
    return [
      part.write(number, applied, wanted, gradients) for part in self._parts
    ]

  def read(self) -> dict[int, step_gradients.Measured]:
    """Returns by number the steps whose gradients were measured last."""
    blocks = [part.variable.numpy() for part in self._parts]
    found = {}
    for kind in range(2 if blocks else 0):
      numbers = {int(block[kind, 0, 0]) for block in blocks}
      if len(numbers) == 1:
        rows = np.concatenate([block[kind, 1:] for block in blocks])
        found[numbers.pop()] = step_gradients.decode(self._labels, rows)
    return found


class _Part:
  """The gradients of one device, and the variable with their numbers.

  The variable is of shape [2, 1 + number of gradients,
  `step_gradients.COLUMNS`]: for the last skipped step and for the last
  good step that was measured, a row with the step's number and a row for each
  gradient.
  """

  def __init__(
    self, device: str, gradients: list[step_gradients.Gradient]
  ) -> None:
    self._device = device
    shape = [2, 1 + len(gradients), step_gradients.COLUMNS]
    self.variable = _make_variable(np.zeros(shape, np.float64), device)

  def write(
    self,
    number: tf.Tensor,
    applied: tf.Tensor,
    wanted: tf.Tensor,
    gradients: list[step_gradients.Gradient],
  ) -> tf.Operation:
    """Returns an op that measures the gradients if they are wanted."""
    values = [x.value for x in gradients if x.value.device == self._device]
    with tf.device(self._device or None):
      rows = step_gradients.measure_if(
        wanted,
        _add,
        self.variable.read_value(),
        [number, applied],
        values,
        self._device,
      )
      rows = tf.ensure_shape(rows, self.variable.shape)
      return tf.group(self.variable.assign(rows, read_value=False))


def _add(
  old: tf.Tensor, rows: tf.Tensor, number: tf.Tensor, applied: tf.Tensor
) -> tf.Tensor:
  """Returns the rows of a part after a step that is measured."""
  mark = tf.pad(
    tf.reshape(tf.cast(number, tf.float64), [1, 1]),
    [[0, 0], [0, step_gradients.COLUMNS - 1]],
  )
  new = tf.concat([mark, rows], 0)
  return tf.where(applied, tf.stack([old[0], new]), tf.stack([new, old[1]]))


def _make_variable(value: np.ndarray, device: str = "") -> tf.Variable:
  """Returns an eager variable that belongs to no strategy.

  A new thread makes it, because no scope of the caller holds there.
  """

  def make() -> tf.Variable:
    with tf.device(device or None):
      return tf.Variable(value, trainable=False, name="loss_scale_monitor")

  with futures.ThreadPoolExecutor(1) as thread:
    return thread.submit(make).result()
