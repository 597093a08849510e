# SPDX-License-Identifier: Apache-2.0
"""Parses an encoded GraphDef (graph.proto, function.proto, node_def.proto)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tf_compat_lossscale._core.bytes import wire as _wire

REFERENCES = {"Variable", "VariableV2"}  # TensorFlow 1's variables.
VARIABLES = {"VarHandleOp", *REFERENCES}
# The dtypes of numbers that `find_number` reads: number of the dtype -> the
# field of a tensor that lists its values, and the dtype of NumPy.
_NUMBERS = {1: (5, "<f4"), 2: (6, "<f8"), 3: (7, "<i4"), 9: (10, "<i8")}
_CONTENT = 4  # The field that has the values' bytes.


class NodeDef(NamedTuple):
  """An op of a graph or of a function.

  Attributes:
    name: The op's name.
    op: The op's type.
    inputs: The names of its inputs, control inputs left out.
    attributes: The encoded attributes.
  """

  name: str
  op: str
  inputs: tuple[str, ...]
  attributes: tuple[memoryview, ...]


class Function(NamedTuple):
  """A function of a graph's library.

  Attributes:
    arguments: The names of the arguments.
    results: The names of the returned tensors inside of the function.
    result_names: The name of each result for callers -> its number.
    nodes: The ops.
  """

  arguments: list[str]
  results: list[str]
  result_names: dict[str, int]
  nodes: list[NodeDef]


class Graph(NamedTuple):
  """A graph.

  Attributes:
    nodes: The ops, without those of functions.
    library: Name -> function.
  """

  nodes: list[NodeDef]
  library: dict[str, Function]


def parse_graph(data: bytes | memoryview) -> Graph:
  """Parses an encoded GraphDef.

  Raises:
    ValueError, KeyError: The bytes are no GraphDef.
  """
  graph = Graph(_parse_nodes(_wire.find(data, 1)), {})
  for function in _wire.find(data, 2, 1):
    graph.library.update(_parse_function(_wire.get_bytes(function)))
  return graph


def _parse_nodes(nodes: Iterable[int | memoryview]) -> list[NodeDef]:
  return [parse_node(_wire.get_bytes(node)) for node in nodes]


def _parse_function(data: memoryview) -> dict[str, Function]:
  """Parses an encoded FunctionDef; returns the name -> the function."""
  (name,) = map(_wire.get_text, _wire.find(data, 1, 1))
  arguments = list(map(_wire.get_text, _wire.find(data, 1, 2, 1)))
  result_names = list(map(_wire.get_text, _wire.find(data, 1, 3, 1)))
  returned: dict[str, str] = {}
  for entry in _wire.find(data, 4):
    pair = dict(_wire.read_fields(_wire.get_bytes(entry)))
    returned[_wire.get_text(pair[1])] = _wire.get_text(pair[2])
  results = [returned[result] for result in result_names]
  numbers = {result: i for i, result in enumerate(result_names)}
  nodes = _parse_nodes(_wire.find(data, 3))
  return {name: Function(arguments, results, numbers, nodes)}


def parse_node(data: memoryview) -> NodeDef:
  """Parses an encoded NodeDef."""
  name = op = ""
  inputs, attributes = [], []
  for tag, value in _wire.read_fields(data):
    if tag == 3:
      text = _wire.get_text(value)
      if not text.startswith("^"):
        inputs.append(text)
    elif tag == 5:
      attributes.append(_wire.get_bytes(value))
    elif tag == 1:
      name = _wire.get_text(value)
    elif tag == 2:
      op = _wire.get_text(value)
  return NodeDef(name, op, tuple(inputs), tuple(attributes))


def find_tensor(node: NodeDef) -> memoryview | None:
  """Returns the encoded TensorProto of a constant; None if there is none."""
  for data in node.attributes:
    entry = dict(_wire.read_fields(data))
    if _wire.get_text(entry[1]) == "value":
      value = dict(_wire.read_fields(_wire.get_bytes(entry[2]))).get(8)
      return value if isinstance(value, memoryview) else None
  return None


def find_functions(node: NodeDef) -> dict[str, list[str]]:
  """Returns the names of the functions in an op's attributes."""
  found: dict[str, list[str]] = {}
  for data in node.attributes:
    entry = dict(_wire.read_fields(data))
    key = _wire.get_text(entry[1])
    path = (1, 9, 1) if key == "branches" else (10, 1)
    names = _wire.find(_wire.get_bytes(entry[2]), *path)
    if functions := list(map(_wire.get_text, names)):
      found[key] = functions
  return found


def find_number(node: NodeDef) -> float | int | None:
  """Returns a constant's value if the constant is a scalar number.

  Args:
    node: Any op.

  Returns:
    The value of a float32, float64, int32 or int64 scalar; None for all else.

  Raises:
    ValueError: The bytes are no tensor.
  """
  value = find_tensor(node) if node.op == "Const" else None
  if value is None:
    return None
  fields = dict(_wire.read_fields(value))
  dtype, shape = fields.get(1), fields.get(2)
  if dtype not in _NUMBERS or (isinstance(shape, memoryview) and len(shape)):
    return None
  field, element = _NUMBERS[dtype]
  code = np.dtype(element)
  found = fields.get(_CONTENT) or fields.get(field, 0)  # A 0 is left out.
  if code.kind == "i" and _CONTENT not in fields:
    if not isinstance(found, int):  # The field is packed.
      found, _ = _wire.read_varint(found, 0)
    return _wire.decode_signed(found)
  data = (
    found.to_bytes(code.itemsize, "little") if isinstance(found, int) else found
  )
  number: float | int = np.frombuffer(data, code).item()
  return number
