# SPDX-License-Identifier: Apache-2.0
"""Changes a checkpoint's object graph so that a program's objects fit it.

`tf.train.Checkpoint` restores by paths: the value at `opt/base_optimizer/m`
goes to the object at that path. If the program wraps its optimizer in a loss
scale optimizer, but the program that wrote the checkpoint did not, then all
paths below differ by one edge. Five differences are bridged:

    the program has           the checkpoint has     the graph is changed so
    opt -> base_optimizer     opt                    a new node between
    opt                       opt -> base_optimizer  the inner node in its place
    opt with a loss scale     opt -> base_optimizer  a node with all their edges
    current_loss_scale        loss_scale             converted variables
    two objects               one node               a copy of the node

This module changes the graph. `checkpoint/_object_walk.py` walks the program's
objects beside the graph and asks for the changes.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set
import dataclasses

from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec
from tf_compat_lossscale.checkpoint.files.object_graph import Attribute
from tf_compat_lossscale.checkpoint.files.object_graph import Node
from tf_compat_lossscale.checkpoint.files.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.files.values import Literal
from tf_compat_lossscale.checkpoint.files.values import Source
from tf_compat_lossscale.checkpoint.files.values import Sources
from tf_compat_lossscale.checkpoint.files.values import Stored
from tf_compat_lossscale.checkpoint.layouts.names import BASE_OPTIMIZER
from tf_compat_lossscale.checkpoint.layouts.names import LOSS_SCALE
from tf_compat_lossscale.checkpoint.layouts.names import SCALE_TENSORS
from tf_compat_lossscale.checkpoint.layouts.names import ScaleNames
from tf_compat_lossscale.checkpoint.layouts.scale_bridges import convert_scale

_KERAS = {"iter", "_iterations"}  # Each optimizer of Keras has one of these.
_WRAPPED_HERE = "the optimizer had no loss scale there"
_OWN_THERE = "the optimizer had a loss scale without a wrapper there"
_WRAPPED_THERE = "the optimizer's own, which had a loss scale there"
_OTHER_API = "the same loss scale, as {} has it"


class GraphBridge:
  """An object graph that is changed to fit a program's objects.

  Attributes:
    graph: The graph.
    literals: Key -> a value that the checkpoint does not have in that form.
    made_up: The keys in `literals` for which the checkpoint has nothing.
    met: The numbers of the nodes that belong to objects of the program.
    is_changed: Whether the graph differs from the checkpoint's.
  """

  def __init__(self, bundle: Bundle, graph: ObjectGraph) -> None:
    """Takes a checkpoint and its graph, which will be changed in place."""
    self._bundle = bundle
    # (identity of an optimizer, number) -> (number of its own node, proof).
    self._replaced: dict[tuple[int, int], tuple[int, str]] = {}
    # Number -> identity of an object -> the number of its own copy.
    self._copies: dict[int, dict[int, int]] = {}
    # (number, API) -> the number of the converted loss scale.
    self._scales: dict[tuple[int, str], int] = {}
    # Edges: (number, child's name).
    self._visited: set[tuple[int, str]] = set()
    self.graph = graph
    self.literals: dict[str, Literal] = {}
    self.made_up: set[str] = set()
    self.met: set[int] = set()
    self.is_changed = False

  def get_tensor(self, key: str) -> TensorSpec | None:
    """Returns the dtype and shape of a value; None if there is no such key."""
    if key in self.literals:
      return self.literals[key].spec
    return self._bundle.specs.get(key)

  def get_key(self, number: int) -> str | None:
    """Returns the key of a variable's value; None if there is no value."""
    attribute = self.graph.find_value(number)
    if attribute is None or self.get_tensor(attribute.key) is None:
      return None
    return attribute.key

  def has_variables(self, number: int) -> bool:
    """Returns whether a node has variables as children."""
    numbers = self.graph.nodes[number].children.values()
    return any(self.graph.find_value(child) for child in numbers)

  def set_child(self, number: int, name: str, child: int) -> None:
    """Directs the edge `name` of a node to another node."""
    self._visited.add((number, name))
    children = self.graph.nodes[number].children
    if children[name] != child:
      children[name] = child
      self.is_changed = True

  def get_own_node(self, identity: int, number: int) -> int:
    """Returns a node that belongs to one object alone.

    TensorFlow restores each node into one object. If the program has two
    objects for the node, the second gets a copy of the node.

    Args:
      identity: The `id` of the object.
      number: The node.
    """
    copies = self._copies.setdefault(number, {identity: number})
    if identity not in copies:
      node = self.graph.nodes[number]
      copies[identity] = self._add_node(
        Node(dict(node.children), node.attributes, list(node.slots), node.other)
      )
    return copies[identity]

  def bridge_optimizer(
    self,
    identity: int,
    children: Collection[str],
    has_compat_inner: bool,
    number: int,
  ) -> tuple[int, str]:
    """Finds the node for an optimizer that is wrapped here or there alone.

    Args:
      identity: The `id` of the optimizer.
      children: The names of the objects that the optimizer tracks.
      has_compat_inner: Whether the optimizer wraps one with slots of its own.
      number: The node at the optimizer's path.

    Returns:
      The node, and why it is not the node at the path; '' if it is.
    """
    key = identity, number
    if key not in self._replaced:
      self._replaced[key] = self._find_optimizer(
        set(children), has_compat_inner, number
      )
    return self._replaced[key]

  def _find_optimizer(
    self, children: set[str], has_compat_inner: bool, number: int
  ) -> tuple[int, str]:
    node = self.graph.nodes[number]
    wrapper = {BASE_OPTIMIZER, LOSS_SCALE}
    if node.children.keys() & _KERAS:
      return number, ""
    wraps = LOSS_SCALE in children and has_compat_inner
    if wraps and BASE_OPTIMIZER not in node.children:
      # Saved without a wrapper: the node is the wrapped optimizer's.
      scale = node.children.get(LOSS_SCALE)
      edges = {} if scale is None else {LOSS_SCALE: scale}
      new = self._add_node(Node({BASE_OPTIMIZER: number} | edges))
      self.met.add(new)
      return new, _OWN_THERE if edges else _WRAPPED_HERE
    was_wrapped = wrapper <= node.children.keys() and not node.slots
    if was_wrapped and BASE_OPTIMIZER not in children:
      inner = node.children[BASE_OPTIMIZER]
      if LOSS_SCALE not in children:
        return inner, _WRAPPED_THERE
      old = self.graph.nodes[inner]
      edges = old.children | {LOSS_SCALE: node.children[LOSS_SCALE]}
      self.met |= {number, inner}
      both = Node(edges, old.attributes, list(old.slots), old.other)
      return self._add_node(both), _WRAPPED_THERE
    return number, ""

  def bridge_scale(self, variables: Set[str], number: int) -> tuple[int, str]:
    """Finds the node for a loss scale that may be of another API there.

    Args:
      variables: The names of the loss scale's variables.
      number: The node of a loss scale.

    Returns:
      The node and the proof. If the loss scale was converted, the node is new;
      otherwise the proof is ''.
    """
    old = self.graph.nodes[number]
    for api, wanted in SCALE_TENSORS.items():
      other = next(a for a in SCALE_TENSORS if a != api)
      given = SCALE_TENSORS[other]
      if not wanted.keys() <= variables or (
        not given.keys() <= old.children.keys()
      ):
        continue
      if wanted.keys() <= old.children.keys():
        return number, ""
      sources: Sources = {}
      for base in given:
        attribute = self.graph.find_value(old.children[base])
        if attribute is None or attribute.key not in self._bundle.specs:
          return number, ""
        sources[base] = Stored(self._bundle, attribute.key)
      self.met.add(number)
      if (number, api) not in self._scales:
        scale = ScaleNames(other, "", tuple(given))
        new = Node()
        for base, source in zip(wanted, convert_scale(sources, scale, api)):
          new.children[base] = self._add_variable(base, source, sources)
        self._scales[number, api] = self._add_node(new)
      return self._scales[number, api], _OTHER_API.format(other)
    return number, ""

  def _add_variable(self, name: str, source: Source, sources: Sources) -> int:
    """Adds a variable's node.

    Args:
      name: The variable's name.
      source: Its value.
      sources: The variables of the loss scale that was converted.

    Returns:
      The number of the node.
    """
    if isinstance(source, Literal):
      key = f"bridged/{len(self.literals)}/.ATTRIBUTES/VARIABLE_VALUE"
      if not source.origin:
        self.made_up.add(key)
        first = next(iter(sources.values())).origin
        source = dataclasses.replace(source, origin=first)
      self.literals[key] = source
    else:
      key = source.name
    attribute = Attribute("VARIABLE_VALUE", name, key)
    return self._add_node(Node(attributes=[attribute]))

  def _add_node(self, node: Node) -> int:
    self.graph.nodes.append(node)
    return len(self.graph.nodes) - 1

  def replace_elsewhere(self) -> None:
    """Directs edges that were not walked to the replacing nodes.

    An object may come to such an edge after the restore, and TensorFlow then
    restores the object from the graph.
    """
    replacements: dict[int, set[int]] = {}
    new = {to for to, _ in self._replaced.values()}
    for (_, old), (to, _) in self._replaced.items():
      replacements.setdefault(old, set()).add(to)
    for number, node in enumerate(self.graph.nodes):
      for name, child in node.children.items():
        if number in new and name == BASE_OPTIMIZER:
          continue
        found = replacements.get(child, set())
        if len(found) == 1 and (number, name) not in self._visited:
          (node.children[name],) = found
          self.is_changed |= found != {child}
