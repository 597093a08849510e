"""Which key of a checkpoint a Saver restores each variable from.

A MetaGraph has of a Saver what a `SaverDef` says: the names of its ops. Its
mapping from keys to variables is in those ops alone: each variable is assigned
what an op reads by a key from the checkpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
import dataclasses
from typing import Any
from typing import NamedTuple

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import tracking
from tf_compat_lossscale.checkpoint.files import graph_def as _graph_def

_ASSIGNS = {"Assign", "AssignVariableOp"}
# What restores groups ops by, and what may lie between reading and assigning.
_GROUPS = {"NoOp", "Identity"}
_PASSES = {"Cast", "Identity", "Reshape"}
# Ops that read, the last two before TensorFlow 0.12 -> where the names of
# tensors and, if there are any, their slices are among the inputs.
_READERS: dict[str, tuple[int, int | None]] = {
  "RestoreV2": (1, 2),
  "RestoreSlice": (1, 2),
  "Restore": (1, None),
}


class Saved(NamedTuple):
  """What a Saver restores.

  Attributes:
    variables: Key -> the variable, or the parts of a partitioned one. They are
      in the order in which they were made.
    others: The keys of what is no variable, or is one in a way of its own.
  """

  variables: dict[str, list[Any]]
  others: list[str]


@dataclasses.dataclass(frozen=True)
class Uncollected:
  """A variable that is in no collection of its graph.

  It has what is needed of a variable to restore it.
  """

  name: str
  shape: tf.TensorShape
  dtype: tf.DType
  initializer: tf.Operation
  trainable: bool = False


class _Read(NamedTuple):
  """What of a checkpoint is read: a key, and which slice; "" is the whole."""

  key: str
  part: str


class _UnknownKeys(Exception):
  """The names that are read are no constants."""


def of(graph: tf.Graph, saver_def: tf.compat.v1.train.SaverDef) -> Saved | None:
  """Finds the keys by which a Saver restores variables.

  Args:
    graph: The graph with the Saver's ops.
    saver_def: Which ops they are.

  Returns:
    What it restores; None if the graph does not show it.
  """
  try:
    restore = graph.get_operation_by_name(saver_def.restore_op_name)
  except (KeyError, ValueError):
    return None
  try:
    return _Decoder(graph).decode(restore)
  except (_UnknownKeys, UnicodeDecodeError):
    return None


class _Decoder:
  """Follows the ops of a Saver back to what they read."""

  def __init__(self, graph: tf.Graph) -> None:
    self._known = _collected(graph)
    self._graph = graph
    self._reads: dict[str, list[_Read]] = {}
    self._clean: set[str] = set()  # Ops that depend on nothing that is read.

  def decode(self, restore: tf.Operation) -> Saved | None:
    """Finds what an op restores."""
    targets: dict[str, list[tuple[Any, str]]] = {}
    others: dict[str, None] = {}
    for op in _grouped(restore):
      read = self._read_by(op.inputs[1]) if op.type in _ASSIGNS else None
      variable = read and self._variable(op.inputs[0].op)
      if read and variable is not None:
        found = targets.setdefault(read.key, [])
        if all(variable is not other for other, _ in found):
          found.append((variable, read.part))
      else:
        others.update(dict.fromkeys(self._keys_behind(op)))
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

  def _read_by(self, tensor: tf.Tensor) -> _Read | None:
    """What a tensor is, as it was read; None if it is none or was changed."""
    while tensor.op.type in _PASSES:
      tensor = tensor.op.inputs[0]
    if tensor.op.type not in _READERS:
      return None
    return self._reads_of(tensor.op)[tensor.value_index]

  def _reads_of(self, op: tf.Operation) -> list[_Read]:
    """What each output of an op that reads is."""
    if op.name not in self._reads:
      names_at, slices_at = _READERS[op.type]
      names = _texts(op.inputs[names_at])
      slices = [""] * len(names)
      if slices_at is not None:
        slices = _texts(op.inputs[slices_at])
      if not len(names) == len(slices) == len(op.outputs):
        raise _UnknownKeys
      self._reads[op.name] = [_Read(*pair) for pair in zip(names, slices)]
    return self._reads[op.name]

  def _keys_behind(self, op: tf.Operation) -> Iterator[str]:
    """Yields the keys of all that was read for an op."""
    stack, seen = [op], set()
    found = False
    while stack:
      for tensor in stack.pop().inputs:
        other = tensor.op
        if other.type in _READERS:
          found = True
          yield self._reads_of(other)[tensor.value_index].key
        elif other.name not in seen and other.name not in self._clean:
          seen.add(other.name)
          stack.append(other)
    if not found:
      self._clean |= seen

  def _variable(self, op: tf.Operation) -> Any:
    """The variable that an op makes; None if it cannot be told."""
    if op.name not in self._known and op.type in _graph_def.VARIABLES:
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


def _collected(graph: tf.Graph) -> dict[str, Any]:
  """The variables in a graph's collections, by the names of their ops."""
  known: dict[str, Any] = {}
  keys = graph.get_all_collection_keys()
  first = tf.compat.v1.GraphKeys.GLOBAL_VARIABLES  # In order, and nearly all.
  for key in sorted(keys, key=lambda key: key != first):
    for item in graph.get_collection(key):
      if hasattr(item, "initializer") and hasattr(item, "op"):
        known.setdefault(item.op.name, item)
  return known


def _grouped(restore: tf.Operation) -> Iterator[tf.Operation]:
  """Yields the ops that run for an op that groups them."""
  stack, seen = [restore], {restore.name}
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
  """Whether variables are one, or the parts of one, and are read as such."""
  for variable, part in found:
    info = tracking.find_slice(variable)
    if part != (info.spec if info else ""):
      return False
  return len(found) == 1 or all(part for _, part in found)


def _texts(tensor: tf.Tensor) -> list[str]:
  """The values of a constant of strings."""
  value = tf.get_static_value(tensor)
  if value is None:
    raise _UnknownKeys
  return [item.decode("utf-8") for item in value.reshape(-1)]
