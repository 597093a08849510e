"""Layouts of object-based checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

from tf_compat_lossscale.checkpoint import describing
from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.bundle import OBJECT_GRAPH
from tf_compat_lossscale.checkpoint.files.errors import CheckpointError
from tf_compat_lossscale.checkpoint.files.object_graph import Node
from tf_compat_lossscale.checkpoint.files.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.files.writer import Literal
from tf_compat_lossscale.checkpoint.files.writer import Stored
from tf_compat_lossscale.checkpoint.layouts import evidence
from tf_compat_lossscale.checkpoint.layouts import templates
from tf_compat_lossscale.checkpoint.layouts.inventory import Inventory
from tf_compat_lossscale.checkpoint.layouts.sources import collect_stored
from tf_compat_lossscale.checkpoint.layouts.sources import Sources
from tf_compat_lossscale.legacy import names as legacy_names

# What holds a loss scale, by whichever API.
SCALE_CHILDREN = {"current_loss_scale", "loss_scale", "dynamic_scale"}
_BASE = "base_optimizer"


def list_by_name(bundle: Bundle) -> Sources:
  """A checkpoint's variables, as a Saver would have them."""
  return collect_stored(
    (
      (name, key)
      for name, key in describing.values_of(bundle)
      if not key.startswith("save_counter/")
    ),
    bundle,
  )


def copy_all(bundle: Bundle) -> Sources:
  """All of a checkpoint, as it is."""
  return {name: Stored(bundle, name) for name in bundle.names}


def remove_scales(bundle: Bundle) -> Sources:
  """An object-based checkpoint as it would be without loss scaling.

  The optimizer takes the place of the one that wrapped it. Tensors keep their
  keys: objects are found by the graph, not by what keys look like.
  """
  graph = evidence.object_graph(bundle)
  instead: dict[int, int] = {}
  for number, node in enumerate(graph.nodes):
    for name in (_BASE, "inner_optimizer"):
      inner = node.children.get(name)
      wraps = "loss_scale" in node.children or "dynamic_scale" in node.children
      if inner is None or not wraps:
        continue
      if node.slots or "iter" in node.children:  # Keras 2.3+: they are one.
        del node.children[name]
      else:
        instead[number] = inner
    if number not in instead:
      node.children.pop("loss_scale", None)
  graph.replace_children(lambda number: instead.get(number, number))
  return _with_graph(bundle, graph)


def flatten_keras(bundle: Bundle) -> Sources:
  """A checkpoint of Keras as Keras 2.3 and later lay it out.

  Up to TensorFlow 2.2, what is the optimizer's was `base_optimizer`'s, and a
  skipped step was not counted: the new checkpoint says so.

  Raises:
    CheckpointError: It is not one of Keras 2.
  """
  graph = evidence.object_graph(bundle)
  optimizers = 0
  for node in list(graph.nodes):
    base = graph.nodes[node.children[_BASE]] if _BASE in node.children else None
    if "_iterations" in node.children:
      raise CheckpointError(
        f"{bundle.prefix}: an optimizer in it is of Keras 2.11 or later, whose "
        "variables are not those of tf.keras.optimizers.legacy"
      )
    optimizers += "iter" in node.children
    if base is None or "iter" not in base.children:
      continue
    optimizers += 1
    if "loss_scale" in node.children:
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
  return _with_graph(bundle, graph, renaming=True)


def flatten_key(key: str) -> str:
  """A key as it is where `base_optimizer` is no more."""
  return key.replace(f"/{_BASE}/", "/")


def find_scale_keys(graph: ObjectGraph) -> dict[str, str]:
  """The keys of every loss scale's variables -> what they are called."""
  keys: dict[str, str] = {}
  for node in graph.nodes:
    children = {}
    if "loss_scale" in node.children:
      children = graph.nodes[node.children["loss_scale"]].children
    elif "dynamic_scale" in node.children:
      children = {
        name: node.children[name]
        for name in ("dynamic_scale", "step_counter")
        if name in node.children
      }
    for name, number in children.items():
      attribute = graph.value(number)
      if attribute:
        keys[attribute.key] = name
  return keys


def fill_template(
  variables: Sources,
  template: Bundle,
  keras: bool,
  mapping: Mapping[str, str] | None = None,
  side: Inventory | None = None,
) -> Sources:
  """Variables by name, in the objects of another checkpoint of the model.

  Args:
    variables: Saver's name -> the tensor.
    template: An object-based checkpoint.
    keras: Whether it must be of Keras 2.
    mapping: What the user decides: a variable's name or path in the template
      -> the name in `variables` of what it is to get.
    side: The same variables, with what is known of them.

  Returns:
    The new checkpoint.

  Raises:
    CheckpointError: It has variables for which there are no values, or it does
      not show which value is whose.
  """
  if OBJECT_GRAPH not in template:
    raise CheckpointError(
      f"{template.prefix}: a template must be an object-based checkpoint, of "
      "tf.train.Checkpoint; this one names variables"
    )
  sources = flatten_keras(template) if keras else copy_all(template)
  graph = ObjectGraph(_graph_of(sources, template))
  tensors = {key: source.tensor for key, source in sources.items()}
  side = side or Inventory(
    {name: source.tensor for name, source in variables.items()}, lambda: None
  )
  filler = templates.TemplateFiller(
    graph, tensors, variables, side, template.prefix
  )
  filler.fill(mapping)
  return sources | filler.sources


def _with_graph(
  bundle: Bundle, graph: ObjectGraph, renaming: bool = False
) -> Sources:
  """A checkpoint with that graph, and the tensors that are left in it."""
  graph.prune()
  sources: Sources = {}
  for _, attribute in graph.attributes():
    if attribute.key in bundle:
      old = attribute.key
      attribute.key = flatten_key(old) if renaming else old
      sources[attribute.key] = Stored(bundle, old)
  sources[OBJECT_GRAPH] = Literal("string", graph.encode())
  return sources


def _graph_of(sources: Sources, bundle: Bundle) -> bytes:
  source = sources[OBJECT_GRAPH]
  if isinstance(source, Literal):
    assert isinstance(source.value, bytes)
    return source.value
  return bundle.string(OBJECT_GRAPH)
