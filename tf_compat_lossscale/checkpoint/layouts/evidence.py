"""Finds proofs of which optimizer a variable belongs to.

A graph proves it by its ops, an object graph by its objects.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import os
from typing import Protocol

from tf_compat_lossscale.checkpoint.files import meta_graph as _meta_graph
from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.bundle import OBJECT_GRAPH
from tf_compat_lossscale.checkpoint.files.errors import CheckpointError
from tf_compat_lossscale.checkpoint.files.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.layouts import dataflow as _dataflow
from tf_compat_lossscale.checkpoint.layouts import names

# What comes of a graph that is damaged, too large or of an unknown kind. It
# proves nothing then, and names must do.
_UNREADABLE = (KeyError, ValueError, IndexError, RecursionError)

_MARGIN = 2.0  # Seconds: copies are written in any order.


@dataclasses.dataclass(frozen=True)
class Usage:
  """What variables are for, by the names that a checkpoint has for them.

  Attributes:
    serves: Variable -> the variables whose updates depend on it. A variable of
      which nothing is known is left out.
    trained: The variables that are updated from the values of variables.
    trainable: The variables that are for training.
    serves_all: The variables on which every update of every trained weight
      depends.
    scales: The loss scales that are known as such.
    conds: Variable -> the cond, under TensorFlow 2's control flow, in which it
      is updated.
  """

  serves: dict[str, frozenset[str]] = dataclasses.field(default_factory=dict)
  trained: frozenset[str] = frozenset()
  trainable: frozenset[str] = frozenset()
  serves_all: frozenset[str] = frozenset()
  scales: tuple[names.ScaleNames, ...] = ()
  conds: dict[str, str] = dataclasses.field(default_factory=dict)


class Evidence(Protocol):
  """Something that knows whose variables are."""

  @property
  def order(self) -> list[str]:
    """The names of variables, in the order of their creation, if known."""

  def is_in_cond(self, name: str) -> bool:
    """Returns whether an untrainable variable is called after a v1 cond."""

  def find_usage(self, asked: Collection[str]) -> Usage:
    """Finds out what some variables are for."""


class GraphEvidence:
  """What a TensorFlow graph proves."""

  def __init__(
    self,
    flow: _dataflow.Flow,
    keys: Mapping[str, Iterable[str]],
    trainable: Collection[str],
  ) -> None:
    """Takes the graph's data flow.

    Args:
      flow: The data flow.
      keys: Variable of the graph -> its names in the checkpoint.
      trainable: The variables of the graph that are for training.
    """
    self._trainable = trainable
    self._flow = flow
    self._keys = {name: tuple(keys.get(name, ())) for name in flow.variables}
    self._variables: dict[str, list[str]] = {}
    for variable, known in self._keys.items():
      for key in known:
        self._variables.setdefault(key, []).append(variable)

  @property
  def order(self) -> list[str]:
    """The names of all variables, in the order of their creation."""
    return [key for known in self._keys.values() for key in known]

  def is_in_cond(self, name: str) -> bool:
    """Returns whether an untrainable variable is called after a cond."""
    conds = self._flow.conds
    for variable in self._variables.get(name, ()):
      parts = variable.split("/")
      if variable not in self._trainable and any(
        "/".join(parts[:i]) in conds for i in range(1, len(parts))
      ):
        return True
    return False

  def find_usage(self, asked: Collection[str]) -> Usage:
    """Finds out what some variables are for."""
    found = self._flow.find_dependents(
      [v for name in asked for v in self._variables.get(name, ())]
    )

    def keys_of(variables: Iterable[str]) -> frozenset[str]:
      return frozenset(key for v in variables for key in self._keys[v])

    serves = {
      name: keys_of(
        dependent for v in self._variables[name] for dependent in found.of[v]
      )
      for name in asked
      if name in self._variables
    }
    weights = found.trained.intersection(self._trainable)
    return Usage(
      serves,
      keys_of(found.trained),
      keys_of(v for v in self._keys if v in self._trainable),
      keys_of(
        v for v, needed in found.all_of.items() if weights and needed >= weights
      ),
      tuple(_scales(serves)),
      {key: cond for v, cond in found.conds.items() for key in self._keys[v]},
    )


def _scales(serves: Mapping[str, frozenset[str]]) -> Iterable[names.ScaleNames]:
  """Yields the loss scales whose updates depend on counters of their own."""
  for api, layout in names.SCALE_TENSORS.items():
    first, *counters = layout
    for name in serves:
      if names.get_base(name) != first:
        continue
      members = [
        [
          other
          for other in serves
          if names.get_base(other) == counter
          and name in serves[other]
          and other in serves[name]
        ]
        for counter in counters
      ]
      if all(len(found) == 1 for found in members):
        scope = names.split_scope(name)[0]
        yield names.ScaleNames(api, scope, (name, *(m for (m,) in members)))


class ObjectEvidence:
  """What the object graph of a checkpoint proves."""

  def __init__(self, graph: ObjectGraph) -> None:
    self._graph = graph

  @property
  def order(self) -> list[str]:
    """Nothing: an object graph does not tell which variable is older."""
    return []

  def is_in_cond(self, name: str) -> bool:
    """Returns False: an object graph has no conds."""
    del name
    return False

  def find_usage(self, asked: Collection[str]) -> Usage:
    """Finds out what some variables are for."""
    result = Usage()
    scales: list[names.ScaleNames] = []
    trained: set[str] = set()
    trainable: set[str] = set()
    for node in self._graph.nodes:
      optimizer = node
      if "base_optimizer" in node.children and not node.slots:
        optimizer = self._graph.nodes[node.children["base_optimizer"]]
      if not optimizer.slots:
        continue
      served = frozenset(
        name
        for slot in optimizer.slots
        for number in (slot.variable, slot.slot)
        for name in self._names([number])
      )
      trained |= served
      trainable.update(self._names(slot.variable for slot in optimizer.slots))
      own = self._names(optimizer.children.values())
      if "loss_scale" in node.children:
        scale = self._graph.nodes[node.children["loss_scale"]]
        own += self._names(scale.children.values())
        scales += self._scale(scale.children)
      for name in own:
        if name in asked:
          known = result.serves.get(name, frozenset())
          result.serves[name] = known | served
    return dataclasses.replace(
      result,
      trained=frozenset(trained),
      trainable=frozenset(trainable),
      scales=tuple(scales),
    )

  def _names(self, numbers: Iterable[int]) -> list[str]:
    values = [self._graph.value(number) for number in numbers]
    return [value.full_name for value in values if value and value.full_name]

  def _scale(self, children: Mapping[str, int]) -> Iterable[names.ScaleNames]:
    for api, layout in names.SCALE_TENSORS.items():
      if set(layout) <= set(children):
        found = self._names(children[base] for base in layout)
        if len(found) == len(layout):
          yield names.ScaleNames(
            api, names.split_scope(found[0])[0], tuple(found)
          )
          return


def object_graph(bundle: Bundle) -> ObjectGraph:
  """The object graph of an object-based checkpoint."""
  try:
    return ObjectGraph(bundle.string(OBJECT_GRAPH))
  except (ValueError, IndexError) as error:
    raise CheckpointError(f"{bundle.prefix}: {error}") from None


def find_evidence(bundle: Bundle) -> Evidence | None:
  """Returns what proves whose a checkpoint's variables are, if anything does.

  Args:
    bundle: The checkpoint. A '.meta' file beside it is evidence if the saver in
      it saves all that is in the checkpoint, and if it is not older: Savers
      write it last, so that an older one is of another checkpoint.
  """
  if OBJECT_GRAPH in bundle:
    return ObjectEvidence(object_graph(bundle))
  path = bundle.prefix + ".meta"
  meta = (
    None
    if _is_older(path, bundle.prefix + ".index")
    else _meta_graph.load(path)
  )
  if meta is None:
    return None
  try:
    flow = _dataflow.Flow(meta.graph_def)
    keys = meta.saver and _meta_graph.saved_keys(flow.nodes, meta.saver)
  except _UNREADABLE:
    return None
  keys = keys or {
    name: {meta.full_names.get(name, name)} for name in flow.variables
  }
  known = {key for found in keys.values() for key in found}
  if not known.issuperset(bundle.names):
    return None
  return GraphEvidence(flow, keys, meta.trainable)


def _is_older(path: str, other: str) -> bool:
  """Returns whether a file was written clearly before another."""
  try:
    return os.path.getmtime(path) < os.path.getmtime(other) - _MARGIN
  except OSError:
    return False


def find_graph_evidence(
  graph_def: bytes,
  keys: Mapping[str, Iterable[str]],
  trainable: Collection[str],
) -> Evidence | None:
  """Returns what a graph proves of its variables.

  Args:
    graph_def: An encoded GraphDef.
    keys: Variable of the graph -> its names in the checkpoint.
    trainable: The variables of the graph that are for training.
  """
  try:
    flow = _dataflow.Flow(memoryview(graph_def))
    return GraphEvidence(flow, keys, trainable)
  except _UNREADABLE:
    return None
