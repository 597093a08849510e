# SPDX-License-Identifier: Apache-2.0
"""Parses the ops of an encoded GraphDef (node_def.proto, attr_value.proto)."""

from __future__ import annotations

from typing import NamedTuple

from tf_compat_lossscale._core.bytes import wire as _wire

REFERENCES = {"Variable", "VariableV2"}  # TensorFlow 1's variables.
VARIABLES = {"VarHandleOp", *REFERENCES}
_FLOATS = {1, 2, 14, 19}  # float32, float64, bfloat16 and float16.


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


def find_attribute(node: NodeDef, name: str) -> dict[int, int | memoryview]:
  """Returns the fields of an op's attribute (an AttrValue), {} if missing."""
  for data in node.attributes:
    entry = dict(_wire.read_fields(data))
    if _wire.get_text(entry[1]) == name:
      return dict(_wire.read_fields(_wire.get_bytes(entry[2])))
  return {}


def find_functions(node: NodeDef) -> dict[str, list[str]]:
  """Returns the names of the functions in an op's attributes."""
  found: dict[str, list[str]] = {}
  for data in node.attributes:
    entry = dict(_wire.read_fields(data))
    key = _wire.get_text(entry[1])
    for tag, value in _wire.read_fields(_wire.get_bytes(entry[2])):
      if tag == 10:
        found[key] = [_get_function_name(value)]
      elif tag == 1 and key == "branches":
        found[key] = [
          _get_function_name(function)
          for inner, function in _wire.read_fields(_wire.get_bytes(value))
          if inner == 9
        ]
  return found


def _get_function_name(value: int | memoryview) -> str:
  """Returns the name in an encoded NameAttrList."""
  return _wire.get_text(dict(_wire.read_fields(_wire.get_bytes(value)))[1])


def find_scalar(node: NodeDef) -> bytes | None:
  """Returns the encoded value of a constant that is a floating-point scalar."""
  value = find_attribute(node, "value").get(8)
  if not isinstance(value, memoryview):
    return None
  fields = dict(_wire.read_fields(value))
  if fields.get(1) not in _FLOATS or fields.get(2):  # It has dimensions.
    return None
  return bytes(value)
