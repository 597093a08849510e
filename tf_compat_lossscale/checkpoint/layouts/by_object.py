# SPDX-License-Identifier: Apache-2.0
"""Changes object-based checkpoints (`tf.train.Checkpoint`) to other layouts.

A loss scale optimizer and its inner optimizer are laid out in different ways,
here with Adam's step counter `iter` and a slot `m`:

    without loss scale   optimizer: iter, slot m
    compat.v1            optimizer: loss_scale, base_optimizer: slot m
    Keras up to 2.2      optimizer: loss_scale, base_optimizer: iter, slot m
    Keras 2.3 and later  optimizer: loss_scale, base_optimizer, iter, slot m

TensorFlow finds values by the edges of the object graph. So changing the layout
means changing the graph; the tensors stay as they are. Keras 3 tracks a
`dynamic_scale` and an `inner_optimizer` instead.
"""

from __future__ import annotations

from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.bundle import OBJECT_GRAPH
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.files.object_graph import Node
from tf_compat_lossscale.checkpoint.files.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.files.values import Literal
from tf_compat_lossscale.checkpoint.files.values import Sources
from tf_compat_lossscale.checkpoint.files.values import Stored
from tf_compat_lossscale.checkpoint.layouts.names import BASE_OPTIMIZER
from tf_compat_lossscale.checkpoint.layouts.names import KERAS_3
from tf_compat_lossscale.checkpoint.layouts.names import KERAS_3_SCALE
from tf_compat_lossscale.checkpoint.layouts.names import LOSS_SCALE
from tf_compat_lossscale.checkpoint.layouts.policy_weights import COUNTS

# The names that APIs have for the variable that holds the scale itself.
_COUNTERS = {"good_steps", "bad_steps", "step_counter", *COUNTS}
SCALE_CHILDREN = {"current_loss_scale", LOSS_SCALE, KERAS_3_SCALE}


def list_by_name(bundle: Bundle) -> Sources:
  """Returns the variables of any checkpoint by name: name -> tensor.

  In an object-based checkpoint, the object graph has the names.

  Raises:
    CheckpointError: Two variables have one name.
  """
  pairs = [(key, key) for key in bundle.specs]
  if OBJECT_GRAPH in bundle.specs:
    # Tensors that are no variables have no name.
    attributes = ObjectGraph.read(bundle).list_attributes()
    pairs = [(a.full_name, a.key) for _, a in attributes if a.full_name]
  sources: Sources = {}
  for name, key in pairs:
    if key not in bundle.specs or key.startswith("save_counter/"):
      continue
    source = Stored(bundle, key)
    if sources.get(name, source) != source:
      raise CheckpointError(
        f"{bundle.prefix}: two variables in it are called {name}, so the name "
        "does not tell them apart"
      )
    sources[name] = source
  return sources


def copy_all(bundle: Bundle) -> Sources:
  """Returns all tensors of a checkpoint under their keys."""
  return {name: Stored(bundle, name) for name in bundle.specs}


def remove_scales(bundle: Bundle) -> Sources:
  """Returns an object-based checkpoint without its loss scales.

  The inner optimizer takes the place of the loss scale optimizer. Tensors keep
  their keys, since TensorFlow finds values by the graph.
  """
  graph = ObjectGraph.read(bundle)
  instead: dict[int, int] = {}
  for number, node in enumerate(graph.nodes):
    for name in (BASE_OPTIMIZER, "inner_optimizer"):
      inner = node.children.get(name)
      wraps = LOSS_SCALE in node.children or KERAS_3_SCALE in node.children
      if inner is None or not wraps:
        continue
      if node.slots or "iter" in node.children:
        # Keras 2.3 and later: the wrapper has the inner optimizer's variables.
        del node.children[name]
      else:
        instead[number] = inner
    if number not in instead:
      node.children.pop(LOSS_SCALE, None)
  for node in graph.nodes:
    for name, child in node.children.items():
      node.children[name] = instead.get(child, child)
  return _collect_tensors(bundle, graph)


def flatten_keras(bundle: Bundle) -> tuple[ObjectGraph, Sources]:
  """Returns Keras 2's graph and tensors in the layout of 2.3 and later.

  Up to TensorFlow 2.2, the inner optimizer had the slots and the step counter,
  and skipped steps were not counted. A mark in the new checkpoint says so.

  Raises:
    CheckpointError: The checkpoint is not one of Keras 2.
  """
  graph = ObjectGraph.read(bundle)
  optimizers = 0
  for node in list(graph.nodes):
    base = (
      graph.nodes[node.children[BASE_OPTIMIZER]]
      if BASE_OPTIMIZER in node.children
      else None
    )
    if "_iterations" in node.children:
      raise CheckpointError(
        f"{bundle.prefix}: an optimizer in it is of Keras 2.11 or later, whose "
        "variables are not those of tf.keras.optimizers.legacy"
      )
    optimizers += "iter" in node.children
    if base is None or "iter" not in base.children:
      continue
    optimizers += 1
    if LOSS_SCALE in node.children:
      node.children[legacy_names.SKIPS_NOT_COUNTED] = len(graph.nodes)
      graph.nodes.append(Node())
    node.children.update(base.children)
    node.slots += base.slots
    base.children.clear()
    base.slots.clear()
  if not optimizers:
    raise CheckpointError(
      f"{bundle.prefix}: no optimizer in it is Keras's: give a template, a "
      "checkpoint that Keras 2 wrote of the same model"
    )
  return graph, _collect_tensors(bundle, graph, renaming=True)


def flatten_key(key: str) -> str:
  """Returns a key without `base_optimizer`, as `flatten_keras` renames it."""
  return key.replace(f"/{BASE_OPTIMIZER}/", "/")


def find_scale_keys(graph: ObjectGraph) -> dict[str, str]:
  """Returns the keys of all loss scales and of their counters.

  A `LossScale` of the user may have further variables, which are left out.

  Returns:
    The key of a variable -> the variable's name in the loss scale.
  """
  keys: dict[str, str] = {}
  seen = set()  # Several optimizers may share a loss scale.
  for node in graph.nodes:
    children = {}
    if LOSS_SCALE in node.children:
      if node.children[LOSS_SCALE] in seen:
        continue
      seen.add(node.children[LOSS_SCALE])
      children = graph.nodes[node.children[LOSS_SCALE]].children
    elif KERAS_3_SCALE in node.children:
      children = {
        name: node.children[name] for name in KERAS_3 if name in node.children
      }
    for name, number in children.items():
      attribute = graph.find_value(number)
      if attribute and (name in SCALE_CHILDREN or name in _COUNTERS):
        keys[attribute.key] = name
  return keys


def _collect_tensors(
  bundle: Bundle, graph: ObjectGraph, renaming: bool = False
) -> Sources:
  """Returns a changed graph and the tensors that are left in it.

  Args:
    bundle: The old checkpoint.
    graph: The changed graph.
    renaming: Whether to remove `base_optimizer` from keys.
  """
  graph.prune()
  sources: Sources = {}
  for _, attribute in graph.list_attributes():
    if attribute.key in bundle.specs:
      old = attribute.key
      attribute.key = flatten_key(old) if renaming else old
      sources[attribute.key] = Stored(bundle, old)
  sources[OBJECT_GRAPH] = Literal("string", graph.encode())
  return sources
