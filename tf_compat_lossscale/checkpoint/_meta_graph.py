"""What a MetaGraph beside a checkpoint says of it."""

from __future__ import annotations

import os
from typing import NamedTuple

from tf_compat_lossscale.checkpoint import _wire
from tf_compat_lossscale.checkpoint import names

_LARGEST = 32 << 20  # Bytes; beyond, looking takes longer than it is worth.


class Facts(NamedTuple):
  """What is known of the graph.

  Attributes:
    release: 'TensorFlow X.Y.Z', which exported it.
    control_flow: 'v1' or 'v2', if it has conds.
    applies_in_first_cond: Whether an optimizer does, under TensorFlow 1's
      control flow.
  """

  release: str | None = None
  control_flow: str | None = None
  applies_in_first_cond: bool = False


def read(path: str) -> Facts:
  """Reads a '.meta' file; a missing or damaged one says nothing.

  It has no checksum and is not needed to restore what lies beside it.
  """
  try:
    if os.path.getsize(path) > _LARGEST:
      return Facts()
    with open(path, "rb") as file:
      return _facts(memoryview(file.read()))
  except (OSError, ValueError):
    return Facts()


def saved_model_release(folder: str) -> str | None:
  """The release that wrote a SavedModel, if it says so."""
  try:
    path = os.path.join(folder, "saved_model.pb")
    if os.path.getsize(path) > _LARGEST:
      return None
    with open(path, "rb") as file:
      for tag, value in _wire.fields(file.read()):
        if tag == 2:
          return _release(_wire.part(value))
  except (OSError, ValueError):
    pass  # As `read`: what it would say is then unknown.
  return None


def _facts(data: memoryview) -> Facts:
  flows = set()
  applies = False
  for tag, graph in _wire.fields(data):
    if tag != 2:
      continue
    for inner, node in _wire.fields(_wire.part(graph)):
      if inner != 1:
        continue
      name, op = _name_and_op(_wire.part(node))
      if op in ("Switch", "RefSwitch"):
        flows.add("v1")
      elif op in ("If", "StatelessIf"):
        flows.add("v2")
      applies |= "Apply" in op and names.innermost_cond(name) == 0
  flow = flows.pop() if len(flows) == 1 else None
  return Facts(_release(data), flow, applies)


def _name_and_op(node: memoryview) -> tuple[str, str]:
  name = op = ""
  for tag, value in _wire.fields(node):
    if tag == 1:
      name = _wire.text(value)
    elif tag == 2:
      op = _wire.text(value)
  return name, op


def _release(meta_graph: memoryview) -> str | None:
  for tag, value in _wire.fields(meta_graph):
    if tag == 1:
      for inner, text in _wire.fields(_wire.part(value)):
        if inner == 5 and _wire.text(text):
          return f"TensorFlow {_wire.text(text)}"
  return None
