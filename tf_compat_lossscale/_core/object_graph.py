# SPDX-License-Identifier: Apache-2.0
"""Knows the object graphs of checkpoints, and what an optimizer is in them.

A node is known by its number; 0 is the root. An optimizer has slots, or it
counts steps and has hyperparameters, or it is a wrapper:

    layout                       children of the node
    TensorFlow 1                 beta1_power and others; slots
    NVIDIA's TensorFlow 1        the same, and loss_scale
    compat.v1, tf.contrib        base_optimizer, loss_scale
    Keras up to TensorFlow 2.2   base_optimizer with iter, loss_scale
    Keras 2, 2.3 and later       iter, hyperparameters; with a loss scale also
                                 base_optimizer, and loss_scale if dynamic
    Keras 2.11 and later         _iterations, _variables, _learning_rate
    Keras 3                      the same; inner_optimizer, dynamic_scale
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

COMPAT, CONTRIB = "compat.v1", "contrib"
KERAS_22, KERAS_23 = "Keras <=2.2", "Keras 2.3+"
KERAS_211, KERAS_3 = "Keras 2.11+", "Keras 3"
ENVIRONMENT = "NVIDIA's TensorFlow 1"  # By its environment variables.
# The children of an optimizer with a loss scale.
BASE_OPTIMIZER, LOSS_SCALE = "base_optimizer", "loss_scale"
# The same in Keras 3's LossScaleOptimizer.
INNER_OPTIMIZER, KERAS_3_SCALE = "inner_optimizer", "dynamic_scale"
# Its loss scale and its counter of good steps.
KERAS_3_MEMBERS = (KERAS_3_SCALE, "step_counter")
# What Keras's optimizers call their counter of steps.
COUNTERS = ("iter", "_iterations")
# Attributes of Keras's optimizers that other checkpoints have no variables for.
HYPERPARAMETERS = {
  "beta",
  "beta_1",
  "beta_2",
  "decay",
  "epsilon",
  "l1_regularization_strength",
  "l2_regularization_strength",
  "learning_rate",
  "learning_rate_power",
  "momentum",
  "rho",
  "weight_decay",
  "weight_decay_rate",
  "_current_learning_rate",
  "_learning_rate",
}
# Keras lists all variables of an optimizer again, in an order of its own.
AGAIN = "_variables"
_VALUE = "VARIABLE_VALUE"
_LONGEST_PATH = 1000  # Characters.


class ObjectGraph:
  """The object graph of a checkpoint.

  Attributes:
    nodes: The messages.
    children: For each node, name -> child.
    slots: (optimizer, variable, name) -> slot.
    named: The nodes that others than Keras's second lists of variables name.
  """

  def __init__(self, proto: Any, shapes: Mapping[str, Sequence[int]]) -> None:
    """Reads a `TrackableObjectGraph`.

    `shapes` has the shape of each tensor in the checkpoint, by its key.
    """
    self._shapes = shapes
    self.nodes = proto.nodes
    self.children = [
      {child.local_name: child.node_id for child in node.children}
      for node in self.nodes
    ]
    self.slots = {
      (number, slot.original_variable_node_id, slot.slot_name): (
        slot.slot_variable_node_id
      )
      for number, node in enumerate(self.nodes)
      for slot in node.slot_variables
    }
    again = {own[AGAIN] for own in self.children if AGAIN in own}
    self.named = {
      child
      for number, own in enumerate(self.children)
      for child in own.values()
      if number not in again
    }

  def find_paths(self, barred: Collection[int] = ()) -> dict[int, str]:
    """Returns number of a node -> the shortest path from the root.

    Slots have none. A very long path is abbreviated. No path passes a node that
    is barred.
    """
    paths = {} if 0 in barred else {0: ""}
    queue = list(paths)
    for number in queue:  # The queue grows meanwhile.
      for name, child in self.children[number].items():
        if child not in paths and child not in barred:
          path = f"{paths[number]}/{name}".lstrip("/")
          if len(path) > _LONGEST_PATH:
            path = "…" + path[-_LONGEST_PATH // 2 :]
          paths[child] = path
          queue.append(child)
    return paths

  def find_value(self, number: int) -> Any:
    """Returns the attribute with a variable's value; None without value."""
    for attribute in self.nodes[number].attributes:
      if attribute.name == _VALUE and attribute.checkpoint_key in self._shapes:
        return attribute
    return None

  def get_key(self, number: int | None) -> str | None:
    """Returns the key of a variable's value; None if there is no value."""
    value = None if number is None else self.find_value(number)
    return None if value is None else str(value.checkpoint_key)

  def get_name(self, number: int) -> str:
    """Returns a variable's own name; "" without value or name."""
    value = self.find_value(number)
    return "" if value is None else str(value.full_name)

  def get_slots(self, *optimizers: int) -> list[tuple[int, str, int]]:
    """Returns (variable, name, slot) of some optimizers."""
    return [
      (variable, name, slot)
      for (owner, variable, name), slot in self.slots.items()
      if owner in optimizers
    ]

  def get_inside(self, number: int) -> int | None:
    """Returns the optimizer that a wrapper is around; None for others."""
    own = self.children[number]
    if KERAS_3_SCALE in own and INNER_OPTIMIZER in own:
      return own[INNER_OPTIMIZER]
    is_wrapper = LOSS_SCALE in own or not own.keys().isdisjoint(COUNTERS)
    return own.get(BASE_OPTIMIZER) if is_wrapper else None

  def is_optimizer(self, number: int) -> bool:
    """Returns whether a node is an optimizer, or a wrapper around one."""
    own = self.children[number]
    if self.nodes[number].slot_variables or self.get_inside(number) is not None:
      return True
    if "_iterations" in own:
      return not own.keys().isdisjoint((AGAIN, "_learning_rate"))
    if "iter" not in own:
      return False
    # A subclass may have hyperparameters of its own.
    keys = [self.get_key(child) for child in own.values()]
    are_scalars = all(key is not None and not self._shapes[key] for key in keys)
    others = own.keys() - {"iter"}
    return others <= HYPERPARAMETERS or (
      are_scalars and not others.isdisjoint(HYPERPARAMETERS)
    )

  def find_optimizers(self) -> dict[int, int]:
    """Returns each optimizer -> the one inside, or itself if it is no wrapper.

    Those inside others are left out.
    """
    found = {
      number: self.get_inside(number)
      for number in range(len(self.nodes))
      if self.is_optimizer(number)
    }
    inside = set(found.values())
    return {
      number: number if base is None else base
      for number, base in found.items()
      if number not in inside
    }

  def find_api(self, number: int) -> str | None:
    """Returns the API of an optimizer with a loss scale; None for others."""
    own = self.children[number]
    if KERAS_3_SCALE in own and INNER_OPTIMIZER in own:
      return KERAS_3
    scale = own.get(LOSS_SCALE)
    if self.get_key(scale) is not None:
      return None  # The user's variable.
    # Beside a fixed loss scale, Keras's wrapper has no `loss_scale`.
    if scale is None and self.get_inside(number) is None:
      return None
    if "_iterations" in own:
      return KERAS_211
    if "iter" in own:
      return KERAS_23
    if BASE_OPTIMIZER not in own:
      # Other objects may have a child `loss_scale`, too.
      others = own.keys() - {"beta1_power", "beta2_power"}
      is_own = others == {LOSS_SCALE} and number
      has_slots = bool(self.nodes[number].slot_variables)
      return ENVIRONMENT if is_own or has_slots else None
    base = self.children[own[BASE_OPTIMIZER]]
    return KERAS_22 if "iter" in base else COMPAT
