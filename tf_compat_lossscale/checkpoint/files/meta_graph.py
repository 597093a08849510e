"""Reads the MetaGraph (the '.meta' file) beside a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
import os
from typing import NamedTuple

from tf_compat_lossscale.checkpoint.files import graph_def as _graph_def
from tf_compat_lossscale.checkpoint.files import wire as _wire
from tf_compat_lossscale.checkpoint.layouts import names

_LARGEST = 32 << 20  # Bytes; beyond, looking takes longer than it is worth.
_TRAINABLE = "trainable_variables"
_LARGEST_PROOF = 512 << 20


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


class MetaGraph(NamedTuple):
  """The parts of a MetaGraph that prove whose its variables are.

  Attributes:
    graph_def: The encoded GraphDef.
    saver: The name scope of its saver's ops; None if it has no saver.
    full_names: Part of a partitioned variable -> the variable's name.
    trainable: The variables that are for training.
  """

  graph_def: memoryview
  saver: str | None
  full_names: dict[str, str]
  trainable: frozenset[str]


def load(path: str) -> MetaGraph | None:
  """Loads a '.meta' file; a missing or damaged one proves nothing."""
  try:
    if os.path.getsize(path) > _LARGEST_PROOF:
      return None
    with open(path, "rb") as file:
      fields = list(_wire.fields(file.read()))
    graph_def = saver = None
    full_names: dict[str, str] = {}
    trainable: set[str] = set()
    for tag, value in fields:
      if tag == 2:
        graph_def = _wire.part(value)
      elif tag == 3:
        saver = _saver_scope(_wire.part(value))
      elif tag == 4:
        collection, variables = _variables(_wire.part(value))
        full_names.update(variables)
        if collection == _TRAINABLE:
          trainable.update(variables)
  except (OSError, ValueError, KeyError):
    return None
  if graph_def is None:
    return None
  return MetaGraph(graph_def, saver, full_names, frozenset(trainable))


def _saver_scope(saver: memoryview) -> str | None:
  for tag, value in _wire.fields(saver):
    if tag == 3:  # The op that restores all.
      return names.split_scope(_wire.text(value))[0]
  return None


def _variables(entry: memoryview) -> tuple[str, dict[str, str]]:
  """Reads an entry of the collections.

  Returns:
    Its key, and if it has variables: variable -> its name as a whole, if it is
    a part of a partitioned one.
  """
  pair = dict(_wire.fields(entry))
  key = _wire.text(pair[1])
  found: dict[str, str] = {}
  if key not in ("variables", _TRAINABLE):
    return key, found
  for kind, items in _wire.fields(_wire.part(pair[2])):
    if kind != 2:  # Only a list of bytes holds encoded variables.
      continue
    for _, item in _wire.fields(_wire.part(items)):
      variable = dict(_wire.fields(_wire.part(item)))
      if 1 in variable:
        name = _wire.text(variable[1]).partition(":")[0]
        part = dict(_wire.fields(_wire.part(variable.get(4, memoryview(b"")))))
        found[name] = _wire.text(part[1]) if 1 in part else name
  return key, found


def saved_keys(
  nodes: Iterable[_graph_def.NodeDef], scope: str
) -> dict[str, set[str]] | None:
  """Finds out under which keys a saver of a graph saves its variables.

  Args:
    nodes: The graph's ops.
    scope: The name scope of the saver's ops.

  Returns:
    Op -> the keys under which its value is saved: of each variable, or of
    whatever else is saved. None if the graph does not tell.
  """
  known = {node.name: node for node in nodes}
  keys: dict[str, set[str]] = {}
  found = False
  for node in known.values():
    if node.op != "SaveV2" or not node.name.startswith(scope):
      continue
    value = _graph_def.attribute(known[node.inputs[1]], "value")
    if 8 not in value:
      return None
    texts = [
      _wire.text(text)
      for tag, text in _wire.fields(_wire.part(value[8]))
      if tag == 8
    ]
    if len(texts) != len(node.inputs) - 3:
      return None
    found = True
    for key, tensor in zip(texts, node.inputs[3:]):
      op = known[tensor.partition(":")[0]]
      passed = set()
      while op.op in ("Identity", "ReadVariableOp") and op.inputs:
        if op.name in passed:
          return None  # A cycle: it is damaged.
        passed.add(op.name)
        op = known[op.inputs[0].partition(":")[0]]
      keys.setdefault(op.name, set()).add(key)
  return keys if found else None


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
      applies |= "Apply" in op and names.get_cond_number(name) == 0
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
