# SPDX-License-Identifier: Apache-2.0
"""Finds the key of a checkpoint that a Saver restores each variable from.

A MetaGraph has a `SaverDef` of its Saver, which names some of the Saver's ops.
Only these ops show which key belongs to which variable: an op reads a tensor by
its key, and another op assigns the tensor to the variable:

    RestoreV2(prefix, ["w/key"], [""]) -> Identity -> AssignVariableOp(w)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
from typing import Any
from typing import NamedTuple

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import tracking

_ASSIGNS = {"Assign", "AssignVariableOp"}
_VARIABLES = {"Variable", "VariableV2", "VarHandleOp"}
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
      that are not assigned the value as it is.
  """

  variables: Mapping[str, Any] | list[Any]
  others: list[str]


@dataclasses.dataclass(frozen=True)
class Uncollected:
  """A variable that is in no collection of its graph.

  The class has the attributes of `tf.Variable` that a restore needs.
  """

  name: str
  shape: tf.TensorShape
  dtype: tf.DType
  initializer: tf.Operation
  trainable: bool = False


class _Read(NamedTuple):
  """A key of a checkpoint, and the slice that is read; "" means the whole."""

  key: str
  part: str


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
  try:
    return _Decoder(graph).decode(root)
  except (_UnknownKeys, UnicodeDecodeError):
    return None


class _Decoder:
  """A search from the ops of a Saver back to the keys that they read."""

  def __init__(self, graph: tf.Graph) -> None:
    self._known = _list_collected(graph)
    self._graph = graph
    self._reads: dict[str, list[_Read]] = {}
    self._clean: set[str] = set()  # Ops that depend on no op that reads.

  def decode(self, root: tf.Operation) -> Saved | None:
    """Returns the variables that an op restores; None if there are none."""
    targets: dict[str, list[tuple[Any, str]]] = {}
    others: dict[str, None] = {}
    for op in _list_grouped(root):
      read = self._find_read(op.inputs[1]) if op.type in _ASSIGNS else None
      variable = read and self._find_variable(op.inputs[0].op)
      if read and variable is not None:
        found = targets.setdefault(read.key, [])
        if all(variable is not other for other, _ in found):
          found.append((variable, read.part))
      else:
        others.update(dict.fromkeys(self._find_keys(op)))
    if not targets and not others:
      return None
    keys = Counter(id(v) for found in targets.values() for v, _ in found)
    for key, found in targets.items():
      # A variable on several replicas may be restored with the first one, and
      # again by a key of its own.
      alone = [pair for pair in found if keys[id(pair[0])] == 1]
      if alone and not found[0][1]:
        found[:] = alone
      if not _is_whole(found):
        others[key] = None
    order = {id(variable): i for i, variable in enumerate(self._known.values())}
    variables = {
      key: [variable for variable, _ in found]
      for key, found in targets.items()
      if key not in others
    }
    in_order = sorted(variables, key=lambda key: order[id(variables[key][0])])
    return Saved({key: variables[key] for key in in_order}, list(others))

  def _find_read(self, tensor: tf.Tensor) -> _Read | None:
    """Returns the key and slice that a tensor has; None if it was changed."""
    while tensor.op.type in _PASSES:
      tensor = tensor.op.inputs[0]
    if tensor.op.type != _READER:
      return None
    return self._list_reads(tensor.op)[tensor.value_index]

  def _list_reads(self, op: tf.Operation) -> list[_Read]:
    """Returns the key and slice of each output of an op that reads."""
    if op.name not in self._reads:
      names, slices = map(_read_texts, op.inputs[1:])
      if not len(names) == len(slices) == len(op.outputs):
        raise _UnknownKeys
      self._reads[op.name] = [_Read(*pair) for pair in zip(names, slices)]
    return self._reads[op.name]

  def _find_keys(self, op: tf.Operation) -> Iterator[str]:
    """Yields the keys of all tensors that an op depends on."""
    stack, seen = [op], set()
    found = False
    while stack:
      for tensor in stack.pop().inputs:
        other = tensor.op
        if other.type == _READER:
          found = True
          yield self._list_reads(other)[tensor.value_index].key
        elif other.name not in seen and other.name not in self._clean:
          seen.add(other.name)
          stack.append(other)
    if not found:
      self._clean |= seen

  def _find_variable(self, op: tf.Operation) -> Any:
    """Returns the variable of an op; None if the graph does not show it."""
    if op.name not in self._known and op.type in _VARIABLES:
      try:
        initializer = self._graph.get_operation_by_name(f"{op.name}/Assign")
      except KeyError:
        return None
      if initializer.type in _ASSIGNS and initializer.inputs[0].op is op:
        self._known[op.name] = Uncollected(
          op.outputs[0].name,
          tf.TensorShape(op.get_attr("shape")),
          tf.as_dtype(op.get_attr("dtype")),
          initializer,
        )
    return self._known.get(op.name)


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


def _read_texts(tensor: tf.Tensor) -> list[str]:
  """Returns the strings of a constant."""
  value = tf.get_static_value(tensor)
  if value is None:
    raise _UnknownKeys
  return [item.decode("utf-8") for item in value.reshape(-1)]
