# SPDX-License-Identifier: Apache-2.0
"""Exchanges the state of TensorFlow 1's optimizers with Keras's.

`name_keras` gives Keras's state to programs of TensorFlow 1, `_eager` gives
that of TensorFlow 1 to Keras's optimizers. docs/keras-checkpoints.md has the
table of optimizers and slots. All slots but one have the same values in both.
MomentumOptimizer sums gradients, and Keras's SGD what it adds to the variable:

    MomentumOptimizer    a = momentum * a + g;         w -= rate * a
    SGD                  v = momentum * v - rate * g;  w += v

So v is -rate * a. `slot_names` explains the *role* of a slot and the *kind* of
an optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import math
import numbers
from typing import Any
from typing import NamedTuple

import numpy as np

from tf_compat_lossscale._core import object_graph
from tf_compat_lossscale._core import slot_names
from tf_compat_lossscale._core.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint._targets import Source
from tf_compat_lossscale.checkpoint._targets import Target
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import CheckpointError
from tf_compat_lossscale.checkpoint.reading import TensorSpec

# How values were found.
SAME = "what the other optimizer has for the same"
FACTOR = "multiplied by {:g}, because of the learning rate"
_POWER = "computed from the steps and {} of Keras's optimizer"


def find_roles(bases: Mapping[str, Sequence[str]], kind: str) -> dict[str, str]:
  """Returns role -> slot of a weight; {} if the optimizer is in doubt.

  `bases` are a weight's of `names.group_slots`.
  """
  found: dict[str, str] = {}
  for base, members in bases.items():
    own, role = slot_names.OWN_NAMES.get(base, ("", ""))
    if kind not in (own, slot_names.ALIKE.get(base, base)):
      continue
    given = ((role,),) if own else slot_names.ROLES[kind]
    roles = next((r for r in given if len(r) == len(members)), ())
    if len(roles) != len(members) or found.keys() & set(roles):
      return {}
    found.update(zip(roles, members))
  return found


def is_rate(rate: Any) -> bool:
  """Returns whether a learning rate is a positive number."""
  return isinstance(rate, numbers.Real) and 0 < float(rate) < math.inf


def check_rate(rate: Any, checkpoint: Checkpoint, name: str) -> float:
  """Returns a learning rate, or raises the error that asks for it."""
  if is_rate(rate):
    return float(rate)
  raise CheckpointError(
    f"{checkpoint.prefix}: nothing tells the learning rate, by which the "
    f"momentum for {name} must be changed: give learning_rate"
  )


def compute_nadam_product(optimizer: Any, steps: int) -> float:
  """Returns the product of momentums of Keras's Nadam after some steps."""
  # That of legacy optimizers has `schedule_decay`. Long before so many steps,
  # the product is 0 in float32.
  decay = float(np.asarray(getattr(optimizer, "decay", 1.0)))
  beta = float(np.asarray(optimizer.beta_1))
  counts = np.arange(1, min(steps, 1_000_000) + 1)
  return float(np.prod(beta * (1 - 0.5 * 0.96 ** (decay * counts))))


def name_keras(
  checkpoint: Checkpoint,
  targets: Sequence[Target],
  mapping: Mapping[str, str | None],
  learning_rate: float | None = None,
) -> tuple[dict[str, Source], dict[str, str | None]]:
  """Gives the state of Keras's optimizers the names of TensorFlow 1's.

  So a program of TensorFlow 1 restores an object-based checkpoint of Keras:

      program         checkpoint           value
      w/Momentum      SGD/w/momentum       times -1 / learning rate
      w/Adam          Adam/w/m
      beta1_power     Adam/beta_1, iter    beta_1 ** (iter + 1)
      global_step     Adam/iter

  The powers are called `optimizer/beta1_power` here, by the path of Keras's
  optimizer: which program's power that is, is decided as for all powers. A slot
  that Keras's optimizer does not need is decided to start anew.

  Returns:
    Name in the program -> source; and the mapping, in which a slot that is
    mapped to one of Keras's has the converted value.
  """
  if checkpoint.object_graph is None:
    return {}, dict(mapping)
  naming = _Naming(checkpoint, targets, mapping, learning_rate)
  for each in naming.saved:
    naming.add_slots(each)
    naming.add_steps(each)
    naming.add_scale(each)
  return naming.sources, naming.mapping


class _Naming:
  """The names that Keras's state has in a program of TensorFlow 1."""

  def __init__(
    self,
    checkpoint: Checkpoint,
    targets: Sequence[Target],
    mapping: Mapping[str, str | None],
    learning_rate: float | None,
  ) -> None:
    self.sources: dict[str, Source] = {}
    self.mapping = dict(mapping)
    self._checkpoint, self._rate = checkpoint, learning_rate
    self._graph = checkpoint.objects
    self.saved = list(_find_saved(self._graph))
    self._targets = {target.name: target for target in targets}
    self._wanted = {target.name: target.spec for target in targets}
    self._named = names.group_slots(self._wanted)
    # Name there -> names here. Slots of a variable go with it.
    self._by_key = names.group(
      self._wanted, lambda name: mapping.get(name) or name
    )
    # The program has names of Keras itself: it is in a graph.
    self._own = names.list_keys(checkpoint).keys() & self._wanted.keys()

  def _add(
    self, name: str, number: int | None, spec: TensorSpec, factor: float = 1.0
  ) -> None:
    key = self._graph.get_key(number)
    if key is not None and name not in self._own:
      why = SAME if factor == 1 else FACTOR.format(factor)
      self.sources[name] = Source(key, spec, factor=factor, why=why)

  def add_scale(self, saved: _KerasOptimizer) -> None:
    """Adds the names of Keras 3's loss scale, as in compat.v1."""
    if object_graph.KERAS_3_SCALE not in saved.children:
      return
    count = sum(
      object_graph.KERAS_3_SCALE in each.children for each in self.saved
    )
    known = names.find_scales(self._wanted).known
    # Several are told apart by their scopes, or not at all.
    scope = known[0].scope if len(known) == count == 1 else f"{saved.path}/"
    tensors = names.SCALE_TENSORS[names.COMPAT].items()
    for (name, spec), child in zip(tensors, object_graph.KERAS_3_MEMBERS):
      self._add(scope + name, saved.children[child], spec)

  def add_slots(self, saved: _KerasOptimizer) -> None:
    """Adds the slots of weights; decides on those that Keras does not need."""
    by_slot = {key: name for name, key in self.mapping.items() if key}
    spare: list[str] = []
    for weight, role, slot in saved.slots if saved.kind else []:
      key, there = self._graph.get_key(slot), self._graph.get_name(slot)
      if key is None:
        continue
      news = [by_slot[n] for n in (there, key) if n in by_slot]
      for name in self._by_key.get(self._graph.get_name(weight), ()):
        roles = find_roles(self._named.get(name, {}), saved.kind)
        news += [roles[role]] if role in roles else []
        if "momentum" in roles and saved.kind == "RMSProp":
          spare.append(roles["momentum"])
      for name in dict.fromkeys(news):
        if name == there:
          continue  # The program is of Keras, too.
        if name in self.mapping:
          self.mapping[name] = name
        factor = 1.0
        if saved.kind == "Momentum":
          rate = self._rate or self._find_rate(saved.children)
          factor = -1 / check_rate(rate, self._checkpoint, name)
        self._add(name, slot, self._checkpoint.specs[key], factor)
    for name in spare:
      if name not in self.sources and name not in self._own:
        self._targets[name].why = "Keras's optimizer has no momentum"

  def _find_rate(self, children: dict[str, int]) -> float | None:
    """Returns the learning rate that Keras's optimizer had, if it was fixed."""
    if self._read(children.get("decay")):
      return None
    rate = self._read(children.get("learning_rate"))
    return self._read(children.get("_learning_rate")) if rate is None else rate

  def _read(self, number: int | None) -> float | None:
    """Returns the value of a scalar; None if it is not there."""
    key = self._graph.get_key(number)
    if key is None or self._checkpoint.specs[key].shape:
      return None
    return float(self._checkpoint.read_scalar(key))

  def add_steps(self, saved: _KerasOptimizer) -> None:
    """Adds the global step, if there is one optimizer, and Adam's powers."""
    for name, spec in self._wanted.items() if len(self.saved) == 1 else ():
      if names.is_global_step(name):
        self._add(name, saved.counter, spec)
    steps = self._read(saved.counter)
    if steps is None or saved.kind not in slot_names.CORRECTED:
      return
    key = self._graph.get_key(saved.counter) or ""
    for base in ("beta1_power", "beta2_power"):
      child = f"beta_{base[4]}"
      beta = self._read(saved.children.get(child))
      if beta is None:  # Newer optimizers do not save it.
        targets = self._targets.items()
        found = {p.beta for n, p in targets if names.get_base(n) == base}
        beta = found.pop() if len(found) == 1 else None
      if beta is not None and 0 < beta < 1:
        spec, why = TensorSpec("float32", ()), _POWER.format(child)
        value = beta ** (steps + 1)
        self.sources[f"{saved.path}/{base}"] = Source(key, spec, value, why=why)


class _KerasOptimizer(NamedTuple):
  """One of Keras's optimizers in an object graph.

  Attributes:
    kind: The optimizer of TensorFlow 1 with the same slots: a key of
      `slot_names.ROLES`; '' if there is none.
    children: Attribute -> node, also of a wrapper.
    slots: (node of the weight, role, node of the slot).
  """

  path: str
  kind: str
  children: dict[str, int]
  slots: list[tuple[int, str, int]]
  counter: int


def _find_saved(graph: ObjectGraph) -> Iterator[_KerasOptimizer]:
  """Yields each of Keras's optimizers in an object graph."""
  paths = graph.find_paths()
  for number, base in graph.find_optimizers().items():
    children = graph.children[number] | graph.children[base]
    counters = [
      children[name] for name in object_graph.COUNTERS if name in children
    ]
    if not counters:
      continue
    if "iter" in children:
      slots = graph.get_slots(number, base)
      kind = _find_legacy_kind(graph, slots)
    else:
      kind = slot_names.find_kind_of_lists(children)
      slots = list(
        _list_members(graph, children, slot_names.LISTS.get(kind, {}))
      )
    yield _KerasOptimizer(
      paths.get(number, ""), kind, children, slots, counters[0]
    )


def _find_legacy_kind(
  graph: ObjectGraph, slots: list[tuple[int, str, int]]
) -> str:
  """Returns the kind of an optimizer of `tf.keras.optimizers.legacy`."""
  scope = ""
  for weight, _, slot in slots[:1]:  # It is `Adam/w/m`.
    name, whole = map(graph.get_name, (weight, slot))
    scope = whole.rpartition(f"/{name}/")[0].rpartition("/")[2]
  kind = slot_names.find_kind([names.split_number(scope)[0]])
  if kind is None:
    kind = slot_names.find_kind_of_roles({role for _, role, _ in slots})
  return kind


def _list_members(
  graph: ObjectGraph, children: dict[str, int], lists: Mapping[str, str]
) -> Iterator[tuple[int, str, int]]:
  """Yields (weight, role, slot) of one of Keras's newer optimizers."""

  def members(name: str) -> list[int]:
    found = graph.children[children[name]] if name in children else {}
    return [found[key] for key in sorted(filter(str.isdecimal, found), key=int)]

  weights = members("_trainable_variables")
  by_name = {graph.get_name(n): n for n in range(len(graph.nodes))}
  for role, attribute in lists.items():
    listed = members(attribute)
    if len(listed) == len(weights):  # Keras 3.
      yield from zip(weights, [role] * len(listed), listed)
      continue
    for slot in listed:  # Keras 2, where it is `Adam/m/dense/kernel`.
      rest = graph.get_name(slot).partition("/")[2]
      while rest and rest not in by_name:
        rest = rest.partition("/")[2]
      if rest:
        yield by_name[rest], role, slot
