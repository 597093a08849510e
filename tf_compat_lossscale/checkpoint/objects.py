# SPDX-License-Identifier: Apache-2.0
"""Walks a program's objects, and the object graph of a checkpoint."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core.tf import tracking
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.keras import optimizer_states

CHECKPOINTS = tf.train.Checkpoint, tf.compat.v1.train.Checkpoint
# Keras lists all variables of an optimizer again, in an order of its own.
AGAIN = "_variables"
# How an optimizer makes its slots, for messages.
BUILD = (
  "optimizer.build(variables), or of a legacy optimizer or TensorFlow 1's "
  "optimizer.apply_gradients([(tf.zeros_like(w), w) for w in variables])"
)
SLOT = "/.OPTIMIZER_SLOT/"  # Between the paths of a weight and an optimizer.
_VALUE = "VARIABLE_VALUE"
_LONGEST_PATH = 1000  # Characters.
list_children = tracking.list_children
is_variable = optimizer_states.is_variable


class ObjectGraph:
  """The object graph of a checkpoint; nodes are known by their numbers.

  Attributes:
    nodes: The messages.
    children: For each node, name -> child.
    slots: (optimizer, variable, name) -> slot.
    named: The nodes that others than Keras's second lists of variables name.
  """

  def __init__(self, checkpoint: Checkpoint) -> None:
    proto = checkpoint.object_graph
    assert proto is not None
    self._specs = checkpoint.specs
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

    Slots have none. A very long path is abbreviated.

    Args:
      barred: The nodes that no path may pass.
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
      if attribute.name == _VALUE and attribute.checkpoint_key in self._specs:
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

  # The same as of a program's objects, below.

  def list_children(self, number: int) -> dict[str, int]:
    return self.children[number]

  def is_optimizer(self, number: int) -> bool:
    """Returns whether a node may be an optimizer: it has children or slots."""
    return bool(self.children[number] or self.nodes[number].slot_variables)


def walk(objects: Any) -> list[tuple[str, Any]]:
  """Returns objects and all objects below them, each once, with their paths.

  Raises:
    ValueError: The objects have no variables now.
  """
  root, attached = find_root(objects)
  queue = [("", root)]  # With the objects, so that no `id` is used again.
  found: dict[int, tuple[str, Any]] = {}
  for path, item in queue:  # The queue grows meanwhile.
    if id(item) in found or path == "save_counter":
      continue
    found[id(item)] = path, item
    if not is_variable(item):
      children = list_children(item) | ({} if path else attached)
      queue += [
        (f"{path}/{name}".lstrip("/"), children[name])
        for name in sorted(children, key=lambda name: name == AGAIN)
      ]
  items = list(found.values())
  if not any(is_variable(item) for _, item in items):
    raise ValueError(
      f"the objects have no variables: build models and optimizers first; got "
      f"{objects!r}"
    )
  return items


def find_initial_values(items: Iterable[tuple[str, Any]]) -> dict[int, Any]:
  """Returns `id` of each variable of eager loss scales -> its initial value.

  Args:
    items: What `walk` returns.
  """
  found: dict[int, Any] = {}
  for _, item in items:
    initial: dict[str, Any] = {}
    if isinstance(item, graph_weights.GraphWeights):
      initial = {
        name: graph_weights.compute_initial_value(item, name)
        for name in graph_weights.list_weights(item)
      }
    elif hasattr(item, "initial_loss_scale"):  # Keras 2's.
      initial = {"current_loss_scale": item.initial_loss_scale, "good_steps": 0}
    elif hasattr(item, names.KERAS_3_SCALE):
      initial = dict(zip(names.KERAS_3, (item.initial_scale, 0)))
    children = list_children(item) if initial else {}
    found |= {id(children[n]): initial[n] for n in initial if n in children}
  return found


def make_trackable(objects: Any) -> Any:
  """Returns objects as one: a `tf.train.Checkpoint` if they are a dict.

  Lists, tuples and dicts in them are tracked as TensorFlow tracks them.

  Raises:
    ValueError: An object can have no variables.
  """
  problem = ""
  try:
    if isinstance(objects, dict):
      return tf.train.Checkpoint(**objects)
  except (TypeError, ValueError) as error:
    problem = f": {error}"
  if isinstance(objects, (list, tuple)):
    holder = tf.Module()
    holder.objects = objects
    objects = holder.objects
  if isinstance(objects, tracking.Trackable):
    return objects
  raise ValueError(
    "objects must be what tf.train.Checkpoint takes: a variable, module, model "
    "or optimizer, a list or tuple of these, or a dict of these by name, but "
    f"got {objects!r}{problem}"
  )


def find_root(objects: Any) -> tuple[Any, dict[str, Any]]:
  """Returns the root of a checkpoint's objects, and its further children."""
  item = make_trackable(objects)
  if not isinstance(item, CHECKPOINTS):
    return item, {}
  children = list_children(item)
  root = children.pop("_root", None)
  if root is None:
    return item, {}
  children.pop("root", None)
  return root, children


def is_optimizer(item: Any) -> bool:
  """Returns whether an object is an optimizer, or wraps one."""
  return callable(getattr(item, "apply_gradients", None))


def is_keras_optimizer(item: Any) -> bool:
  """Returns whether an object is an optimizer of Keras."""
  return hasattr(type(item), "iterations") and is_optimizer(item)


def get_slot(optimizer: Any, variable: Any, name: str) -> Any:
  """Returns an optimizer's slot for a variable; None if there is none."""
  try:
    return optimizer.get_slot(variable, name)
  except (AttributeError, KeyError):  # As TensorFlow's own checkpoints do.
    return None
