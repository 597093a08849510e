# SPDX-License-Identifier: Apache-2.0
"""Decides whether an optimizer of Keras 2 counts the steps that it skips.

TensorFlow 1.14 to 2.2 left a skipped step out of `iterations`; later releases
count it. Adam's bias correction and learning-rate schedules go by that number.
So restoring a loss scale sets the rule, which the checkpoint tells: 1.14 to 2.2
saved the variables of the wrapped optimizer below `base_optimizer`. A state
restored from there is saved with a child `skipped_steps_are_not_counted`, which
has no value: Keras's own class restores the checkpoint, and counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale._core.tf import tracking
from tf_compat_lossscale.keras import _keras2

BASE = "base_optimizer"  # The wrapped optimizer in TensorFlow 1.14 to 2.2.
_MARK = legacy_names.SKIPS_NOT_COUNTED


class SkippedSteps:
  """The rule of one legacy optimizer; at first, skipped steps count.

  A variable holds the rule, so that a graph or a `tf.function` built before a
  restore obeys the restored rule. The variable is in no collection and in no
  checkpoint: both stay the same as with Keras's own class.

  Attributes:
    children: The children of the optimizer that tell the rule in a checkpoint.
    number: The variable: 1 if skipped steps are not counted, else 0.
  """

  def __init__(self, loss_scale: tracking.Trackable) -> None:
    self._loss_scale = loss_scale
    self.children: dict[str, tracking.Trackable] = {}
    with tf.name_scope("skipped_steps"):
      self.number = tf.compat.v1.Variable(
        np.int64(0),
        name="to_take_back",
        trainable=False,
        collections=[],
        use_resource=True,
      )

  def take_back(self, iterations: Any, applied: Any) -> Any:
    """Subtracts what Keras adds for a skipped step, if the rule says so."""
    zero = np.int64(0)
    # `global_variables_initializer` does not initialize the variable.
    number = tf.cond(
      self.number.is_initialized(), self.number.read_value, lambda: zero
    )
    number = tf.where(applied, zero, number)
    return iterations.assign_sub(number, read_value=False)

  def stop_counting(self) -> list[tuple[Any, int]]:
    """Sets the rule of old releases; returns variables, and their values."""
    self.children = {_MARK: tracking.Trackable()}
    return [(self.number, 1)]

  def follow(
    self, nodes: Any, children: dict[str, int]
  ) -> list[tuple[Any, int]]:
    """Sets the rule of a checkpoint; see `leave_skips_uncounted`."""
    self.children = {}
    if leave_skips_uncounted(nodes, children):
      return self.stop_counting()
    return [(self.number, 0)]

  def restore(self, position: Any) -> None:
    """Restores the loss scale and the rule from the loss scale's position."""
    position.restore(self._loss_scale)
    checkpoint = position.checkpoint
    nodes = checkpoint.object_graph_proto.nodes
    ((_, number),) = self.follow(nodes, {})
    for node in nodes:
      children = {child.local_name: child.node_id for child in node.children}
      if children.get("loss_scale") == position.proto_id:
        ((_, number),) = self.follow(nodes, children)
    with tf.init_scope():
      assign = self.number.assign(number)
      if not tf.executing_eagerly():
        checkpoint.new_restore_ops([assign])


def leave_skips_uncounted(nodes: Any, children: dict[str, int]) -> bool:
  """Returns whether a checkpoint says that skipped steps do not count.

  Args:
    nodes: The messages that describe the objects in the checkpoint.
    children: The children of the optimizer there: name -> number of node.
  """
  base = nodes[children[BASE]] if BASE in children else None
  return _MARK in children or (
    base is not None and bool(base.children or base.slot_variables)
  )


class Deferred:
  """Stands for an optimizer's deferred dependencies during a restore.

  A restore looks for the optimizer's loss scale, and the optimizer answers that
  it has none. TensorFlow then defers the restore, and passes the position in
  the checkpoint to this object. No other hook gets that position.
  """

  def __init__(self, skipped_steps: SkippedSteps, others: Any) -> None:
    self.append = skipped_steps.restore
    self._others = others

  def setdefault(self, name: str, default: Any) -> Any:
    is_loss_scale = name == "loss_scale"
    return self if is_loss_scale else self._others.setdefault(name, default)

  def __getattr__(self, name: str) -> Any:
    return getattr(self._others, name)


class RestoredAsBaseOptimizer(_keras2.RestoresSlots):
  """A node at the path where TensorFlow 1.14 to 2.2 saved an optimizer.

  Since 2.3 the loss-scale optimizer itself has the variables. This node saves
  nothing, and restores the optimizer. Keras's own node restores slots alone.

  Attributes:
    restores_for: The optimizer.
  """

  def __init__(self, optimizer: Any) -> None:
    super().__init__(optimizer)
    self.restores_for = optimizer

  def _lookup_dependency(self, name: str, *args: Any, **kwargs: Any) -> Any:
    return self.restores_for._lookup_dependency(name, *args, **kwargs)

  @property
  def _deferred_dependencies(self) -> Any:
    # The optimizer looks here for the values of variables that it makes later.
    return self.restores_for._deferred_dependencies
