# SPDX-License-Identifier: Apache-2.0
"""The object graph of an object-based checkpoint.

`TrackableObjectGraph` (trackable_object_graph.proto) has nodes with named
children, with attributes, which are the tensors, and with optimizers' slots.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
from typing import NamedTuple

from tf_compat_lossscale._core.bytes import wire as _wire
from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.bundle import OBJECT_GRAPH
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)

_CHILDREN, _ATTRIBUTES, _SLOTS = 1, 2, 3
_VALUE = "VARIABLE_VALUE"


@dataclasses.dataclass
class Attribute:
  """A tensor of an object.

  Attributes:
    name: The tensor's name in the object. A variable has `_VALUE`.
    full_name: The variable's name, by which a Saver would save it.
    key: The tensor's name in the checkpoint.
    other: All other fields, encoded.
  """

  name: str = ""
  full_name: str = ""
  key: str = ""
  other: bytes = b""


class Slot(NamedTuple):
  """An optimizer's slot.

  Attributes:
    variable: The number of the node of the variable.
    name: The slot's name.
    slot: The number of the node of the slot.
  """

  variable: int
  name: str
  slot: int


@dataclasses.dataclass
class Node:
  """An object.

  Attributes:
    children: Name -> the number of the child's node.
    attributes: The tensors of the object.
    slots: The slots of the object, if it is an optimizer.
    other: All other fields, encoded.
  """

  children: dict[str, int] = dataclasses.field(default_factory=dict)
  attributes: list[Attribute] = dataclasses.field(default_factory=list)
  slots: list[Slot] = dataclasses.field(default_factory=list)
  other: bytes = b""


class Paths(Mapping[int, str]):
  """Number of a node -> the shortest path from the root.

  A path is put together when it is asked for: the paths of a long chain of
  objects would need memory that grows with the square of its length.
  """

  def __init__(self, nodes: list[Node], barred: Collection[int]) -> None:
    # Number -> its parent, its name there, and the length of its path.
    self._edges: dict[int, tuple[int, str, int]] = {}
    if 0 not in barred:
      self._edges[0] = 0, "", 0
    queue = list(self._edges)
    for number in queue:
      size = self._edges[number][2]
      for name, child in nodes[number].children.items():
        if child not in self._edges and child not in barred:
          length = size + bool(size) + len(name)
          self._edges[child] = number, name, length
          queue.append(child)

  def __iter__(self) -> Iterator[int]:
    return iter(self._edges)

  def __len__(self) -> int:
    return len(self._edges)

  def __getitem__(self, number: int) -> str:
    return self.abbreviate(number, self._edges[number][2])

  def abbreviate(self, number: int, most: int) -> str:
    """Returns a node's path, or '…' and its end if it is too long.

    Args:
      number: The node.
      most: The number of characters from which on the path is too long.
    """
    parts, size = [], 0
    while self._edges[number][2]:
      if size > most:
        parts.append("…")
        break
      number, name, _ = self._edges[number]
      parts.append(name)
      size += len(name)
    return "/".join(reversed(parts))

  def find_short(self, most: int) -> Iterator[str]:
    """Yields the paths of at most `most` characters."""
    for number, (_, _, length) in self._edges.items():
      if length <= most:
        yield self[number]

  def find(self, path: str) -> set[int]:
    """Returns the nodes with a path."""
    return {
      number
      for number, (_, _, length) in self._edges.items()
      if length == len(path) and self[number] == path
    }


class ObjectGraph:
  """An object graph.

  Attributes:
    nodes: The objects, by number. The first is the root.
  """

  def __init__(self, data: bytes) -> None:
    """Parses an encoded graph.

    Args:
      data: The message's bytes.

    Raises:
      ValueError: The bytes are no such message.
    """
    self.nodes = [
      _parse_node(_wire.get_bytes(node)) for node in _wire.find(data, 1)
    ]
    self._values: dict[int, Attribute | None] = {}
    count = len(self.nodes)
    for node in self.nodes:
      numbers = [*node.children.values()]
      for slot in node.slots:
        numbers += [slot.variable, slot.slot]
      if not all(number < count for number in numbers):
        raise ValueError(
          "the object graph refers to an object that is not there"
        )
    if not self.nodes:
      raise ValueError("the object graph is empty")

  @classmethod
  def read(cls, bundle: Bundle) -> ObjectGraph:
    """Reads the graph of an object-based checkpoint.

    Args:
      bundle: The checkpoint.

    Returns:
      The graph.

    Raises:
      CheckpointError: The graph is damaged.
    """
    try:
      return cls(bundle.read_string(OBJECT_GRAPH))
    except CheckpointError:
      raise
    except (ValueError, IndexError) as error:
      raise CheckpointError(f"{bundle.prefix}: {error}") from None

  def encode(self) -> bytes:
    """Returns the message's bytes."""
    return b"".join(_wire.encode_field(1, _encode_node(n)) for n in self.nodes)

  def find_paths(self, barred: Collection[int] = ()) -> Paths:
    """Returns number -> the shortest path from the root; slots have none.

    Args:
      barred: The nodes that no path may pass.
    """
    return Paths(self.nodes, barred)

  def list_attributes(self) -> Iterator[tuple[Node, Attribute]]:
    """Yields (node, attribute) for every tensor."""
    for node in self.nodes:
      for attribute in node.attributes:
        yield node, attribute

  def find_value(self, number: int) -> Attribute | None:
    """Returns the tensor of a variable; None if the node is no variable."""
    if number not in self._values:
      self._values[number] = next(
        (a for a in self.nodes[number].attributes if a.name == _VALUE), None
      )
    return self._values[number]

  def prune(self) -> None:
    """Removes the nodes that the root does not reach, and numbers the rest."""
    queue = list(self.find_paths())
    kept = set(queue)
    waiting: dict[int, list[int]] = {}  # Variable -> slots, if it is kept.
    for number in queue:  # The queue grows meanwhile.
      found = waiting.pop(number, [])
      for slot in self.nodes[number].slots:
        if slot.variable in kept:
          found.append(slot.slot)
        else:
          waiting.setdefault(slot.variable, []).append(slot.slot)
      added = dict.fromkeys(n for n in found if n not in kept)
      kept.update(added)
      queue += added
    order = sorted(kept)
    new = {old: number for number, old in enumerate(order)}
    self.nodes = [self.nodes[old] for old in order]
    self._values.clear()
    for node in self.nodes:
      node.children = {
        name: new[child] for name, child in node.children.items()
      }
      node.slots = [
        Slot(new[slot.variable], slot.name, new[slot.slot])
        for slot in node.slots
        if slot.variable in new
      ]


def _parse_node(data: memoryview) -> Node:
  node, other = Node(), []
  for tag, value in _wire.read_fields(data):
    if tag == _CHILDREN:
      numbers, name = _parse_reference(_wire.get_bytes(value))
      node.children[name] = numbers.get(1, 0)
    elif tag == _ATTRIBUTES:
      node.attributes.append(_parse_attribute(_wire.get_bytes(value)))
    elif tag == _SLOTS:
      numbers, name = _parse_reference(_wire.get_bytes(value))
      node.slots.append(Slot(numbers.get(1, 0), name, numbers.get(3, 0)))
    else:
      other.append(_encode_field(tag, value))
  node.other = b"".join(other)
  return node


def _parse_attribute(data: memoryview) -> Attribute:
  attribute, other = Attribute(), []
  names = {1: "name", 2: "full_name", 3: "key"}
  for tag, value in _wire.read_fields(data):
    if tag in names:
      setattr(attribute, names[tag], _wire.get_text(value))
    else:
      other.append(_encode_field(tag, value))
  attribute.other = b"".join(other)
  return attribute


def _parse_reference(data: memoryview) -> tuple[dict[int, int], str]:
  """Parses a reference to nodes: a child or a slot.

  Returns:
    Number of a field -> the field's value, for integers; and the name.
  """
  numbers: dict[int, int] = {}
  name = ""
  for tag, value in _wire.read_fields(data):
    if tag == 2:
      name = _wire.get_text(value)
    else:
      numbers[tag] = _wire.get_number(value)
  return numbers, name


def _encode_field(tag: int, value: int | memoryview) -> bytes:
  return _wire.encode_field(
    tag, value if isinstance(value, int) else bytes(value)
  )


def _encode_node(node: Node) -> bytes:
  parts = [
    _wire.encode_field(
      _CHILDREN, _encode_number(1, number) + _wire.encode_field(2, name)
    )
    for name, number in node.children.items()
  ]
  for a in node.attributes:
    texts = ((1, a.name), (2, a.full_name), (3, a.key))
    encoded = b"".join(
      _wire.encode_field(tag, text) for tag, text in texts if text
    )
    parts.append(_wire.encode_field(_ATTRIBUTES, encoded + a.other))
  for slot in node.slots:
    parts.append(
      _wire.encode_field(
        _SLOTS,
        _encode_number(1, slot.variable)
        + _wire.encode_field(2, slot.name)
        + _encode_number(3, slot.slot),
      )
    )
  return b"".join(parts) + node.other


def _encode_number(tag: int, value: int) -> bytes:
  return _wire.encode_field(tag, value) if value else b""
