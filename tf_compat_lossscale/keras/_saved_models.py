# SPDX-License-Identifier: Apache-2.0
"""Restores the optimizers of Keras 2 models that were saved as SavedModels.

Keras makes new optimizers when it loads a SavedModel, although the file has all
variables of the saved optimizers. The file's checkpoint describes a graph of
objects. The loaded model has most of these objects, by the same paths:

  pairs = each node of the file, and the live object with the same path
  for node in the nodes that are optimizers:
    if the live object is an optimizer that can train:
      make the slots that the file has
      assign the file's values to all variables of the optimizer
    else:
      log a warning
"""

from __future__ import annotations

from collections.abc import Mapping
import itertools
import os
from typing import Any

from absl import logging
import tensorflow.compat.v2 as tf

from tf_compat_lossscale.keras import _keras2
from tf_compat_lossscale.keras import _skipped_steps
from tf_compat_lossscale.keras.optimizer import LossScaleOptimizer

_ITERATIONS = {"iter", "_iterations"}  # Of legacy and newer optimizers.
_VARIABLES = "_variables"  # The list of a newer optimizer's variables.


def find_checkpoint(path: Any) -> str | None:
  """Returns the prefix of a SavedModel's checkpoint; None if there is none."""
  if not isinstance(path, (str, os.PathLike)):
    return None
  prefix = os.path.join(os.fspath(path), "variables", "variables")
  return prefix if tf.io.gfile.exists(prefix + ".index") else None


def restore_optimizers(
  model: Any, prefix: str, custom_objects: Mapping[str, Any] | None = None
) -> None:
  """Restores the optimizers of a loaded model and of the models within it.

  Logs a warning for each optimizer of the file that cannot be restored.

  Args:
    model: The model that Keras loaded and compiled.
    prefix: The prefix of the SavedModel's checkpoint.
    custom_objects: More classes for Keras to find: name -> class.
  """
  saved = _Saved(prefix)
  with _keras2.keras.utils.custom_object_scope(dict(custom_objects or {})):
    users = _compile_parts(saved, model)
  pairs = saved.find_live_objects(model)
  restored = []
  for node, way in saved.find_optimizers():
    models = [pairs[each] for each in way if _keras2.is_model(pairs.get(each))]
    owner = model if users.get(node, 0) > 1 else models[-1]
    values, problem = _collect(saved, node, pairs.get(node), owner, pairs)
    restored += values
    if problem:
      logging.warning(
        "%s: the optimizer %r does not go on as it was saved: %s",
        prefix,
        saved.describe(way),
        problem,
      )
  _keras2.keras.backend.batch_set_value(restored)


def _compile_parts(saved: _Saved, model: Any) -> dict[int, int]:
  """Compiles the models within a loaded model.

  Models that shared an optimizer share the loaded optimizer.

  Returns:
    For each optimizer's node, the number of models that train with it.
  """
  optimizers: dict[int, Any] = {}
  users: dict[int, int] = {}
  for node, live in saved.find_live_objects(model).items():
    optimizer = saved.list_children(node).get("optimizer")
    if optimizer is None or not _keras2.is_model(live):
      continue
    if live is not model:
      _keras2.compile_as_saved(live)
    if _keras2.can_train(getattr(live, "optimizer", None)):
      live.optimizer = optimizers.setdefault(optimizer, live.optimizer)
      users[optimizer] = users.get(optimizer, 0) + 1
  return users


class _Saved:
  """A checkpoint's graph of objects, with the values of the variables.

  A node is a number; 0 is the root.
  """

  def __init__(self, prefix: str) -> None:
    self._reader = tf.train.load_checkpoint(prefix)
    self._nodes = _keras2.read_object_graph(self._reader).nodes

  def list_children(self, node: int) -> dict[str, int]:
    """Returns the children of a node: name -> node."""
    return {c.local_name: c.node_id for c in self._nodes[node].children}

  def list_slots(self, node: int) -> list[tuple[int, str, int]]:
    """Returns an optimizer's slots: (variable's node, name, slot's node)."""
    return [
      (s.original_variable_node_id, s.slot_name, s.slot_variable_node_id)
      for s in self._nodes[node].slot_variables
    ]

  def find_name(self, node: int) -> str:
    """Returns the name that a variable had; '' for other nodes."""
    return next((a.full_name for a in self._nodes[node].attributes), "")

  def read_value(self, node: int) -> Any:
    """Returns the value of a variable; None for other nodes."""
    for attribute in self._nodes[node].attributes:
      if attribute.name == "VARIABLE_VALUE":
        return self._reader.get_tensor(attribute.checkpoint_key)
    return None

  def find_live_objects(self, root: Any, node: int = 0) -> dict[int, Any]:
    """Returns the live object of each node that has a live object.

    Args:
      root: A live object.
      node: The node of `root`.
    """
    pairs = {node: root}
    queue = [node]
    for node in queue:
      live = tf.train.TrackableView.children(pairs[node])
      for name, child in self.list_children(node).items():
        if child not in pairs and name in live:
          pairs[child] = live[name]
          queue.append(child)
    return pairs

  def find_optimizers(self) -> list[tuple[int, list[int]]]:
    """Returns each optimizer's node, and the nodes from the root to it."""
    ways: dict[int, list[int]] = {0: [0]}
    queue = [0]
    for node in queue:
      for child in self.list_children(node).values():
        if child not in ways:
          ways[child] = [*ways[node], child]
          queue.append(child)
    # TensorFlow 1.14 to 2.2 saved the wrapped optimizer as a child.
    wrapped = {
      self.list_children(node).get(_skipped_steps.BASE) for node in queue
    }
    return [
      (node, ways[node])
      for node in queue
      if node not in wrapped and self._is_optimizer(node)
    ]

  def leaves_skips_uncounted(self, node: int) -> bool:
    """Returns whether an optimizer does not count the steps that it skips."""
    return _skipped_steps.leave_skips_uncounted(
      self._nodes, self.list_children(node)
    )

  def describe(self, way: list[int]) -> str:
    """Returns a way from the root as names of attributes: 'd.optimizer'."""
    names = []
    for parent, node in itertools.pairwise(way):
      children = self.list_children(parent).items()
      names.append(next(name for name, child in children if child == node))
    return ".".join(names)

  def _is_optimizer(self, node: int) -> bool:
    children = self.list_children(node)
    scale = children.get("loss_scale")
    return (
      (scale is not None and "current_loss_scale" in self.list_children(scale))
      or not _ITERATIONS.isdisjoint(children)
      or bool(self.list_slots(node))
    )


def _collect(
  saved: _Saved, node: int, live: Any, owner: Any, pairs: dict[int, Any]
) -> tuple[list[tuple[Any, Any]], str]:
  """Makes an optimizer's variables, and finds the values to assign to them.

  Args:
    saved: The file.
    node: The optimizer's node.
    live: The optimizer; another object if the optimizer was not loaded.
    owner: The model that the optimizer belongs to.
    pairs: The live object of each node.

  Returns:
    Variables with their values; and the reason why some cannot be restored, or
    ''.
  """
  if not _keras2.can_train(live):
    return [], (
      "Keras did not load it. Compile the model as it was, then call "
      "tf_compat_lossscale.checkpoint.restore(None, path, model)."
    )
  inner = getattr(live, "inner_optimizer", live)
  # Later releases have the node `base_optimizer`, too, but without slots.
  base = saved.list_children(node).get(_skipped_steps.BASE, node)
  is_legacy = isinstance(inner, _keras2.LegacyOptimizer)
  problem = ""
  left_out: set[int] = set()
  values: list[tuple[Any, Any]] = []
  if is_legacy != (_VARIABLES not in saved.list_children(node)):
    problem = (
      "it was of the other kind (legacy or newer), so its slots start anew."
    )
  elif is_legacy:
    slots = saved.list_slots(node) or saved.list_slots(base)
    values, problem = _collect_legacy_slots(saved, slots, inner, owner, pairs)
  else:
    left_out, problem = _build(saved, node, inner, owner, pairs)
  if (
    isinstance(live, _keras2.LossScaleOptimizerOfLegacy)
    and live.dynamic
    and saved.leaves_skips_uncounted(node)
  ):
    values += LossScaleOptimizer.stop_counting_skips(live)
  below = saved.find_live_objects(live, node) | saved.find_live_objects(
    inner, base
  )
  for each, variable in below.items():
    value = saved.read_value(each)
    if (
      value is not None
      and each not in left_out
      and isinstance(variable, tf.Variable)
    ):
      values.append((variable, value))
  return values, problem


def _collect_legacy_slots(
  saved: _Saved,
  slots: list[tuple[int, str, int]],
  optimizer: Any,
  owner: Any,
  pairs: dict[int, Any],
) -> tuple[list[tuple[Any, Any]], str]:
  """Makes a legacy optimizer's variables, and finds its slots' values."""
  slotted = {id(pairs.get(primary)) for primary, _, _ in slots}
  # An `.h5` file lists slots in the order of the model's variables.
  _keras2.create_weights(
    optimizer, [v for v in owner.variables if id(v) in slotted]
  )
  values, lost = [], 0
  for primary, name, slot in slots:
    variable = pairs.get(primary)
    made = {} if variable is None else _keras2.find_slots(optimizer, variable)
    if name in made:
      values.append((made[name], saved.read_value(slot)))
    else:
      lost += 1
  if not lost:
    return values, ""
  return values, (
    f"{lost} of its {len(slots)} slots have no variable in the loaded model."
  )


def _build(
  saved: _Saved, node: int, optimizer: Any, owner: Any, pairs: dict[int, Any]
) -> tuple[set[int], str]:
  """Makes those variables of a newer optimizer that the file has.

  Returns:
    The nodes of variables that do not fit the optimizer, and why; or ''.
  """
  listed = saved.list_children(saved.list_children(node)[_VARIABLES])
  # Key 0 is the number of iterations, which every optimizer has.
  nodes = [listed[key] for key in sorted(listed, key=int) if key != "0"]
  if not nodes:
    return set(), ""
  optimizer.build(_find_trained_variables(saved, nodes, owner, pairs))
  shapes = [tuple(v.shape) for v in optimizer.variables[1:]]
  if shapes == [tuple(saved.read_value(each).shape) for each in nodes]:
    return set(), ""
  return set(nodes), (
    "its slots belong to other variables than the loaded model trains, so they "
    "start anew."
  )


def _find_trained_variables(
  saved: _Saved, slots: list[int], owner: Any, pairs: dict[int, Any]
) -> list[Any]:
  """Returns the model's variables that a newer optimizer's slots belong to.

  The optimizer was built for a list of variables. Other variables may be
  trainable now. A slot's name ends with the name of its variable. Names are
  compared as they are in the file: Keras may rename variables that it loads.
  """
  known = {id(v) for v in owner.variables}
  by_name = {
    saved.find_name(node): variable
    for node, variable in pairs.items()
    if id(variable) in known
  }
  trained = owner.trainable_variables
  if len(by_name) < len(known):  # Names are missing or not unique.
    return trained
  found: dict[str, Any] = {}
  for slot in map(saved.find_name, slots):
    matches = [name for name in by_name if slot.endswith(f"/{name}")]
    if matches:
      name = max(matches, key=len)
      found[name] = by_name[name]
  needed = trained if _keras2.trains_as_keras(owner) else []
  are_found = {id(v) for v in found.values()} >= {id(v) for v in needed}
  return list(found.values()) if found and are_found else trained
