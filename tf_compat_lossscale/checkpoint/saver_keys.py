# SPDX-License-Identifier: Apache-2.0
"""Finds the key of a checkpoint that a Saver restores each variable from.

A MetaGraph has a `SaverDef` of its Saver, which names some of the Saver's ops.
Only these ops show which key belongs to which variable: an op reads a tensor by
its key, and another op assigns the tensor to the variable:

    RestoreV2(prefix, ["w/key"], [""]) -> Identity -> AssignVariableOp(w)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import functools
from typing import Any
from typing import NamedTuple

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import tracking

_ASSIGNS = {"Assign", "AssignVariableOp"}
# Ops that group the ops of a restore.
_GROUPS = {"NoOp", "Identity"}
# Ops between the op that reads a tensor and the op that assigns the tensor.
_PASSES = {"Cast", "Identity", "Reshape"}
# The op that reads tensors. Its inputs are a prefix, names and slices.
_READER = "RestoreV2"


class Saved(NamedTuple):
  """The variables and other objects of a Saver.

  Attributes:
    variables: Key -> the variable, or the parts of a partitioned variable, in
      the order of creation; or a list of variables with their own names.
    others: The keys or names of other objects, such as tables, and of variables
      that are in no collection or not assigned the value as it is.
  """

  variables: Mapping[str, Any] | list[Any]
  others: list[str]


class _UnknownKeys(Exception):
  """An error for an op that reads tensors whose names are not constant."""


def find_saved(
  graph: tf.Graph, saver_def: tf.compat.v1.train.SaverDef
) -> Saved | None:
  """Finds the keys by which a Saver restores variables.

  Args:
    graph: The graph with the Saver's ops.
    saver_def: The names of these ops.

  Returns:
    The variables by key; None if the graph does not show the keys.
  """
  try:
    root = graph.get_operation_by_name(saver_def.restore_op_name)
  except (KeyError, ValueError):
    return None
  known = _list_collected(graph)
  list_reads = functools.cache(_list_reads)
  targets: dict[str, list[tuple[Any, str]]] = {}
  others: dict[str, None] = {}
  try:
    for op in _list_grouped(root):
      tensor = op.inputs[1] if op.type in _ASSIGNS else None
      while tensor is not None and tensor.op.type in _PASSES:
        tensor = tensor.op.inputs[0]
      variable = None
      if tensor is not None and tensor.op.type == _READER:
        variable = known.get(op.inputs[0].op.name)
      if tensor is None or variable is None:
        others.update(dict.fromkeys(_find_keys(op, list_reads)))
        continue
      key, part = list_reads(tensor.op)[tensor.value_index]
      found = targets.setdefault(key, [])
      if all(variable is not other for other, _ in found):
        found.append((variable, part))
  except (_UnknownKeys, UnicodeDecodeError):
    return None
  if not targets and not others:
    return None
  uses = Counter(id(v) for found in targets.values() for v, _ in found)
  for key, found in targets.items():
    # A variable on several replicas may be restored with the first one, and
    # again by a key of its own.
    alone = [pair for pair in found if uses[id(pair[0])] == 1]
    if alone and not found[0][1]:
      found[:] = alone
    if not _is_whole(found):
      others[key] = None
  order = {id(variable): i for i, variable in enumerate(known.values())}
  variables = {
    key: [variable for variable, _ in found]
    for key, found in sorted(
      targets.items(), key=lambda item: order[id(item[1][0][0])]
    )
    if key not in others
  }
  return Saved(variables, list(others))


def _list_reads(op: tf.Operation) -> list[tuple[str, str]]:
  """Returns key and slice of each output of an op that reads; "" is all."""
  values = [tf.get_static_value(tensor) for tensor in op.inputs[1:]]
  if any(value is None or len(value) != len(op.outputs) for value in values):
    raise _UnknownKeys
  return [(key.decode(), part.decode()) for key, part in zip(*values)]


def _find_keys(
  op: tf.Operation,
  list_reads: Callable[[tf.Operation], list[tuple[str, str]]],
) -> Iterator[str]:
  """Yields the keys of all tensors that an op depends on."""
  stack, seen = [op], {op}
  while stack:
    for tensor in stack.pop().inputs:
      if tensor.op.type == _READER:
        yield list_reads(tensor.op)[tensor.value_index][0]
      elif tensor.op not in seen:
        seen.add(tensor.op)
        stack.append(tensor.op)


def _list_collected(graph: tf.Graph) -> dict[str, Any]:
  """Returns the variables in a graph's collections, by their ops' names."""
  known: dict[str, Any] = {}
  keys = graph.get_all_collection_keys()
  # This collection is in the order of creation, and has nearly all.
  first = tf.compat.v1.GraphKeys.GLOBAL_VARIABLES
  for key in sorted(keys, key=lambda key: key != first):
    for item in graph.get_collection(key):
      if hasattr(item, "initializer") and hasattr(item, "op"):
        known.setdefault(item.op.name, item)
  return known


def _list_grouped(root: tf.Operation) -> Iterator[tf.Operation]:
  """Yields the ops that run if an op runs, without ops that only group."""
  stack, seen = [root], {root.name}
  while stack:
    op = stack.pop()
    if op.type not in _GROUPS:
      yield op
      continue
    for other in [*op.control_inputs, *(tensor.op for tensor in op.inputs)]:
      if other.name not in seen:
        seen.add(other.name)
        stack.append(other)


def _is_whole(found: list[tuple[Any, str]]) -> bool:
  """Returns whether the reads are one whole variable or all parts of one."""
  for variable, part in found:
    info = tracking.find_slice(variable)
    if part != (info.spec if info else ""):
      return False
  return len(found) == 1 or all(part for _, part in found)
