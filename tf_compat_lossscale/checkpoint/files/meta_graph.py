# SPDX-License-Identifier: Apache-2.0
"""Reads MetaGraphs: the '.meta' files beside checkpoints, and SavedModels."""

from __future__ import annotations

from collections.abc import Iterable
import os
from typing import NamedTuple

from tf_compat_lossscale._core.bytes import wire as _wire
from tf_compat_lossscale.checkpoint.files import graph_def as _graph_def
from tf_compat_lossscale.checkpoint.files import opening

# In bytes. Parsing takes a second for every 10 MB. A proof is worth more time
# than a description.
LARGEST_TO_DESCRIBE = 32 << 20
LARGEST = 512 << 20
_TRAINABLE = "trainable_variables"
_FIRST_SAVED = 3  # The number of the first input of SaveV2 that is saved.


class MetaGraph(NamedTuple):
  """The parts of a MetaGraph that show which program wrote the checkpoint.

  Attributes:
    graph: The graph.
    release: The release that exported the MetaGraph: 'TensorFlow X.Y.Z'.
    saver: The name scope of its saver's ops; None if it has no saver.
    full_names: Part of a partitioned variable -> the variable's name.
    trainable: The names of the trainable variables.
  """

  graph: _graph_def.Graph
  release: str | None
  saver: str | None
  full_names: dict[str, str]
  trainable: frozenset[str]

  @property
  def control_flow(self) -> str | None:
    """'v1' or 'v2', if the graph has conds of one kind."""
    ops = {node.op for node in self.graph.nodes}
    is_v1 = not ops.isdisjoint(("Switch", "RefSwitch"))
    is_v2 = not ops.isdisjoint(("If", "StatelessIf"))
    return ("v1" if is_v1 else "v2") if is_v1 != is_v2 else None


def load(path: str) -> MetaGraph:
  """Loads a '.meta' file.

  Raises:
    OSError: The file cannot be read.
    ValueError, KeyError: The file is damaged.
  """
  with opening.open_file(path) as file:
    data = memoryview(file.read())
  release = _find_release(data)
  graph = saver = None
  full_names: dict[str, str] = {}
  trainable: set[str] = set()
  for tag, value in _wire.read_fields(data):
    if tag == 2:
      graph = _graph_def.parse_graph(_wire.get_bytes(value))
    elif tag == 3:
      saver = _find_saver_scope(_wire.get_bytes(value))
    elif tag == 4:
      collection, variables = _read_variables(_wire.get_bytes(value))
      full_names.update(variables)
      if collection == _TRAINABLE:
        trainable.update(variables)
  if graph is None:
    raise ValueError("it has no graph")
  return MetaGraph(graph, release, saver, full_names, frozenset(trainable))


def _find_saver_scope(saver: memoryview) -> str | None:
  """Returns the name scope of a SaverDef's ops, with a slash or empty."""
  for value in _wire.find(saver, 3):  # The op that restores all.
    scope, slash, _ = _wire.get_text(value).rpartition("/")
    return scope + slash
  return None


def _read_variables(entry: memoryview) -> tuple[str, dict[str, str]]:
  """Reads an entry of the collections.

  Returns:
    The collection's key and, if it holds variables: variable -> the name of the
    whole variable, which differs for a part of a partitioned one.
  """
  pair = dict(_wire.read_fields(entry))
  key = _wire.get_text(pair[1])
  found: dict[str, str] = {}
  if key not in ("variables", _TRAINABLE):
    return key, found
  # Only a list of bytes, the field 2, holds encoded variables.
  for item in _wire.find(_wire.get_bytes(pair[2]), 2, 1):
    variable = dict(_wire.read_fields(_wire.get_bytes(item)))
    if 1 in variable:
      name = _wire.get_text(variable[1]).partition(":")[0]
      wholes = list(_wire.find(_wire.get_bytes(item), 4, 1))
      found[name] = _wire.get_text(wholes[-1]) if wholes else name
  return key, found


def find_saved_keys(
  nodes: Iterable[_graph_def.NodeDef], scope: str
) -> dict[str, set[str]] | None:
  """Finds the keys under which a saver of a graph saves variables.

  Args:
    nodes: The graph's ops.
    scope: The name scope of the saver's ops.

  Returns:
    Op -> the keys under which its value is saved. The ops are variables, or
    other ops whose values the saver saves. None if the graph does not tell.
  """
  known = {node.name: node for node in nodes}
  saved: dict[str, str] = {}  # Op -> the op whose value it passes on.
  keys: dict[str, set[str]] = {}
  found = False
  for node in known.values():
    if node.op != "SaveV2" or not node.name.startswith(scope):
      continue
    constant = _graph_def.find_tensor(known[node.inputs[1]])
    if constant is None:
      return None
    texts = list(map(_wire.get_text, _wire.find(constant, 8)))
    if len(texts) != len(node.inputs) - _FIRST_SAVED:
      return None
    found = True
    for key, tensor in zip(texts, node.inputs[_FIRST_SAVED:]):
      op = known[tensor.partition(":")[0]]
      passed = set()
      while op.op in ("Identity", "ReadVariableOp") and op.inputs:
        if op.name in passed:
          return None  # The graph is damaged: it has a cycle.
        passed.add(op.name)
        before = op.inputs[0].partition(":")[0]
        op = known[saved.get(before, before)]
      saved.update(dict.fromkeys(passed, op.name))
      keys.setdefault(op.name, set()).add(key)
  return keys if found else None


def read_saved_model_release(folder: str) -> str | None:
  """Returns the release that wrote a SavedModel, if the SavedModel has it."""
  try:
    path = os.path.join(folder, "saved_model.pb")
    if opening.read_stamp(path).size > LARGEST_TO_DESCRIBE:
      return None
    with opening.open_file(path) as file:
      for value in _wire.find(file.read(), 2):
        return _find_release(_wire.get_bytes(value))
  except (OSError, ValueError):
    pass  # The variables can be described without the release.
  return None


def _find_release(meta_graph: memoryview) -> str | None:
  """Returns the release that exported an encoded MetaGraphDef."""
  releases = filter(None, map(_wire.get_text, _wire.find(meta_graph, 1, 5)))
  return next((f"TensorFlow {release}" for release in releases), None)
