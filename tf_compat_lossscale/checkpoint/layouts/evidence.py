# SPDX-License-Identifier: Apache-2.0
"""Finds out from graphs which optimizer or loss scale a variable belongs to.

Names do not tell whether `beta1_power` or `beta1_power_1` belongs to the
optimizer of `w0`. A graph does, in one of two ways:

- A program's graph, or the MetaGraph beside a checkpoint, by its ops: the op
  that updates `w0` has its optimizer's power among its inputs.
  `layouts/dataflow.py` follows the inputs. This module translates the result
  from the graph's names to names in the checkpoint, and finds loss scales: a
  scale and a counter whose updates depend on each other.
- An object graph by its objects: the optimizer's node has the power as a child,
  and the slots of `w0`.

Both give a `Usage`. In the words of this wing, a power or a loss scale *serves*
the variables whose updates depend on it.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
from typing import TypeAlias

from tf_compat_lossscale.checkpoint.files import meta_graph
from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.bundle import OBJECT_GRAPH
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.files.graph_def import NodeDef
from tf_compat_lossscale.checkpoint.files.graph_def import parse_graph
from tf_compat_lossscale.checkpoint.files.graph_def import VARIABLES
from tf_compat_lossscale.checkpoint.files.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts.dataflow import Application
from tf_compat_lossscale.checkpoint.layouts.dataflow import DataFlow
from tf_compat_lossscale.checkpoint.layouts.dataflow import is_pivot
from tf_compat_lossscale.checkpoint.layouts.dataflow import PLACEHOLDERS

# The errors for a graph that is damaged, too large or of an unknown kind. Such
# a graph proves nothing, so names must do.
_UNREADABLE = (KeyError, ValueError, IndexError, RecursionError)
# The steps of finding the origins of all updates, at most: each application's
# origins may be the whole graph.
_MOST_ORIGINS = 50_000_000
# The names that all variables of optimizers serve together, at most.
_MOST_SERVED = 20_000_000


@dataclasses.dataclass(frozen=True)
class Usage:
  """The uses of variables, by their names in the checkpoint.

  Attributes:
    serves: Variable -> the variables whose updates depend on it. A variable is
      left out if nothing is known of it.
    trained: The variables that are updated from the values of variables.
    trainable: The variables that the program declares trainable.
    serves_all: The variables on which every update of every trained weight
      depends.
    scales: The loss scales that the evidence proves.
    conds: Variable -> the cond of TensorFlow 2's control flow in which the
      variable is updated.
  """

  serves: dict[str, frozenset[str]] = dataclasses.field(default_factory=dict)
  trained: frozenset[str] = frozenset()
  trainable: frozenset[str] = frozenset()
  serves_all: frozenset[str] = frozenset()
  scales: tuple[names.ScaleNames, ...] = ()
  conds: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Owner:
  """An optimizer that slots belong to, as far as the evidence tells.

  Attributes:
    number: The number of the owner within the evidence.
    trains: The variables that the optimizer updates, by their names in the
      checkpoint: weights and slots.
    scope: The scope in which gradients are applied, without conds and numbers;
      None if unknown.
    reads: The variables that the updates are computed from.
    feeds: The placeholders that the updates are computed from, without those
      whose names have a number.
    settings: The constants of the optimizer, such as its learning rate.
    types: The types of the ops that compute the updates.
    rates: The learning rates of MomentumOptimizer: values, or the names of
      variables in the checkpoint; None for others.
  """

  number: int
  trains: frozenset[str]
  scope: str | None = None
  reads: frozenset[str] = frozenset()
  feeds: frozenset[str] = frozenset()
  settings: frozenset[float] = frozenset()
  types: frozenset[tuple[str, int]] = frozenset()
  rates: frozenset[float | str | None] = frozenset()


class GraphEvidence:
  """The evidence of a TensorFlow graph."""

  def __init__(
    self,
    flow: DataFlow,
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
    self._cond_lengths = set(map(len, flow.conds))
    self._keys = {name: tuple(keys.get(name, ())) for name in flow.variables}
    self._variables: dict[str, list[str]] = {}
    for variable, known in self._keys.items():
      for key in known:
        self._variables.setdefault(key, []).append(variable)

  @property
  def order(self) -> list[str]:
    """The names of all variables in the order of their creation."""
    return [key for known in self._keys.values() for key in known]

  def is_in_cond(self, name: str) -> bool:
    """Returns whether an untrainable variable is named after a cond.

    The cond must exist in the graph, under TensorFlow 1's control flow.
    """
    conds = self._flow.conds
    for variable in self._variables.get(name, ()):
      if variable in self._trainable:
        continue
      # A name may have very many slashes, so few of its scopes are looked up.
      end = variable.find("/")
      while end >= 0:
        if end in self._cond_lengths and variable[:end] in conds:
          return True
        end = variable.find("/", end + 1)
    return False

  def find_usage(self, asked: Collection[str]) -> Usage:
    """Finds the uses of some variables."""
    found = self._flow.find_dependents(
      [v for name in asked for v in self._variables.get(name, ())]
    )
    serves = {
      name: self._get_keys(
        dependent for v in self._variables[name] for dependent in found.of[v]
      )
      for name in asked
      if name in self._variables
    }
    for name in list(serves):
      if not serves[name] and any(found.of[v] for v in self._variables[name]):
        del serves[name]  # It serves variables that were not saved.
    weights = found.trained.intersection(self._trainable)
    return Usage(
      serves=serves,
      trained=self._get_keys(found.trained),
      trainable=self._get_keys(v for v in self._keys if v in self._trainable),
      serves_all=self._get_keys(
        v for v, needed in found.all_of.items() if weights and needed >= weights
      ),
      scales=tuple(_find_scales(serves)),
      conds={
        key: cond for v, cond in found.conds.items() for key in self._keys[v]
      },
    )

  def find_owners(self, slots: Collection[str]) -> dict[str, Owner]:
    """Finds the optimizer of each slot, for slots whose optimizer is known."""
    try:
      return self._find_owners(slots)
    except _UNREADABLE:
      return {}

  def _find_owners(self, slots: Collection[str]) -> dict[str, Owner]:
    applications = self._flow.find_applications()
    if len(applications) * self._flow.size > _MOST_ORIGINS:
      return {}
    by_variable: dict[str, list[int]] = {}
    for i, application in enumerate(applications):
      for variable in application.variables:
        by_variable.setdefault(variable, []).append(i)
    # An optimizer may apply gradients several times.
    by_slot = {
      slot: tuple(
        sorted(
          {i for v in self._variables[slot] for i in by_variable.get(v, ())}
        )
      )
      for slot in slots
      if slot in self._variables
    }
    owners = {
      found: self._make_owner(number, [applications[i] for i in found])
      for number, found in enumerate(dict.fromkeys(by_slot.values()))
      if found
    }
    return {slot: owners[found] for slot, found in by_slot.items() if found}

  def find_initial(self, name: str) -> float | None:
    """Returns the constant from which a scalar variable starts, or None."""
    try:
      found = {
        self._flow.find_initial(v) for v in self._variables.get(name, ())
      }
    except _UNREADABLE:
      return None
    return found.pop() if len(found) == 1 else None

  def _make_owner(self, number: int, applications: list[Application]) -> Owner:
    """Returns the optimizer that applies gradients so often."""
    origins = self._flow.find_origins(applications)
    (first, *others) = {_simplify_scope(each.scope) for each in applications}
    return Owner(
      number,
      self._get_keys(v for each in applications for v in each.variables),
      None if others else first,
      self._get_keys(origins.variables),
      frozenset(
        name
        for name in origins.placeholders
        if not names.split_number(name)[1]
        and names.split_scope(name)[1] not in PLACEHOLDERS
      ),
      origins.settings,
      origins.types,
      frozenset(
        min(self._keys[rate], default=None) if isinstance(rate, str) else rate
        for rate in origins.rates
      ),
    )

  def _get_keys(self, variables: Iterable[str]) -> frozenset[str]:
    """Returns the names in the checkpoint of variables of the graph."""
    return frozenset(key for v in variables for key in self._keys[v])


def _simplify_scope(scope: str) -> str:
  """Returns the scope around an application, without conds and numbers."""
  outer = names.split_scope(names.remove_conds(scope))[0]
  return "/".join(names.split_number(part)[0] for part in outer.split("/"))


def _find_scales(
  serves: Mapping[str, frozenset[str]],
) -> Iterable[names.ScaleNames]:
  """Yields the loss scales.

  A variable named like a loss scale is a loss scale if each counter is known:
  the only variable with the counter's name whose updates depend on the scale,
  and on which the scale's updates depend.
  """
  bases = {name: names.get_base(name) for name in serves}
  by_base = names.group(bases, bases.__getitem__)
  for api, tensors in names.SCALE_TENSORS.items():
    first, *counters = tensors
    for name in by_base.get(first, ()):
      members = [
        [
          other
          for other in serves[name]
          if bases.get(other) == counter and name in serves[other]
        ]
        for counter in counters
      ]
      if all(len(found) == 1 for found in members):
        scope = names.split_scope(name)[0]
        found = (name, *(member for (member,) in members))
        yield names.ScaleNames(api, scope, found)


class ObjectEvidence:
  """The evidence of a checkpoint's object graph.

  Attributes:
    order: Nothing: the order in which variables were created is not known.
  """

  order: Sequence[str] = ()

  def __init__(self, graph: ObjectGraph) -> None:
    """Takes the object graph."""
    self._graph = graph

  def is_in_cond(self, name: str) -> bool:
    """Returns False: objects show no cond."""
    del name
    return False

  def find_initial(self, name: str) -> None:
    """Returns None: objects show no initial value."""
    del name

  def find_usage(self, asked: Collection[str]) -> Usage:
    """Finds the uses of some variables."""
    nodes = self._graph.nodes
    # Wrappers may share an inner optimizer, and optimizers a loss scale. So
    # each is read once: number of an optimizer -> the numbers of loss scales.
    optimizers: dict[int, set[int]] = {}
    for number, node in enumerate(nodes):
      if names.BASE_OPTIMIZER in node.children and not node.slots:
        number = node.children[names.BASE_OPTIMIZER]
      if nodes[number].slots:
        found = optimizers.setdefault(number, set())
        if names.LOSS_SCALE in node.children:
          found.add(node.children[names.LOSS_SCALE])
    served = {
      number: frozenset(
        name
        for slot in nodes[number].slots
        for name in self._get_names([slot.variable, slot.slot])
      )
      for number in optimizers
    }
    users: dict[int, set[int]] = {}  # Loss scale or optimizer -> optimizers.
    for number, scales in optimizers.items():
      for parent in (number, *scales):
        users.setdefault(parent, set()).add(number)
    return Usage(
      serves=self._find_served(set(asked), users, served),
      trained=frozenset().union(*served.values()),
      trainable=frozenset(
        self._get_names(
          slot.variable for number in optimizers for slot in nodes[number].slots
        )
      ),
      scales=tuple(
        scale
        for number in dict.fromkeys(itertools.chain(*optimizers.values()))
        for scale in self._find_scale(nodes[number].children)
      ),
    )

  def find_owners(self, slots: Collection[str]) -> dict[str, Owner]:
    """Finds the optimizer of each slot."""
    owners = {}
    for number, node in enumerate(self._graph.nodes):
      found = self._get_names(slot.slot for slot in node.slots)
      weights = self._get_names(slot.variable for slot in node.slots)
      owner = Owner(number, frozenset([*weights, *found]))
      owners.update({slot: owner for slot in found if slot in slots})
    return owners

  def _find_served(
    self,
    asked: Collection[str],
    users: Mapping[int, Collection[int]],
    served: Mapping[int, frozenset[str]],
  ) -> dict[str, frozenset[str]]:
    """Returns variable -> the variables that it serves.

    Args:
      asked: The variables.
      users: Number of an optimizer or loss scale -> the optimizers that use it.
      served: Number of an optimizer -> the variables that it updates.

    Raises:
      CheckpointError: The result would be far larger than that of any program.
    """
    parents: dict[str, set[int]] = {}  # Variable -> keys of `users`.
    for parent in users:
      for name in self._get_names(self._graph.nodes[parent].children.values()):
        if name in asked:
          parents.setdefault(name, set()).add(parent)
    unions: dict[frozenset[int], frozenset[str]] = {}
    left = _MOST_SERVED
    result = {}
    for name, found in parents.items():
      key = frozenset(found)
      if key not in unions:
        left -= sum(len(users[parent]) for parent in key)
        numbers = set().union(*(users[parent] for parent in key))
        left -= sum(len(served[number]) for number in numbers)
        if left < 0:
          raise CheckpointError(
            "the object graph is damaged: its optimizers share more variables "
            "than those of any program"
          )
        unions[key] = frozenset().union(*(served[n] for n in numbers))
      result[name] = unions[key]
    return result

  def _get_names(self, numbers: Iterable[int]) -> list[str]:
    """Returns the names of the variables among nodes."""
    values = [self._graph.find_value(number) for number in numbers]
    return [value.full_name for value in values if value and value.full_name]

  def _find_scale(
    self, children: Mapping[str, int]
  ) -> Iterable[names.ScaleNames]:
    """Yields the loss scale whose variables are `children`, if there is one."""
    for api, tensors in names.SCALE_TENSORS.items():
      if tensors.keys() <= children.keys():
        found = self._get_names(children[base] for base in tensors)
        if len(found) == len(tensors):
          scope = names.split_scope(found[0])[0]
          yield names.ScaleNames(api, scope, tuple(found))
          return


# A graph that shows the uses of variables.
Evidence: TypeAlias = GraphEvidence | ObjectEvidence


def find_evidence(bundle: Bundle) -> Evidence | None:
  """Finds the evidence of a checkpoint's variables.

  Args:
    bundle: The checkpoint. In an object-based checkpoint, the object graph is
      the evidence. Otherwise the evidence is the MetaGraph beside the
      checkpoint, unless its saver does not save all of the checkpoint, or the
      file is older: a Saver writes it last, so an older file belongs to
      another checkpoint.

  Returns:
    The evidence; None if there is none.
  """
  if OBJECT_GRAPH in bundle.specs:
    return ObjectEvidence(ObjectGraph.read(bundle))
  meta, _ = bundle.meta_graph
  if meta is None:
    return None
  graph = meta.graph
  try:
    keys = meta.saver and meta_graph.find_saved_keys(graph.nodes, meta.saver)
    keys = keys or {
      node.name: {meta.full_names.get(node.name, node.name)}
      for node in graph.nodes
      if node.op in VARIABLES
    }
    if not set().union(*keys.values()).issuperset(bundle.specs):
      return None
    return GraphEvidence(DataFlow(graph), keys, meta.trainable)
  except _UNREADABLE:
    return None


def was_applied_by_contrib(meta: meta_graph.MetaGraph) -> bool:
  """Returns whether tf.contrib's optimizer applied gradients in a graph.

  A fixed loss scale of tf.contrib leaves no variable, and a program may have
  conds of its own around its optimizers. But only tf.contrib multiplied all
  gradients by one op `Reciprocal`, checked each of them by itself, and applied
  them in a cond of TensorFlow 1 on all of these checks:

      g * Reciprocal(scale) -> IsFinite -> All -> Pack -> All -> pred_id
  """
  if not (meta.release or "").startswith("TensorFlow 1."):
    return False
  nodes = {node.name: node for node in meta.graph.nodes}

  def get_inputs(node: NodeDef, op: str) -> list[NodeDef]:
    """Returns the inputs of an op if it has the type `op`."""
    if node.op != op:
      return []
    found = [nodes.get(name.partition(":")[0]) for name in node.inputs]
    return [each for each in found if each is not None]

  def find_reciprocals(check: NodeDef) -> set[str]:
    """Returns the reciprocals by which a checked gradient was multiplied."""
    return {
      source.name
      for finite in get_inputs(check, "All")[:1]
      for product in get_inputs(finite, "IsFinite")
      for factor in get_inputs(product, "Mul")
      for source in (factor, *get_inputs(factor, "Cast"))
      if source.op == "Reciprocal"
    }

  for node in meta.graph.nodes:
    if not is_pivot(node):
      continue
    checks = [
      check
      for every in get_inputs(node, "Identity")
      for pack in get_inputs(every, "All")[:1]
      for check in get_inputs(pack, "Pack")
    ]
    found = [find_reciprocals(check) for check in checks]
    scope = names.split_scope(node.name)[0]
    if (
      found
      and set.intersection(*found)
      and any(
        "Apply" in n.op and n.name.startswith(scope) for n in meta.graph.nodes
      )
    ):
      return True
  return False


def find_graph_evidence(
  graph_def: bytes,
  keys: Mapping[str, Iterable[str]],
  trainable: Collection[str],
) -> Evidence | None:
  """Finds the evidence of a program's variables.

  Args:
    graph_def: The encoded GraphDef of the program.
    keys: Variable of the graph -> its names in the checkpoint.
    trainable: The variables of the graph that are for training.

  Returns:
    The evidence; None if the graph is too large or of an unknown kind.
  """
  try:
    flow = DataFlow(parse_graph(graph_def))
    return GraphEvidence(flow, keys, trainable)
  except _UNREADABLE:
    return None
