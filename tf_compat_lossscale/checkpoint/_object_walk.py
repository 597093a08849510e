# SPDX-License-Identifier: Apache-2.0
"""Walks a program's objects beside the object graph of a checkpoint.

The walk starts with the program's root object and the root node, and follows
the edges that have the same name on both sides:

    queue = [(root object, root node)]
    for each (object, node) in the queue:
      if the object is a variable: note that the node is for the variable
      otherwise, for each child (name, child) of the object:
        to = the node's child of that name, or None
        to = the node that bridges a difference, if there is a difference
        add (child, to) to the queue

Slots have no edges: `add_slots` finds slots by optimizer, variable and name.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
import dataclasses
from typing import Any
from typing import NamedTuple

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import optimizers
from tf_compat_lossscale._core.tf import tracking
from tf_compat_lossscale.checkpoint.files.object_graph import Node
from tf_compat_lossscale.checkpoint.layouts.names import BASE_OPTIMIZER
from tf_compat_lossscale.checkpoint.layouts.names import LOSS_SCALE
from tf_compat_lossscale.checkpoint.layouts.object_bridges import GraphBridge

_OLD_KERAS = "the optimizer's, as up to TensorFlow 2.2"


@dataclasses.dataclass
class FoundVariable:
  """A variable of the program, and the values in the checkpoint for it.

  Attributes:
    variable: The variable.
    path: Its path in the objects.
    what: A description for messages; '' if the path is enough.
    keys: Key of a value -> how the value was found; '' if by the variable's own
      path.
    nodes: The numbers of the nodes at the variable's paths.
    parent: The object that tracks the variable, and the name that the object
      has for it.
    is_new_scale: Whether the variable is a loss scale's and the checkpoint has
      no loss scale for the optimizer.
  """

  variable: Any
  path: str
  what: str = ""
  keys: dict[str, str] = dataclasses.field(default_factory=dict)
  nodes: set[int] = dataclasses.field(default_factory=set)
  parent: tuple[Any, str] = (None, "")
  is_new_scale: bool = False


@dataclasses.dataclass
class FoundOptimizer:
  """An optimizer of the program, and the nodes in the checkpoint for it.

  Attributes:
    optimizer: The optimizer.
    path: Its path in the objects.
    nodes: Number of a node -> how the node was found.
  """

  optimizer: Any
  path: str
  nodes: dict[int, str] = dataclasses.field(default_factory=dict)


class _Step(NamedTuple):
  """An object to visit.

  Attributes:
    item: The object.
    number: The node for it; None if there is none.
    path: The object's path.
    proof: How the node was found, if not by the path.
    parent: The object that tracks this one, and the name it has there.
    is_new_scale: As `FoundVariable.is_new_scale`, for all variables below.
  """

  item: Any
  number: int | None
  path: str
  proof: str = ""
  parent: tuple[Any, str] = (None, "")
  is_new_scale: bool = False


class ObjectWalk:
  """A walk through a program's objects.

  Attributes:
    variables: The variables by `id`, slots after their weights.
    optimizers: The optimizers that have slots, by `id`.
  """

  def __init__(self, bridge: GraphBridge) -> None:
    """Takes the graph of the checkpoint, which the walk changes."""
    self._bridge, self._graph = bridge, bridge.graph
    self._alive: list[Any] = []  # So that no `id` is used a second time.
    self.variables: dict[int, FoundVariable] = {}
    self.optimizers: dict[int, FoundOptimizer] = {}

  def walk(self, root: Any, attached: dict[str, Any]) -> None:
    """Visits all objects.

    Args:
      root: The first object.
      attached: Further children that a checkpoint has below the root.
    """
    queue = collections.deque([_Step(root, 0, "")])
    seen = set()
    while queue:
      step = queue.popleft()
      pair = id(step.item), step.number
      if pair in seen:
        continue
      seen.add(pair)
      self._alive.append(step.item)
      if step.number is not None:
        self._bridge.met.add(step.number)
      if step.path == "save_counter":
        continue  # TensorFlow restores its own counter.
      if is_variable(step.item):
        self._add_variable(step)
        continue
      children = tracking.list_children(step.item)
      if step.item is root:
        children |= attached
      queue.extend(self._find_steps(step, children))
    self._bridge.replace_elsewhere()

  def _add_variable(self, step: _Step) -> None:
    found = self.variables.setdefault(
      id(step.item), FoundVariable(step.item, step.path, parent=step.parent)
    )
    is_first = not found.keys
    if step.number is None or not self._add_key(found, step.number, step.proof):
      found.is_new_scale |= step.is_new_scale
    elif is_first:
      found.path = step.path

  def _add_key(self, found: FoundVariable, number: int, proof: str) -> bool:
    """Adds a node to a variable; returns whether the node has a value."""
    found.nodes.add(number)
    key = self._bridge.get_key(number)
    if key is None:
      return False
    found.keys.setdefault(key, proof)
    return True

  def _find_steps(
    self, step: _Step, children: dict[str, Any]
  ) -> Iterator[_Step]:
    """Yields the objects below an object, and changes the graph for them."""
    item, number, path = step.item, step.number, step.path
    node = self._graph.nodes[number] if number is not None else Node()
    there, proofs = dict(node.children), dict.fromkeys(children, step.proof)
    nodes = {} if number is None else {number: step.proof}
    inner = children.get(BASE_OPTIMIZER)
    if hasattr(inner, "restores_for") and BASE_OPTIMIZER in there:
      # Up to TensorFlow 2.2, Keras saved the wrapper's variables of today below
      # `base_optimizer`. `inner` restores them, so no edge has to change.
      old = there[BASE_OPTIMIZER]
      self._bridge.met.add(old)
      nodes[old] = _OLD_KERAS
      old_children = self._graph.nodes[old].children
      proofs.update(dict.fromkeys(old_children, _OLD_KERAS))
      there = {**old_children, **there}
    self._add_optimizer(item, path, inner, nodes)
    is_optimizer = callable(getattr(item, "apply_gradients", None))
    is_new_scale = is_optimizer and number is not None
    if is_optimizer and LOSS_SCALE in children and LOSS_SCALE in there:
      is_new_scale = not self._bridge.has_variables(there[LOSS_SCALE])
      there[LOSS_SCALE], proof = self._bridge.bridge_scale(
        tracking.list_children(children[LOSS_SCALE]).keys(), there[LOSS_SCALE]
      )
      proofs[LOSS_SCALE] = proof or proofs[LOSS_SCALE]
    for name, child in children.items():
      to, proof = there.get(name), proofs[name]
      if to is not None:
        to, why = self._bridge_child(child, to)
        proof = why or proof
        if number is not None and name in node.children:
          self._bridge.set_child(number, name, to)
      yield _Step(
        item=child,
        number=to,
        path=f"{path}/{name}".lstrip("/"),
        proof=proof,
        parent=(item, name),
        is_new_scale=(name == LOSS_SCALE and is_new_scale) or step.is_new_scale,
      )

  def _add_optimizer(
    self, item: Any, path: str, inner: Any, nodes: dict[int, str]
  ) -> None:
    """Adds an object to `optimizers` if the object has slots of its own."""
    has_slots = all(hasattr(item, n) for n in ("get_slot", "get_slot_names"))
    # A wrapper would only hand on the slots of the optimizer inside.
    if has_slots and not hasattr(inner, "get_slot"):
      found = self.optimizers.setdefault(id(item), FoundOptimizer(item, path))
      found.nodes.update(nodes)

  def _bridge_child(self, child: Any, number: int) -> tuple[int, str]:
    """Returns the node for a child, and how it was found if not by its path."""
    self._alive.append(child)
    proof = ""
    if callable(getattr(child, "apply_gradients", None)):
      children = tracking.list_children(child)
      number, proof = self._bridge.bridge_optimizer(
        id(child),
        children,
        hasattr(children.get(BASE_OPTIMIZER), "get_slot"),
        number,
      )
    if not is_variable(child):
      number = self._bridge.get_own_node(id(child), number)
    return number, proof

  def add_slots(self) -> list[FoundVariable]:
    """Adds the slots that optimizers have now; returns the new ones."""
    # (node of an optimizer, node of a variable, name) -> node of the slot.
    slots = {
      (number, slot.variable, slot.name): slot.slot
      for optimizer in self.optimizers.values()
      for number in optimizer.nodes
      for slot in self._graph.nodes[number].slots
    }
    new = []
    weights = [f for f in self.variables.values() if f.parent[0] is not None]
    for optimizer in self.optimizers.values():
      for name in optimizer.optimizer.get_slot_names():
        for weight in weights:
          slot = get_slot(optimizer.optimizer, weight.variable, name)
          if slot is None or id(slot) in self.variables:
            continue
          found = self.variables[id(slot)] = FoundVariable(
            slot,
            f"{weight.path}/.OPTIMIZER_SLOT/{optimizer.path}/{name}",
            f"slot {name!r} of {optimizer.path} for {weight.path}",
          )
          new.append(found)
          for number, proof in optimizer.nodes.items():
            for variable in weight.nodes:
              to = slots.get((number, variable, name))
              if to is not None:
                self._bridge.met.add(to)
                proofs = filter(None, [proof, *weight.keys.values()])
                self._add_key(found, to, next(proofs, ""))
    return new

  def find_untracked(self) -> Iterator[tuple[str, Any]]:
    """Yields (path, variable) of slots whose weights are not in the objects."""
    for optimizer in self.optimizers.values():
      if isinstance(optimizer.optimizer, tf.compat.v1.train.Optimizer):
        for variable in optimizers.list_variables(optimizer.optimizer):
          if id(variable) not in self.variables:
            name = variable.name.split(":")[0]
            yield f"{optimizer.path}/{name}", variable


def is_variable(item: Any) -> bool:
  """Returns whether an object is a variable of TensorFlow or of Keras 3."""
  keras_3 = ("assign", "shape", "dtype", "path", "_serialize_to_tensors")
  return isinstance(item, tf.Variable) or all(
    hasattr(item, name) for name in keras_3
  )


def get_slot(optimizer: Any, variable: Any, name: str) -> Any:
  """Returns an optimizer's slot for a variable; None if there is none."""
  try:
    return optimizer.get_slot(variable, name)
  except (AttributeError, KeyError):  # As TensorFlow's own checkpoints do.
    return None
