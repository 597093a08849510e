# SPDX-License-Identifier: Apache-2.0
"""Whether the last step of an optimizer was applied, outside of graphs.

Such a step is eager, or a `tf.function` does it.

In a `tf.function`, a variable takes the answer. Checkpoints do not have that
variable: they stay the same with and without it. A SavedModel has it, because a
function that uses an untracked variable cannot be exported.
"""

from __future__ import annotations

import threading
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import graphs

_NO_STEP = -1  # The variable's value before the first step.

_KEY = "_eager_steps"  # The attribute of an optimizer.
_LOCK = threading.RLock()  # Several threads may trace one optimizer's step.


class EagerSteps:
  """What one optimizer knows of its steps outside of graphs."""

  def __init__(self) -> None:
    """Starts with no step."""
    self._value: bool | tf.Tensor | None = None
    self._variable: tf.Variable | None = None

  def __deepcopy__(self, memo: dict[int, Any]) -> EagerSteps:
    """Returns an object with the same last step."""
    clone = EagerSteps()
    clone._value = self.read() if tf.executing_eagerly() else None
    return clone

  # AutoGraph would make a tensor of the last step's answer.
  @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
  def set(self, applied: bool | tf.Tensor) -> None:
    """Takes note of an eager step, or of steps that are always applied."""
    if self._variable is None:
      self._value = applied
    else:
      self._variable.assign(tf.cast(applied, tf.int64))

  @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
  def trace(self, applied: bool | tf.Tensor) -> tf.Operation:
    """Returns an op of a `tf.function` that takes note of a step."""
    variable = self._find_variable()
    assign = variable.assign(tf.cast(applied, tf.int64), read_value=False)
    return tf.group(assign)

  def _find_variable(self) -> tf.Variable:
    """Returns the variable for steps of functions; creates it first."""
    with _LOCK:
      if self._variable is None:
        # A function cannot own a variable.
        with tf.init_scope(), tf.name_scope(""):
          value = _NO_STEP if self._value is None else int(self._value)
          self._variable = tf.Variable(
            value,
            trainable=False,
            name="last_step_applied",
            dtype=tf.int64,
            synchronization=tf.VariableSynchronization.AUTO,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
          )
        self._value = None
      return self._variable

  def read(self) -> tf.Tensor | None:
    """Returns whether the last step was applied, eagerly; None if none was."""
    if self._variable is None:
      value = self._value
      return None if value is None else tf.convert_to_tensor(value)
    number = int(tf.convert_to_tensor(self._variable))
    return None if number == _NO_STEP else tf.constant(bool(number))

  def list_variables(self) -> dict[str, Any]:
    """Returns the variable that functions use and that no checkpoint has."""
    return {} if self._variable is None else {"_of_steps": self._variable}


def find(optimizer: Any) -> EagerSteps:
  """Returns what an optimizer knows of its steps outside of graphs."""
  attributes: dict[str, Any] = vars(optimizer)
  steps: EagerSteps | None = attributes.get(_KEY)
  if steps is None:
    # An attribute of a Keras optimizer would be tracked.
    steps = attributes.setdefault(_KEY, EagerSteps())
  return steps


def is_outermost_eager() -> bool:
  """Returns whether no graph of TensorFlow 1 is around."""
  return graphs.find_graph() is None


def list_children(optimizer: Any, save_type: str) -> dict[str, Any]:
  """Returns the children that an optimizer has by its steps.

  Args:
    optimizer: The optimizer.
    save_type: What TensorFlow saves: "checkpoint" or "savedmodel".
  """
  steps: EagerSteps | None = vars(optimizer).get(_KEY)
  if steps is None or save_type != "savedmodel":
    return {}
  return steps.list_variables()
