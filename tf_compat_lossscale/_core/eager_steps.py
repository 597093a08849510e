# SPDX-License-Identifier: Apache-2.0
"""The steps of an optimizer that no graph of TensorFlow 1 does.

These steps are eager, or a `tf.function` does them. The optimizer knows whether
the last one was applied. It knows nothing else of a step unless an observer
looks on; it holds no gradient.

In a `tf.function`, a variable takes the answer. Checkpoints do not have that
variable: they stay the same with and without it. A SavedModel has it, because a
function that uses an untracked variable cannot be exported.
"""

from __future__ import annotations

from collections.abc import Callable
import threading
from typing import Any
import weakref

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import graphs

# The values of the variable: no step yet, or whether the step was applied; with
# `_SEEN` added if `take_unseen` has returned the answer.
_NO_STEP = -1
_SEEN = 2

_KEY = "_eager_steps"  # The attribute of an optimizer.
_LOCK = threading.RLock()  # Several threads may trace one optimizer's step.


class EagerSteps:
  """What one optimizer knows of its steps outside of graphs.

  Attributes:
    has_unobserved: Whether a `tf.function` was traced without an observer.
    computed: In each thread, what `compute_gradients` returned for the step to
      come; only if there is an observer.
    global_step: The last variable that counts steps, as a weak reference.
    holders: Objects with variables that functions use and that no checkpoint
      has: weak references. Each object has a method `list_variables`.
  """

  def __init__(self) -> None:
    """Starts with no step."""
    self.has_unobserved = False
    self.computed = threading.local()
    self.global_step: Callable[[], Any] = lambda: None
    self.holders: weakref.WeakSet[Any] = weakref.WeakSet()
    self._value: bool | tf.Tensor | None = None
    self._variable: tf.Variable | None = None
    self._observer: Callable[[], Any] = lambda: None

  def __deepcopy__(self, memo: dict[int, Any]) -> EagerSteps:
    """Returns an object with the same last step, and without observers."""
    clone = EagerSteps()
    clone._value = self.read() if tf.executing_eagerly() else None
    return clone

  @property
  def observer(self) -> Any:
    """What looks on at each step; the optimizer does not own it.

    It is a `monitoring.optimizer_steps.OptimizerSteps` or None.
    """
    return self._observer()

  @observer.setter
  def observer(self, observer: Any) -> None:
    self._observer = weakref.ref(observer)

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
    return None if number == _NO_STEP else tf.constant(bool(number % _SEEN))

  def take_unseen(self) -> bool | None:
    """Returns whether the last step of a function was applied, once.

    Returns:
      The answer; None if there was no step since the last call.
    """
    if self._variable is None:
      return None
    number = int(tf.convert_to_tensor(self._variable))
    if number not in (0, 1):
      return None
    self._variable.assign(number + _SEEN)
    return bool(number)

  @property
  def is_known(self) -> bool:
    """Whether a step was taken, or a function that takes steps was traced."""
    return self._value is not None or self._variable is not None

  @property
  def has_variable(self) -> bool:
    """Whether a function takes note of its steps."""
    return self._variable is not None

  def list_variables(self) -> dict[str, Any]:
    """Returns the variables that functions use and that no checkpoint has."""
    found = [] if self._variable is None else [self._variable]
    for holder in list(self.holders):
      found += holder.list_variables()
    named: dict[int, Any] = {id(x): x for x in found}
    return {f"_of_steps_{i}": x for i, x in enumerate(named.values())}


def find(optimizer: Any) -> EagerSteps:
  """Returns what an optimizer knows of its steps outside of graphs."""
  attributes: dict[str, Any] = vars(optimizer)
  steps: EagerSteps | None = attributes.get(_KEY)
  if steps is None:
    # An attribute of a Keras optimizer would be tracked.
    steps = attributes.setdefault(_KEY, EagerSteps())
  return steps


def has_stepped(optimizer: Any) -> bool:
  """Returns whether an optimizer took a step that no graph did."""
  steps: EagerSteps | None = vars(optimizer).get(_KEY)
  return steps is not None and steps.is_known


def find_observer(optimizer: Any) -> Any:
  """Returns the observer of this step; None if there is none.

  An observer does not look on if a graph of TensorFlow 1 does the step.
  """
  steps: EagerSteps | None = vars(optimizer).get(_KEY)
  if steps is None or steps.observer is None or not is_outermost_eager():
    return None
  return steps.observer


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
