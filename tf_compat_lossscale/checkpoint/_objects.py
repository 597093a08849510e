# SPDX-License-Identifier: Apache-2.0
"""Walks a program's objects; `object_graph` knows those of checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core import object_graph
from tf_compat_lossscale._core.tf import tracking
from tf_compat_lossscale.keras import optimizer_states

CHECKPOINTS = tf.train.Checkpoint, tf.compat.v1.train.Checkpoint
# How an optimizer makes its slots, for messages.
BUILD = (
  "optimizer.build(variables), or of a legacy optimizer or TensorFlow 1's "
  "optimizer.apply_gradients([(tf.zeros_like(w), w) for w in variables])"
)
SLOT = "/.OPTIMIZER_SLOT/"  # Between the paths of a weight and an optimizer.
list_children = tracking.list_children
is_variable = optimizer_states.is_variable


def walk(objects: Any) -> list[tuple[str, Any]]:
  """Returns objects and all objects below them, each once, with their paths."""
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
        for name in sorted(
          children, key=lambda name: name == object_graph.AGAIN
        )
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

  The items are those of `walk`.
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
    elif hasattr(item, object_graph.KERAS_3_SCALE):
      initial = dict(zip(object_graph.KERAS_3_MEMBERS, (item.initial_scale, 0)))
    children = list_children(item) if initial else {}
    found |= {id(children[n]): initial[n] for n in initial if n in children}
  return found


def make_trackable(objects: Any) -> Any:
  """Returns objects as one: a `tf.train.Checkpoint` if they are a dict.

  Lists, tuples and dicts in them are tracked as TensorFlow tracks them.
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
