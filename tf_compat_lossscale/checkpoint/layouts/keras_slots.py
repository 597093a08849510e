# SPDX-License-Identifier: Apache-2.0
"""Knows what slots of TensorFlow 1's optimizers are called in Keras.

    tf.compat.v1.train   slots of w                     Keras
    MomentumOptimizer    Momentum                       momentum (*)
    RMSPropOptimizer     RMSProp, RMSProp_1             rms, momentum
      centered           RMSProp, RMSProp_1, RMSProp_2  rms, mg, momentum
    AdagradOptimizer     Adagrad                        accumulator
    AdadeltaOptimizer    Adadelta, Adadelta_1           accum_grad, accum_var
    FtrlOptimizer        Ftrl, Ftrl_1                   accumulator, linear
    AdamOptimizer        Adam, Adam_1                   m, v
    contrib's AdaMax     AdaMax, AdaMax_1               m, v
    BERT's AdamW, LAMB   adam_m, adam_v                 m, v

All slots but one have the same values in both. (*) MomentumOptimizer sums
gradients, and Keras's SGD sums what it adds to the variable:

    MomentumOptimizer    a = momentum * a + g;         w -= rate * a
    SGD                  v = momentum * v - rate * g;  w += v

So v is -rate * a. If the rate of the program that goes on differs from that of
the program that was left, then it is the new rate that counts: with v, SGD goes
on as MomentumOptimizer would with that rate, and the other way round.

This module speaks of a slot's *role*: the slot's name in the table's last
column. Keras 2's `tf.keras.optimizers.legacy` has slots by these names. Later
optimizers have a list of variables for each role, such as `_velocities`.

Keras's optimizers have further variables. What they get from TensorFlow 1:

    learning_rate and others         they keep their values: `HYPERPARAMETERS`
    _current_learning_rate           what the schedule gives at that step
    iter, _iterations                global_step, times the gradients that
                                     Keras 3 accumulates for each step
    momentum_cache, _u_product       computed: Nadam's product of momentums
    _model_variables_moving_average  w/ExponentialMovingAverage, else w
    _accumulated_gradients           0: global_step counts whole steps
    vhat, _velocity_hats (AMSGrad)   nothing
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import math
import re
from typing import NamedTuple

import numpy as np

from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.files.object_graph import Node
from tf_compat_lossscale.checkpoint.files.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.files.values import Sources
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts import slots
from tf_compat_lossscale.checkpoint.layouts.inventory import Inventory

# Further names -> the optimizer with the same slots. Weight decay is no slot.
_SAME_SLOTS = {"AdamW": "Adam", "MomentumW": "Momentum"}
# The slots of BERT's optimizers, which each have a name of their own.
OWN_NAMES = {
  "adam_m": ("Adam", "m"),
  "adam_v": ("Adam", "v"),
  "lamb_m": ("Adam", "m"),
  "lamb_v": ("Adam", "v"),
}
# It runs MomentumOptimizer's ops with a rate for each weight.
_OTHERS = {"LARSOptimizer"}
_OPS = re.compile(
  r"(?:Resource)?(?:Sparse)?Apply(?:Centered)?"
  r"(Adadelta|Adagrad|Adam|AdaMax|Ftrl|Momentum|RMSProp)(?:V2)?"
)
# A role -> the attributes of Keras's newer optimizers that list its variables.
# The first optimizer of which all lists are there is the optimizer.
_LISTS: dict[str, dict[str, str]] = {
  "RMSProp": {
    "rms": "_velocities",
    "mg": "_average_gradients",
    "momentum": "_momentums",
  },
  "Adam": {"m": "_momentums", "v": "_velocities"},
  "AdaMax": {"m": "_m", "v": "_u"},
  "Adadelta": {
    "accum_grad": "_accumulated_grads",
    "accum_var": "_accumulated_delta_vars",
  },
  "Ftrl": {"accumulator": "_accumulators", "linear": "_linears"},
  "Adagrad": {"accumulator": "_accumulators"},
  "Momentum": {"momentum": "momentums"},
}
# Keras's optimizers, in lower case, whose slots have these roles' names, but
# other meanings.
_OTHER_MEANINGS = {
  "adabelief",
  "adafactor",
  "lars",
  "lion",
  "muon",
  "novograd",
  "schedulefreeadamw",
  "yogi",
}
# Attributes of Keras's optimizers that other checkpoints have no variables for.
HYPERPARAMETERS = {
  "beta",
  "beta_1",
  "beta_2",
  "decay",
  "epsilon",
  "l1_regularization_strength",
  "l2_regularization_strength",
  "learning_rate",
  "learning_rate_power",
  "momentum",
  "rho",
  "weight_decay",
  "weight_decay_rate",
  "_current_learning_rate",
  "_learning_rate",
}
CURRENT_RATE = "_current_learning_rate"  # What a schedule gave in a step.
_RATES = ("learning_rate", "_learning_rate")
_COUNTERS = ("iter", "_iterations")
_CACHES = ("momentum_cache", "_u_product")
# Lists of variables that newer optimizers have beside their slots.
_AVERAGES = "_model_variables_moving_average"
_SUMS = "_accumulated_gradients"
_KNOWN = {*HYPERPARAMETERS, *_CACHES, "inner_optimizer"}
_MOST_MEMBERS = 20_000_000  # Of the lists of all optimizers.
_MOST_COUNTED = 1_000_000  # Steps whose momentums are multiplied one by one.
_MOST_PARTS = 100  # Of a slot's name.
# The optimizers that correct their slots by the number of steps.
CORRECTED = {"Adam", "AdaMax"}
# In steps, for each step: powers are products in float32.
_TOLERANCE = 1e-4


class KerasSlot(NamedTuple):
  """A slot of one of Keras's optimizers in an object graph.

  Attributes:
    weight: The number of the weight's node.
    role: The slot's role.
    number: The number of the slot's node.
  """

  weight: int
  role: str
  number: int


class KerasOptimizer(NamedTuple):
  """One of Keras's optimizers in an object graph.

  Attributes:
    kind: The optimizer of TensorFlow 1 that has the same slots: a key of
      `slots.ROLES`; '' if there is none.
    iterations: The number of the node of the counter of steps.
    slots: The slots.
    children: Attribute -> number of its node, of the attributes that this
      wing knows; those of a wrapped optimizer too.
    number: The number of the optimizer's node.
    averages: The moving averages of weights, as if they were slots.
    sums: The sums of gradients that Keras 3 accumulates, likewise.
  """

  kind: str
  iterations: int
  slots: tuple[KerasSlot, ...]
  children: dict[str, int]
  number: int = -1
  averages: tuple[KerasSlot, ...] = ()
  sums: tuple[KerasSlot, ...] = ()

  @property
  def rate(self) -> int | None:
    """The number of the learning rate's node; None if it is no variable."""
    found = [self.children[n] for n in _RATES if n in self.children]
    return found[0] if found else None

  @property
  def cache(self) -> int | None:
    """The number of the node of Nadam's product of momentums; None if none."""
    found = [self.children[n] for n in _CACHES if n in self.children]
    return found[0] if found else None

  @property
  def last_rate(self) -> int | None:
    """The number of the node of the last step's rate; None if none."""
    return self.children.get(CURRENT_RATE, self.rate)

  @property
  def has_fixed_schedule(self) -> bool:
    """Whether Nadam's schedule of momentums has no parameter."""
    return "_u_product" in self.children


@dataclasses.dataclass(frozen=True)
class Settings:
  """What an optimizer tells that no checkpoint has.

  Attributes:
    classes: The names of its class and of the classes that it derives from.
    beta_1: Its `beta_1`; None if it has none.
    momentum: Its `momentum`, likewise.
    accumulated: The number of gradients that it adds up for each step.
    find_rate: Step -> the learning rate of a schedule; None without schedule.
  """

  classes: tuple[str, ...] = ()
  beta_1: float | None = None
  momentum: float | None = None
  accumulated: int = 1
  find_rate: Callable[[int], float] | None = None

  @property
  def is_known(self) -> bool:
    """Whether slots have the meanings that their names have elsewhere."""
    return not any(name.lower() in _OTHER_MEANINGS for name in self.classes)


def find_keras_optimizers(graph: ObjectGraph) -> Iterator[KerasOptimizer]:
  """Yields each of Keras's optimizers in an object graph.

  Raises:
    CheckpointError: The optimizers share more variables than any program has.
  """
  lists: _Lists | None = None
  for number, node in enumerate(graph.nodes):
    counters = [node.children[n] for n in _COUNTERS if n in node.children]
    if not counters:
      continue
    base = node.children.get(names.BASE_OPTIMIZER)
    parents = [node] if base is None else [node, graph.nodes[base]]
    children = {
      name: parent.children[name]
      for parent in reversed(parents)
      for name in _KNOWN & parent.children.keys()
    }
    averages: tuple[KerasSlot, ...] = ()
    sums: tuple[KerasSlot, ...] = ()
    if "iter" in node.children:
      found = tuple(KerasSlot(s.variable, s.name, s.slot) for s in node.slots)
      kind = _find_kind(graph, node)
    else:
      lists = lists or _Lists(graph)
      kind, found = lists.find(node)
      averages = lists.find_slots(node, {"": _AVERAGES})
      sums = lists.find_slots(node, {"": _SUMS})
    yield KerasOptimizer(
      kind, counters[0], found, children, number, averages, sums
    )


def _find_kind(graph: ObjectGraph, node: Node) -> str:
  """Returns the kind of an optimizer of `tf.keras.optimizers.legacy`."""
  found = {slot.name for slot in node.slots}
  scope = _find_scope(graph, node)
  if scope in _OTHER_MEANINGS:
    return ""
  if {"m", "v"} <= found:
    return "AdaMax" if scope == "adamax" else "Adam"
  return slots.find_kind(found) or ""


def _find_scope(graph: ObjectGraph, node: Node) -> str:
  """Returns the name of an optimizer, in lower case; '' if unknown."""
  for slot in node.slots[:1]:
    weight, value = map(graph.find_value, (slot.variable, slot.slot))
    if weight and value:  # It is `Adam/w/m`.
      scope = value.full_name.rpartition(f"/{weight.full_name}/")[0]
      name = names.split_number(scope.rpartition("/")[2])[0]
      return name.lower().replace("_", "")
  return ""


class _Lists:
  """The lists of variables that Keras's newer optimizers have."""

  def __init__(self, graph: ObjectGraph) -> None:
    self._graph = graph
    self._left = _MOST_MEMBERS
    self._by_name: dict[str, int] = {}
    for number in range(len(graph.nodes)):
      value = graph.find_value(number)
      if value and value.full_name:
        self._by_name.setdefault(value.full_name, number)

  def find(self, node: Node) -> tuple[str, tuple[KerasSlot, ...]]:
    """Returns the kind and the slots of an optimizer of Keras 2.11 or later."""
    kind = next(
      (k for k, v in _LISTS.items() if node.children.keys() >= set(v.values())),
      "",
    )
    return kind, self.find_slots(node, _LISTS.get(kind, {}))

  def find_slots(
    self, node: Node, attributes: Mapping[str, str]
  ) -> tuple[KerasSlot, ...]:
    """Returns the slots in some lists of an optimizer.

    Args:
      node: The optimizer.
      attributes: Role -> the attribute that lists its variables.
    """
    lists = {
      role: members
      for role, name in attributes.items()
      if (members := self._list(node, name))
    }
    weights = self._list(node, "_trainable_variables") if lists else []
    found: list[KerasSlot] = []
    for role, members in lists.items():
      if len(members) == len(weights):  # Keras 3.
        found += [KerasSlot(w, role, n) for w, n in zip(weights, members)]
        continue
      for number in members:
        weight = self._find_weight(number)
        if weight is not None:
          found.append(KerasSlot(weight, role, number))
    return tuple(found)

  def _find_weight(self, number: int) -> int | None:
    """Returns the node of the weight of a slot `Adam/m/dense/kernel`."""
    value = self._graph.find_value(number)
    rest = value.full_name if value else ""
    for _ in range(_MOST_PARTS):
      _, slash, rest = rest.partition("/")
      if not slash or rest in self._by_name:
        return self._by_name.get(rest)
    return None

  def _list(self, node: Node, name: str) -> list[int]:
    """Returns the members of a list that an object has as an attribute."""
    if name not in node.children:
      return []
    children = self._graph.nodes[node.children[name]].children
    self._left -= len(children)
    if self._left < 0:
      raise CheckpointError(
        "the object graph is damaged: its optimizers share more variables "
        "than those of any program"
      )
    return [children[key] for key in sorted(children, key=_sort_key)]


def _sort_key(name: str) -> tuple[int, str]:
  """Returns a key that sorts the names of a list's members as numbers."""
  is_number = name.isdecimal() and len(name) < 10
  return (int(name), "") if is_number else (10**9, name)


@dataclasses.dataclass
class FoundSlots:
  """The slots of a weight that one of TensorFlow 1's optimizers has.

  Attributes:
    roles: Role -> the slot's name.
    candidates: The slots of several optimizers, if nothing tells them apart.
    rates: The learning rates of MomentumOptimizer, as `Owner` has them.
  """

  roles: dict[str, str] = dataclasses.field(default_factory=dict)
  candidates: list[str] = dataclasses.field(default_factory=list)
  rates: frozenset[float | str | None] = frozenset()


class NamedSlots:
  """The slots of TensorFlow 1's optimizers among variables by name."""

  def __init__(self, inventory: Inventory) -> None:
    """Takes the variables, whose evidence is gathered."""
    self._inventory = inventory
    self._by_weight: dict[str, list[tuple[str, list[str]]]] = {}
    for family, members in inventory.families.items():
      self._by_weight.setdefault(family.weight, []).append(
        (family.base, members)
      )

  def find(self, weight: str, kind: str) -> FoundSlots:
    """Finds the slots of a weight.

    Args:
      weight: The weight's name.
      kind: The optimizer: a key of `slots.ROLES`.
    """
    result = FoundSlots()
    for base, members in self._by_weight.get(weight, ()):
      if self._find_kind(base, members) != kind:
        continue
      roles = self._find_roles(base, members, kind)
      if not roles or roles.keys() & result.roles.keys():
        result.candidates += [*result.roles.values(), *members]
        result.roles = {}
      elif not result.candidates:
        result.roles |= roles
        owners = self._inventory.find_owners(members).values()
        result.rates = frozenset().union(*(owner.rates for owner in owners))
    return result

  def _find_kind(self, base: str, members: list[str]) -> str:
    """Returns which optimizer slots of one name belong to; '' if unknown.

    The ops that update a slot tell. If there is no graph, or only ops that any
    optimizer has, then the name does.
    """
    if base in _OTHERS:
      return ""
    if base in OWN_NAMES:
      return OWN_NAMES[base][0]
    owners = self._inventory.find_owners(members).values()
    kinds = {
      found[1]
      for owner in owners
      for op, _ in owner.types
      if (found := _OPS.fullmatch(op))
    }
    by_name = _SAME_SLOTS.get(base, base)
    if len(kinds) == 1:
      return kinds.pop()
    return by_name if by_name in (kinds or slots.ROLES) else ""

  def _find_roles(
    self, base: str, members: list[str], kind: str
  ) -> dict[str, str]:
    """Returns role -> slot; {} if several optimizers may have the slots."""
    if base in OWN_NAMES:
      return {OWN_NAMES[base][1]: members[0]} if len(members) == 1 else {}
    fitting = [each for each in slots.ROLES[kind] if len(each) == len(members)]
    count = slots.count_owners(self._inventory, members, kind)
    return dict(zip(fitting[0], members)) if fitting and count == 1 else {}


def count_steps(power: float, beta: float) -> int | None:
  """Returns after how many steps a power of Adam has a value; None if unknown.

  Args:
    power: The value of `beta1_power` or `beta2_power`: beta ** (steps + 1).
    beta: The base.
  """
  if not 0 < beta < 1 or not np.finfo(np.float32).tiny <= power <= beta * 1.001:
    return None
  return round(math.log(power) / math.log(beta)) - 1


def are_steps_near(steps: int, others: int) -> bool:
  """Returns whether two numbers of steps are equal but for float32's errors."""
  return abs(steps - others) <= max(1, _TOLERANCE * others)


def compute_nadam_cache(
  beta: float | None, decay: float | None, steps: int
) -> float | None:
  """Returns Keras's product of Nadam's momentums after some steps.

  Args:
    beta: Nadam's `beta_1`, if known.
    decay: Its `schedule_decay`, if known.
    steps: The number of steps.

  Returns:
    The product; None if a number is not known, or is none of Nadam's.
  """
  if beta is None or not 0 < beta < 1 or decay is None or decay < 0:
    return None
  # Long before, the product is 0 in float32, unless beta is very near 1.
  counts = np.arange(1, min(steps, _MOST_COUNTED) + 1)
  factors = beta * (1 - 0.5 * 0.96 ** (decay * counts))
  left = max(0, steps - _MOST_COUNTED)
  return float(np.float32(np.prod(factors) * beta**left))


def find_nadam_beta(product: float, steps: int) -> float | None:
  """Returns the `beta_1` of a newer Nadam, which does not save it.

  Args:
    product: The product of momentums.
    steps: The number of steps.

  Returns:
    The number; None if the product does not tell it.
  """
  if not 0 < steps < _MOST_COUNTED or product < np.finfo(np.float32).tiny:
    return None
  one = 1 - 0.5 * 0.96 ** np.arange(1, steps + 1)
  beta = float(np.exp((np.log(product) - np.sum(np.log(one))) / steps))
  return beta if 0 < beta < 1 else None


def find_rate(
  found: Iterable[float | str | None], variables: Sources
) -> float | None:
  """Returns the only learning rate, if there is one and it is known.

  Args:
    found: The rates, as `Owner` has them.
    variables: Name -> tensor, of those that may be rates.
  """
  known: set[float | None] = set()
  for rate in found:
    source = variables.get(rate) if isinstance(rate, str) else None
    if source and not source.spec.shape:
      known.add(source.read_scalar())
    else:
      known.add(None if isinstance(rate, str) else rate)
  return known.pop() if len(known) == 1 else None
