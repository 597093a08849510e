# SPDX-License-Identifier: Apache-2.0
"""Decides whether an optimizer of Keras 2 counts the steps that it skips.

TensorFlow 1.14 to 2.2 left a skipped step out of `iterations`; later releases
count it. Adam's bias correction and learning-rate schedules go by that number,
so training goes on as before only if the rule is restored with the state.
Restoring a loss scale therefore sets the rule, which the checkpoint tells:

* In a checkpoint of TensorFlow 1.14 to 2.2 the variables of the wrapped
  optimizer are below `base_optimizer`.
* A state restored from such a checkpoint is saved with a child
  `skipped_steps_are_not_counted`. The child has no value, so
  Keras's own class restores the checkpoint, and counts.
* All other checkpoints have the rule of later releases.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale._core.tf import tracking

BASE = "base_optimizer"  # The wrapped optimizer in TensorFlow 1.14 to 2.2.
_MARK = legacy_names.SKIPS_NOT_COUNTED
_SCALE = "loss_scale"  # The child that a dynamic loss scale is restored from.


class SkippedSteps:
  """The rule of one optimizer: the number that a skipped step adds.

  The number is added to `iterations`. It is a variable, so that a graph or a
  `tf.function` built before a restore obeys the restored rule. The variable is
  in no collection and in no checkpoint: both stay the same as with Keras's own
  class.
  """

  def __init__(self, optimizer: Any) -> None:
    """Starts with the rule of today's Keras 2.

    Args:
      optimizer: The loss-scale optimizer, of the legacy kind and dynamic.
    """
    self._optimizer = optimizer
    self._mark = tracking.Trackable()
    self.are_counted = True
    with tf.name_scope("skipped_steps"):
      self._increment = tf.compat.v1.Variable(
        1,
        name="increment",
        dtype=tf.int64,
        trainable=False,
        collections=[],
        use_resource=True,
        aggregation=tf.VariableAggregation.NONE,
      )

  def read_increment(self) -> tf.Tensor:
    """Returns the number that a skipped step adds: an int64, 1 or 0."""
    with tf.init_scope():
      in_session = not tf.executing_eagerly()
    if not in_session:
      return self._increment.read_value()
    # `global_variables_initializer` does not initialize this variable.
    with tf.name_scope("skipped_steps"):
      return tf.cond(
        self._increment.is_initialized(),
        self._increment.read_value,
        lambda: tf.ones([], tf.int64),
      )

  def stop_counting(self) -> list[tuple[Any, int]]:
    """Sets the rule of old releases.

    Returns:
      Pairs of a variable and the value to assign to it.
    """
    self.are_counted = False
    return [(self._increment, 0)]

  def follow(self, nodes: Any, children: dict[str, int]) -> list[Any]:
    """Sets the rule of a checkpoint.

    Args:
      nodes: The messages that describe the objects in the checkpoint.
      children: The children of the optimizer there: name -> number of node.

    Returns:
      Pairs of a variable and the value to assign to it.
    """
    self.are_counted = not leave_skips_uncounted(nodes, children)
    return [(self._increment, int(self.are_counted))]

  def list_children(self) -> dict[str, Any]:
    """Returns the children that tell the rule in a checkpoint."""
    return {} if self.are_counted else {_MARK: self._mark}

  def restore(self, position: Any) -> None:
    """Restores the loss scale, and sets the rule of its checkpoint.

    Args:
      position: The loss scale's place in a checkpoint.
    """
    checkpoint = position.checkpoint
    nodes = checkpoint.object_graph_proto.nodes
    self.are_counted = not any(
      leave_skips_uncounted(nodes, children)
      for children in (_list_children(node) for node in nodes)
      if children.get(_SCALE) == position.proto_id
    )
    position.restore(self._optimizer._loss_scale)
    with tf.init_scope():
      assign = self._increment.assign(int(self.are_counted))
      if not tf.executing_eagerly():
        checkpoint.new_restore_ops([assign])


def _list_children(node: Any) -> dict[str, int]:
  return {child.local_name: child.node_id for child in node.children}


def leave_skips_uncounted(nodes: Any, children: dict[str, int]) -> bool:
  """Returns whether a checkpoint says that skipped steps do not count.

  Args:
    nodes: The messages that describe the objects in the checkpoint.
    children: The children of the optimizer there: name -> number of node.
  """
  if _MARK in children:
    return True
  base = nodes[children[BASE]] if BASE in children else None
  return base is not None and bool(base.children or base.slot_variables)


class Deferred:
  """Stands for an optimizer's deferred dependencies during a restore.

  When a restore looks for the optimizer's loss scale, the optimizer answers
  that it has none. TensorFlow then defers the restore, and passes the position
  in the checkpoint to this object. No other hook gets that position.
  """

  def __init__(self, skipped_steps: SkippedSteps, others: Any) -> None:
    self._skipped_steps = skipped_steps
    self._others = others

  def setdefault(self, name: str, default: Any) -> Any:
    return self if name == _SCALE else self._others.setdefault(name, default)

  def append(self, position: Any) -> None:
    self._skipped_steps.restore(position)

  def __getattr__(self, name: str) -> Any:
    return getattr(self._others, name)


class RestoredAsBaseOptimizer(tracking.Trackable):
  """A node at the path where TensorFlow 1.14 to 2.2 saved an optimizer.

  These releases saved the wrapped optimizer as the child `base_optimizer` of
  the loss-scale optimizer. Since 2.3 the loss-scale optimizer itself has the
  variables. This node saves nothing, and restores the optimizer.

  Attributes:
    restores_for: The optimizer.
  """

  def __init__(self, optimizer: Any) -> None:
    self.restores_for = optimizer

  def _trackable_children(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
    return {}

  def _lookup_dependency(self, name: str, *args: Any, **kwargs: Any) -> Any:
    return self.restores_for._lookup_dependency(name, *args, **kwargs)

  @property
  def _deferred_dependencies(self) -> Any:
    # The optimizer looks here for the values of variables that it makes later.
    return self.restores_for._deferred_dependencies

  def get_slot_names(self) -> list[str]:
    return self.restores_for.get_slot_names()

  def _create_or_restore_slot_variable(self, *args: Any, **kwargs: Any) -> Any:
    return self.restores_for._create_or_restore_slot_variable(*args, **kwargs)


class Counting:
  """A proxy of an optimizer that counts skipped steps by a rule.

  Keras's loss-scale optimizer adds 1 to the `iterations` of the optimizer that
  it wraps when it skips a step, and uses `iterations` for nothing else.
  """

  def __init__(self, optimizer: Any, skipped_steps: SkippedSteps) -> None:
    self._optimizer = optimizer
    self._skipped_steps = skipped_steps

  @property
  def iterations(self) -> Counting:
    return self

  def assign_add(self, delta: int, **kwargs: Any) -> Any:
    del delta
    return self._optimizer.iterations.assign_add(
      self._skipped_steps.read_increment(), **kwargs
    )

  def __getattr__(self, name: str) -> Any:
    return getattr(self._optimizer, name)
