"""Which value of an object-based checkpoint each variable of objects is to get.

Objects and the graph of the checkpoint are walked side by side. Where the two
differ in how a loss scale is kept, the graph is changed.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
import dataclasses
from typing import Any
from typing import NamedTuple

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import tracking
from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec
from tf_compat_lossscale.checkpoint.files.object_graph import Attribute
from tf_compat_lossscale.checkpoint.files.object_graph import Node
from tf_compat_lossscale.checkpoint.files.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.files.sources import Literal
from tf_compat_lossscale.checkpoint.files.sources import Source
from tf_compat_lossscale.checkpoint.files.sources import Stored
from tf_compat_lossscale.checkpoint.layouts import bridging as layouts
from tf_compat_lossscale.checkpoint.layouts import names

BASE, SCALE = "base_optimizer", "loss_scale"
_KERAS = {"iter", "_iterations"}  # Keras's optimizers have one of them.
_WRAPPED_HERE = "the optimizer had no loss scale there"
_WRAPPED_THERE = "the optimizer's own, which had a loss scale there"
_OTHER_API = "the same loss scale, as {} has it"
_OLD_PLACE = "the optimizer's, as up to TensorFlow 2.2"


@dataclasses.dataclass
class Found:
  """A variable of the objects, and what is in the checkpoint for it.

  Attributes:
    variable: The variable.
    path: Where it is in the objects.
    what: What it is, for messages.
    keys: Key -> how it was found, empty if that is by the variable's own path.
    nodes: The nodes that are for it, or may be.
    parent: The object that has it, and the name that it has there.
    is_new_scale: Whether it is a loss scale's and the checkpoint has none for
      the optimizer.
  """

  variable: Any
  path: str
  what: str = ""
  keys: dict[str, str] = dataclasses.field(default_factory=dict)
  nodes: set[int] = dataclasses.field(default_factory=set)
  parent: tuple[Any, str] = (None, "")
  is_new_scale: bool = False


@dataclasses.dataclass
class Owner:
  """An optimizer, and its nodes: number -> how it was found."""

  optimizer: Any
  path: str
  nodes: dict[int, str] = dataclasses.field(default_factory=dict)


class _Step(NamedTuple):
  """An object to visit, the node that is for it, and how that was found."""

  item: Any
  number: int | None
  path: str
  proof: str = ""
  parent: tuple[Any, str] = (None, "")
  is_new_scale: bool = False


class Bridge:
  """Objects beside the graph of a checkpoint.

  Attributes:
    found: The variables, by identity; slots after those that they belong to.
    owners: The optimizers that answer for slots, by identity.
    literals: Key -> a value that the checkpoint does not have as it is.
    made_up: The keys of those for which it has nothing.
    met: The nodes that belong to objects.
    changed: Whether the graph is not the checkpoint's any more.
  """

  def __init__(self, bundle: Bundle, graph: ObjectGraph) -> None:
    """Takes a checkpoint and its graph, which may be changed."""
    self._bundle, self._graph = bundle, graph
    self._replaced: dict[tuple[int, int], tuple[int, str]] = {}
    self._owned: dict[int, dict[int, int]] = {}
    self._scales: dict[tuple[int, str], int] = {}
    self._visited: set[tuple[int, str]] = set()
    self._alive: list[Any] = []  # So that an identity stays one object's.
    self.found: dict[int, Found] = {}
    self.owners: dict[int, Owner] = {}
    self.literals: dict[str, Literal] = {}
    self.made_up: set[str] = set()
    self.met: set[int] = set()
    self.changed = False

  def walk(self, root: Any, attached: dict[str, Any]) -> None:
    """Walks from the root on.

    Args:
      root: The first object.
      attached: What else a checkpoint has below the root.
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
        self.met.add(step.number)
      if step.path == "save_counter":
        continue  # TensorFlow's own.
      if is_variable(step.item):
        self._add_variable(step)
        continue
      children = tracking.list_children(step.item)
      if step.item is root:
        children |= attached
      queue.extend(self._next(step, children))
    self._replace_elsewhere()

  def _add_variable(self, step: _Step) -> None:
    found = self.found.setdefault(
      id(step.item), Found(step.item, step.path, parent=step.parent)
    )
    first = not found.keys
    if step.number is None or not self._give(found, step.number, step.proof):
      found.is_new_scale |= step.is_new_scale
    elif first:
      found.path = step.path

  def _give(self, found: Found, number: int, proof: str) -> bool:
    """Notes that a node is for a variable; returns whether it has a value."""
    found.nodes.add(number)
    attribute = self._graph.value(number)
    if attribute is None or self.tensor(attribute.key) is None:
      return False
    found.keys.setdefault(attribute.key, proof)
    return True

  def tensor(self, key: str) -> TensorSpec | None:
    """The dtype and shape of a value; None if there is none of that key."""
    if key in self.literals:
      return self.literals[key].spec
    return self._bundle.spec(key) if key in self._bundle else None

  def _next(self, step: _Step, children: dict[str, Any]) -> Iterator[_Step]:
    """What is below an object."""
    item, number, path = step.item, step.number, step.path
    node = self._graph.nodes[number] if number is not None else Node()
    there, proofs = dict(node.children), dict.fromkeys(children, step.proof)
    nodes = {} if number is None else {number: step.proof}
    is_optimizer = callable(getattr(item, "apply_gradients", None))
    inner = children.get(BASE)
    if hasattr(inner, "restores_for") and BASE in there:
      # It has what is there restored as its own, so no edge is changed.
      old = self._graph.nodes[there[BASE]]
      self.met.add(there[BASE])
      nodes[there[BASE]] = _OLD_PLACE
      proofs.update(dict.fromkeys(old.children, _OLD_PLACE))
      there = {**old.children, **there}
    # What wraps another one would answer for that one's slots.
    answers = all(hasattr(item, n) for n in ("get_slot", "get_slot_names"))
    if answers and not hasattr(inner, "get_slot"):
      owner = self.owners.setdefault(id(item), Owner(item, path))
      owner.nodes.update(nodes)
    is_new_scale = is_optimizer and number is not None
    if is_optimizer and SCALE in children and SCALE in there:
      is_new_scale = not self._has_values(there[SCALE])
      there[SCALE], proof = self._scale_for(children[SCALE], there[SCALE])
      proofs[SCALE] = proof or proofs[SCALE]
    for name, child in children.items():
      to, proof = there.get(name), proofs[name]
      if to is not None:
        to, why = self._bridged(child, to)
        proof = why or proof
        if not is_variable(child):
          to = self._own(child, to)
        if number is not None and name in node.children:
          self._visited.add((number, name))
          if node.children[name] != to:
            node.children[name] = to
            self.changed = True
      new = (name == SCALE and is_new_scale) or step.is_new_scale
      below = f"{path}/{name}".lstrip("/")
      yield _Step(child, to, below, proof, (item, name), new)

  def _own(self, item: Any, number: int) -> int:
    """A node for one object alone, as TensorFlow restores no other one."""
    self._alive.append(item)
    own = self._owned.setdefault(number, {id(item): number})
    if id(item) not in own:
      node = self._graph.nodes[number]
      self._graph.nodes.append(
        Node(dict(node.children), node.attributes, list(node.slots), node.other)
      )
      own[id(item)] = len(self._graph.nodes) - 1
    return own[id(item)]

  def _has_values(self, number: int) -> bool:
    numbers = self._graph.nodes[number].children.values()
    return any(self._graph.value(number) for number in numbers)

  def _bridged(self, item: Any, number: int) -> tuple[int, str]:
    """The node for an object, and why it is another than its path's."""
    if not callable(getattr(item, "apply_gradients", None)):
      return number, ""
    key = id(item), number
    if key not in self._replaced:
      self._replaced[key] = self._bridge(item, number)
      self._alive.append(item)
    return self._replaced[key]

  def _bridge(self, optimizer: Any, number: int) -> tuple[int, str]:
    children = tracking.list_children(optimizer)
    node = self._graph.nodes[number]
    if node.children.keys() & _KERAS:
      return number, ""
    wraps = SCALE in children and hasattr(children.get(BASE), "get_slot")
    if wraps and not node.children.keys() & {BASE, SCALE}:
      # Saved without loss scaling: what is here goes to the wrapped optimizer.
      self._graph.nodes.append(Node({BASE: number}))
      self.met.add(len(self._graph.nodes) - 1)
      return len(self._graph.nodes) - 1, _WRAPPED_HERE
    wrapped = {BASE, SCALE} <= node.children.keys() and not node.slots
    if wrapped and not children.keys() & {BASE, SCALE}:
      return node.children[BASE], _WRAPPED_THERE
    return number, ""

  def _scale_for(self, scale: Any, number: int) -> tuple[int, str]:
    """A loss scale's node, of the API that the object is of."""
    old = self._graph.nodes[number]
    have = set(tracking.list_children(scale))
    for api, layout in names.LAYOUTS.items():
      other = next(a for a in names.LAYOUTS if a != api)
      theirs = names.LAYOUTS[other]
      if set(layout) != have or not set(theirs) <= set(old.children):
        continue
      if set(layout) <= set(old.children):
        return number, ""
      sources: layouts.Variables = {}
      for base in theirs:
        attribute = self._graph.value(old.children[base])
        if attribute is None or attribute.key not in self._bundle:
          return number, ""
        sources[base] = Stored(self._bundle, attribute.key)
      self.met.add(number)
      if (number, api) not in self._scales:
        state = names.State(other, "", tuple(theirs))
        new = Node()
        for base, value in zip(layout, layouts.scale_of(sources, state, api)):
          new.children[base] = self._add(base, value, sources)
        self._graph.nodes.append(new)
        self._scales[number, api] = len(self._graph.nodes) - 1
      return self._scales[number, api], _OTHER_API.format(other)
    return number, ""

  def _add(self, base: str, value: Source, sources: layouts.Variables) -> int:
    """Adds a variable's node; returns its number."""
    if isinstance(value, Literal):
      key = f"bridged/{len(self.literals)}/.ATTRIBUTES/VARIABLE_VALUE"
      if not value.origin:
        self.made_up.add(key)
      source = sources.get(value.origin, next(iter(sources.values())))
      assert isinstance(source, Stored)
      self.literals[key] = dataclasses.replace(value, origin=source.name)
    else:
      key = value.name
    attribute = Attribute("VARIABLE_VALUE", base, key)
    self._graph.nodes.append(Node(attributes=[attribute]))
    return len(self._graph.nodes) - 1

  def _replace_elsewhere(self) -> None:
    """Changes what was not walked alike: objects may come there later."""
    new: dict[int, set[int]] = {}
    made = {to for to, _ in self._replaced.values()}
    for (_, old), (to, _) in self._replaced.items():
      new.setdefault(old, set()).add(to)
    for number, node in enumerate(self._graph.nodes):
      for name, child in node.children.items():
        others = new.get(child, set())
        if number in made and name == BASE:
          continue
        if len(others) == 1 and (number, name) not in self._visited:
          (node.children[name],) = others
          self.changed |= others != {child}

  def add_slots(self) -> list[Found]:
    """Adds the slots that optimizers have now; returns those that are new."""
    places = {
      (number, slot.variable, slot.name): slot.slot
      for owner in self.owners.values()
      for number in owner.nodes
      for slot in self._graph.nodes[number].slots
    }
    new = []
    variables = [f for f in self.found.values() if f.parent[0] is not None]
    for owner in self.owners.values():
      for name in owner.optimizer.get_slot_names():
        for primary in variables:
          slot = slot_of(owner.optimizer, primary.variable, name)
          if slot is None or id(slot) in self.found:
            continue
          path = f"{primary.path}/.OPTIMIZER_SLOT/{owner.path}/{name}"
          what = f"slot {name!r} of {owner.path} for {primary.path}"
          found = self.found[id(slot)] = Found(slot, path, what)
          new.append(found)
          for number, why in owner.nodes.items():
            for variable in primary.nodes:
              to = places.get((number, variable, name))
              if to is not None:
                self.met.add(to)
                whys = filter(None, [why, *primary.keys.values()])
                self._give(found, to, next(whys, ""))
    return new

  def strangers(self) -> Iterator[tuple[str, Any]]:
    """Yields optimizers' variables for variables that are no objects."""
    for owner in self.owners.values():
      if isinstance(owner.optimizer, tf.compat.v1.train.Optimizer):
        for variable in owner.optimizer.variables():
          if id(variable) not in self.found:
            name = variable.name.split(":")[0]
            yield f"{owner.path}/{name}", variable


def is_variable(item: Any) -> bool:
  """Whether an object has one value: TensorFlow's variables and Keras 3's."""
  keras_3 = ("assign", "shape", "dtype", "path", "_serialize_to_tensors")
  return isinstance(item, tf.Variable) or all(
    hasattr(item, name) for name in keras_3
  )


def slot_of(optimizer: Any, variable: Any, name: str) -> Any:
  """An optimizer's slot for a variable; None if it has none."""
  try:
    return optimizer.get_slot(variable, name)
  except (AttributeError, KeyError):  # As TensorFlow's own checkpoints do.
    return None
