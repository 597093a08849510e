"""Restores object-based checkpoints into objects that may be others."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale import _tf
from tf_compat_lossscale.checkpoint import _errors
from tf_compat_lossscale.checkpoint import describing
from tf_compat_lossscale.checkpoint import layouts
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint import writing
from tf_compat_lossscale.checkpoint.bundle import Bundle
from tf_compat_lossscale.checkpoint.bundle import OBJECT_GRAPH
from tf_compat_lossscale.checkpoint.bundle import Tensor
from tf_compat_lossscale.checkpoint.object_graph import Attribute
from tf_compat_lossscale.checkpoint.object_graph import Node
from tf_compat_lossscale.checkpoint.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.report import Report
from tf_compat_lossscale.checkpoint.writing import Literal

_BASE, _SCALE = "base_optimizer", "loss_scale"


def restore(session: Any, bundle: Bundle, objects: Any) -> Report:
  """Restores by object."""
  root = (
    tf.train.Checkpoint(**objects) if isinstance(objects, dict) else objects
  )
  if not hasattr(root, "restore"):
    root = tf.train.Checkpoint(root)
  bundle.check()
  graph = describing.object_graph(bundle)
  bridge = _Bridge(bundle, graph)
  bridge.walk(root)
  bridge.raise_for_misfits()
  unused = bridge.unused()
  prefix = bridge.write() if bridge.changed else bundle.prefix
  status = root.restore(prefix)
  status.expect_partial()  # The report says what is not used.
  if session is not None:
    status.initialize_or_restore(session)
  return Report(
    bundle.prefix,
    restored=bridge.restored,
    bridged=bridge.bridged,
    initialized=bridge.initialized,
    unused=unused,
  )


def variables(objects: Any) -> list[tf.Variable]:
  """All variables that objects have now."""
  found: dict[int, Any] = {}
  queue = list(objects.values()) if isinstance(objects, dict) else [objects]
  seen = set()
  while queue:
    item = queue.pop(0)
    if id(item) in seen:
      continue
    seen.add(id(item))
    if isinstance(item, tf.Variable):
      found[id(item)] = item
    elif isinstance(item, tf.compat.v1.train.Optimizer):
      for variable in item.variables():
        found[id(variable)] = variable
    queue += _tf.children(item).values()
  return list(found.values())


class _Bridge:
  """Walks objects and the graph of a checkpoint side by side.

  Where the two differ in how a loss scale is kept, the graph is changed.

  Attributes:
    restored: Path of a variable -> key.
    bridged: Path of a variable -> key that is found elsewhere than there.
    initialized: Path -> why it keeps its initial value.
    met: The nodes that belong to objects.
    changed: Whether the graph is not the checkpoint's any more.
  """

  def __init__(self, bundle: Bundle, graph: ObjectGraph) -> None:
    self._bundle, self._graph = bundle, graph
    self._literals: dict[str, Literal] = {}
    self._missing: list[tuple[str, str]] = []
    self._problems: list[str] = []
    self.restored: dict[str, str] = {}
    self.bridged: dict[str, str] = {}
    self.initialized: dict[str, str] = {}
    self.met: set[int] = set()
    self.changed = False

  def walk(self, root: Any) -> None:
    """Walks from the root on."""
    queue: list[tuple[Any, int | None, str, bool]] = [(root, 0, "", False)]
    seen = set()
    while queue:
      item, number, path, moved = queue.pop(0)
      if id(item) in seen or path == "save_counter":
        continue
      seen.add(id(item))
      if number is not None:
        self.met.add(number)
      if isinstance(item, tf.Variable):
        self._variable(item, number, path, moved)
        continue
      children = _tf.children(item)
      if number is not None:
        number, here = self._reconciled(children, number)
        moved = moved or here
      node = self._graph.nodes[number] if number is not None else Node()
      for name, child in children.items():
        next_path = f"{path}/{name}".lstrip("/")
        queue.append((child, node.children.get(name), next_path, moved))

  def _variable(
    self, variable: Any, number: int | None, path: str, moved: bool
  ) -> None:
    attribute = self._graph.value(number) if number is not None else None
    if attribute is not None:
      here = Tensor(variable.dtype.base_dtype.name, tuple(variable.shape))
      there = self._tensor(attribute.key)
      if there not in (None, here) and variable.shape.is_fully_defined():
        self._problems.append(f"{path} is {here} but {there} in it")
      (self.bridged if moved else self.restored)[path] = attribute.key
    elif f"/{_SCALE}/" in f"/{path}":
      self.initialized[path] = "the checkpoint has no loss scale for it"
    else:
      self._missing.append((path, variable.name))

  def _tensor(self, key: str) -> Tensor | None:
    if key in self._literals:
      return self._literals[key].tensor
    return self._bundle.tensor(key) if key in self._bundle else None

  def _reconciled(
    self, children: dict[str, Any], number: int
  ) -> tuple[int, bool]:
    """The node for an object, and whether it had to be changed or found.

    Args:
      children: Those of the object.
      number: The node that is called as the object is.
    """
    node = self._graph.nodes[number]
    wraps = _BASE in children and _SCALE in children
    wrapped = _BASE in node.children and not node.slots
    keras = "iter" in node.children or "_iterations" in node.children
    if wraps and not wrapped and not keras and _SCALE not in node.children:
      # Saved without loss scaling: what is here goes to the wrapped optimizer.
      new = len(self._graph.nodes)
      self._graph.replace_children(
        lambda child: new if child == number else child
      )
      self._graph.nodes.append(Node({_BASE: number}))
      self.changed = True
      return new, True
    if wrapped and _BASE not in children and _SCALE not in children:
      base = node.children[_BASE]
      self._graph.replace_children(
        lambda child: base if child == number else child
      )
      self.changed = True
      return base, True
    if _SCALE in children and _SCALE in node.children:
      return number, self._reconcile_scale(children[_SCALE], node)
    return number, False

  def _reconcile_scale(self, scale: Any, node: Node) -> bool:
    """Has a loss scale's node be of the API that the object is of."""
    old = self._graph.nodes[node.children[_SCALE]]
    have = set(_tf.children(scale))
    for api, layout in names.LAYOUTS.items():
      other = next(a for a in names.LAYOUTS if a != api)
      theirs = names.LAYOUTS[other]
      if set(layout) != have or not set(theirs) <= set(old.children):
        continue
      if set(layout) <= set(old.children):
        return False
      sources: layouts.Variables = {}
      for base in theirs:
        attribute = self._graph.value(old.children[base])
        if attribute is None or attribute.key not in self._bundle:
          return False
        sources[base] = writing.Stored(self._bundle, attribute.key)
      state = names.State(other, "", tuple(theirs))
      new = Node()
      for base, value in zip(layout, layouts.scale_of(sources, state, api)):
        new.children[base] = self._add(base, value)
      self._graph.nodes.append(new)
      node.children[_SCALE] = len(self._graph.nodes) - 1
      self.changed = True
      return True
    return False

  def _add(self, base: str, value: writing.Source) -> int:
    if isinstance(value, Literal):
      key = f"bridged/{len(self._literals)}/.ATTRIBUTES/VARIABLE_VALUE"
      self._literals[key] = value
    else:
      key = value.name
    attribute = Attribute("VARIABLE_VALUE", base, key)
    self._graph.nodes.append(Node(attributes=[attribute]))
    return len(self._graph.nodes) - 1

  def raise_for_misfits(self) -> None:
    """Raises for variables that the checkpoint has nothing for, or another."""
    known = list(self._graph.paths().values())
    missing = [
      f"{path} ({name}){_errors.nearest(path, known)} is not in it"
      for path, name in self._missing[: _errors.MOST]
    ]
    count = len(self._missing) + len(self._problems)
    if count:
      listed = (missing + self._problems)[: _errors.MOST]
      raise _errors.misfit(self._bundle.prefix, listed, count)

  def unused(self) -> tuple[str, ...]:
    """The keys of what no object is for, but for slots: those may come."""
    used = {*self.restored.values(), *self.bridged.values()}
    slots = {slot.slot for node in self._graph.nodes for slot in node.slots}
    return tuple(
      sorted(
        attribute.key
        for number, node in enumerate(self._graph.nodes)
        if number not in self.met and number not in slots
        for attribute in node.attributes
        if attribute.key not in used and attribute.key in self._bundle
      )
    )

  def write(self) -> str:
    """Writes the changed graph where TensorFlow can read it."""
    self._graph.prune()
    sources: layouts.Variables = {
      name: writing.Stored(self._bundle, name) for name in self._bundle.names
    }
    sources.update(self._literals)
    sources[OBJECT_GRAPH] = Literal("string", self._graph.encode())
    folder = tempfile.mkdtemp(prefix="tf_compat_lossscale-")
    # What is made later is restored later, from there.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return writing.overlay(folder, self._bundle, sources)
