"""Layouts of object-based checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

from tf_compat_lossscale.checkpoint import _errors
from tf_compat_lossscale.checkpoint import describing
from tf_compat_lossscale.checkpoint import layouts
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint._errors import CheckpointError
from tf_compat_lossscale.checkpoint.bundle import Bundle
from tf_compat_lossscale.checkpoint.bundle import OBJECT_GRAPH
from tf_compat_lossscale.checkpoint.object_graph import Attribute
from tf_compat_lossscale.checkpoint.object_graph import Node
from tf_compat_lossscale.checkpoint.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.writing import Literal
from tf_compat_lossscale.checkpoint.writing import Stored

# What holds a loss scale, by whichever API.
SCALES = {"current_loss_scale", "loss_scale", "dynamic_scale"}
_BASE = "base_optimizer"
# Slots of Keras 2's Adam -> those of `tf.compat.v1.train.AdamOptimizer`. Other
# optimizers' slots do not mean the same: Keras's SGD, for one, keeps what is
# added to a variable, not what is accumulated.
_ADAM = {"m": "Adam", "v": "Adam_1"}


def by_name(bundle: Bundle) -> layouts.Variables:
  """A checkpoint's variables, as a Saver would have them."""
  return layouts.stored(
    (
      (name, key)
      for name, key in describing.values_of(bundle)
      if not key.startswith("save_counter/")
    ),
    bundle,
  )


def copied(bundle: Bundle) -> layouts.Variables:
  """All of a checkpoint, as it is."""
  return {name: Stored(bundle, name) for name in bundle.names}


def without_scale(bundle: Bundle) -> layouts.Variables:
  """An object-based checkpoint as it would be without loss scaling.

  The optimizer takes the place of the one that wrapped it. Tensors keep their
  keys: objects are found by the graph, not by what keys look like.
  """
  graph = describing.object_graph(bundle)
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


def flat(bundle: Bundle) -> layouts.Variables:
  """A checkpoint of Keras as Keras 2.3 and later lay it out.

  Up to TensorFlow 2.2, what is the optimizer's was `base_optimizer`'s.

  Raises:
    CheckpointError: It is not one of Keras 2.
  """
  graph = describing.object_graph(bundle)
  optimizers = 0
  for node in graph.nodes:
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
    node.children.update(base.children)
    node.slots += base.slots
    base.children.clear()
    base.slots.clear()
  if not optimizers:
    raise CheckpointError(
      f"{bundle.prefix}: no optimizer in it is Keras's: give a template, a "
      "checkpoint that Keras 2 wrote of the same model"
    )
  sources = _with_graph(bundle, graph, renaming=True)
  return sources


def flat_key(key: str) -> str:
  """A key as it is where `base_optimizer` is no more."""
  return key.replace(f"/{_BASE}/", "/")


def scale_keys(graph: ObjectGraph) -> dict[str, str]:
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


def onto(
  variables: layouts.Variables, template: Bundle, keras: bool
) -> layouts.Variables:
  """Variables by name, in the objects of another checkpoint of the model.

  Args:
    variables: Saver's name -> the tensor.
    template: An object-based checkpoint.
    keras: Whether it must be of Keras 2.

  Returns:
    The new checkpoint.

  Raises:
    CheckpointError: It has variables for which there are no values.
  """
  if OBJECT_GRAPH not in template:
    raise CheckpointError(
      f"{template.prefix}: a template must be an object-based checkpoint, of "
      "tf.train.Checkpoint; this one names variables"
    )
  sources = flat(template) if keras else copied(template)
  graph = ObjectGraph(_graph_of(sources, template))
  find = _Finder(variables, graph)
  missing = []
  for node, attribute in graph.attributes():
    if attribute.name != "VARIABLE_VALUE" or attribute.key not in sources:
      continue
    old = sources[attribute.key]
    new = find(node, attribute)
    if new is None:
      if find.is_kept(node) or attribute.key.startswith("save_counter/"):
        continue
      missing.append(
        attribute.full_name + _errors.nearest(attribute.full_name, variables)
      )
    elif new.tensor != old.tensor:
      missing.append(
        f"{attribute.full_name} ({old.tensor} in the template, {new.tensor} "
        "here)"
      )
    else:
      sources[attribute.key] = new
  if missing:
    raise CheckpointError(
      f"{template.prefix}: the template has what there are no values for: "
      f"{'; '.join(sorted(missing))}"
    )
  return sources


class _Finder:
  """Finds the tensor for a variable of an object graph."""

  def __init__(self, variables: layouts.Variables, graph: ObjectGraph) -> None:
    self._variables = variables
    self._by_family = {
      family: members
      for family, members in names.families(variables).items()
      if len(members) == 1
    }
    self._given: dict[int, Literal | Stored] = dict(
      _scale_values(variables, graph)
    )
    self._slots = {
      slot.slot: (slot, owner) for owner in graph.nodes for slot in owner.slots
    }
    self._iterations = {
      node.children["iter"] for node in graph.nodes if "iter" in node.children
    }
    # Keras's hyperparameters have no variables elsewhere.
    self._kept = {
      number
      for node in graph.nodes
      if "iter" in node.children
      for name, number in node.children.items()
      if name in ("beta_1", "beta_2", "decay", "learning_rate", "epsilon")
    }
    self._graph = graph
    self._numbers = {id(node): n for n, node in enumerate(graph.nodes)}

  def __call__(
    self, node: Node, attribute: Attribute
  ) -> Literal | Stored | None:
    number = self._numbers[id(node)]
    if number in self._given:
      return self._given[number]
    exact = self._variables.get(attribute.full_name)
    if exact is not None:
      return exact
    if number in self._iterations:
      steps = [n for n in self._variables if n.endswith("global_step")]
      return self._variables[steps[0]] if len(steps) == 1 else None
    if number in self._slots:
      slot, owner = self._slots[number]
      variable = self._graph.value(slot.variable)
      if variable and "iter" in owner.children and slot.name in _ADAM:
        name = f"{variable.full_name}/{_ADAM[slot.name]}"
        return self._variables.get(name)
    family = self._by_family.get(names.family(attribute.full_name))
    return self._variables[family[0]] if family else None

  def is_kept(self, node: Node) -> bool:
    """Whether the template's value is to stay: hyperparameters of Keras."""
    return self._numbers[id(node)] in self._kept


def _scale_values(
  variables: layouts.Variables, graph: ObjectGraph
) -> Iterator[tuple[int, Literal | Stored]]:
  """What the loss scales of a graph become: (node, value), in order."""
  states = iter(layouts.found_in(variables))
  for node in graph.nodes:
    if "loss_scale" not in node.children:
      continue
    scale = graph.nodes[node.children["loss_scale"]]
    for api, layout in names.LAYOUTS.items():
      if set(layout) <= set(scale.children):
        state = next(states, None)
        if state is not None:
          values = layouts.scale_of(variables, state, api)
          for base, value in zip(layout, values):
            yield scale.children[base], value
        break


def _with_graph(
  bundle: Bundle, graph: ObjectGraph, renaming: bool = False
) -> layouts.Variables:
  """A checkpoint with that graph, and the tensors that are left in it."""
  graph.prune()
  sources: layouts.Variables = {}
  for _, attribute in graph.attributes():
    if attribute.key in bundle:
      old = attribute.key
      attribute.key = flat_key(old) if renaming else old
      sources[attribute.key] = Stored(bundle, old)
  sources[OBJECT_GRAPH] = Literal("string", graph.encode())
  return sources


def _graph_of(sources: layouts.Variables, bundle: Bundle) -> bytes:
  source = sources[OBJECT_GRAPH]
  if isinstance(source, Literal):
    assert isinstance(source.value, bytes)
    return source.value
  return bundle.string(OBJECT_GRAPH)
