# SPDX-License-Identifier: Apache-2.0
"""Gives the state of Keras's optimizers the names of TensorFlow 1.

So a program of TensorFlow 1 restores an object-based checkpoint of Keras.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import NamedTuple

from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint import reading
from tf_compat_lossscale.checkpoint import slots
from tf_compat_lossscale.checkpoint.objects import ObjectGraph
from tf_compat_lossscale.checkpoint.places import Place
from tf_compat_lossscale.checkpoint.places import Source
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import CheckpointError
from tf_compat_lossscale.checkpoint.reading import TensorSpec

_SAME_THERE = "the slot that Keras's optimizer calls {}"
_POWER = "computed from the steps and {} of Keras's optimizer"
_STEPS = "the steps of Keras's optimizer"
_SCALE = "of Keras 3's loss scale"
_FACTOR = "multiplied by {:g}, the inverse learning rate, negated"


def name_keras(
  checkpoint: Checkpoint,
  places: Sequence[Place],
  mapping: Mapping[str, str | None],
  learning_rate: float | None = None,
) -> tuple[dict[str, Source], dict[str, str | None]]:
  """Gives the state of Keras's optimizers the names of TensorFlow 1's.

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
  naming = _Naming(checkpoint, places, mapping, learning_rate)
  saved = list(
    _find_saved(naming.graph, reading.find_paths(checkpoint.object_graph))
  )
  for each in saved:
    naming.add_slots(each)
    naming.add_powers(each)
    naming.add_scale(each, saved)
  for name, spec in naming.wanted.items() if len(saved) == 1 else ():
    if names.split_scope(name)[1] == "global_step":
      naming.add(name, saved[0].counter, spec, _STEPS)
  return naming.sources, naming.mapping


class _Saved(NamedTuple):
  """One of Keras's optimizers in an object graph.

  Attributes:
    path: Its path.
    kind: The optimizer of TensorFlow 1 with the same slots: a key of
      `slots.ROLES`; '' if there is none.
    children: Attribute -> node, also of a wrapper.
    slots: (node of the weight, role, node of the slot).
  """

  path: str
  kind: str
  children: dict[str, int]
  slots: list[tuple[int, str, int]]

  @property
  def counter(self) -> int | None:
    """The node of the counter of steps."""
    found = [self.children.get(name) for name in slots.COUNTERS]
    return next((number for number in found if number is not None), None)


def _find_saved(
  graph: ObjectGraph, paths: Mapping[int, str]
) -> Iterator[_Saved]:
  """Yields each of Keras's optimizers in an object graph, with its path."""
  by_name = {
    value.full_name: number
    for number in range(len(graph.nodes))
    if (value := graph.find_value(number)) is not None and value.full_name
  }
  bases = {
    number: children[name]
    for number, children in enumerate(graph.children)
    for name in ("inner_optimizer", names.BASE_OPTIMIZER)
    if name in children
  }
  inside = set(bases.values())
  for number, own in enumerate(graph.children):
    base = bases.get(number, number)
    children = own | graph.children[base]
    if number in inside or children.keys().isdisjoint(slots.COUNTERS):
      continue
    if "iter" in children:
      found = [
        (weight, role, slot)
        for (owner, weight, role), slot in graph.slots.items()
        if owner in (number, base)
      ]
      kind = _find_legacy_kind(graph, found)
    else:
      kind = slots.find_kind_of_lists(children)
      found = [
        (weight, role, slot)
        for role, name in slots.LISTS.get(kind, {}).items()
        for weight, slot in _list_members(graph, children, name, by_name)
      ]
    yield _Saved(paths.get(number, ""), kind, children, found)


def _find_legacy_kind(
  graph: ObjectGraph, found: list[tuple[int, str, int]]
) -> str:
  """Returns the kind of an optimizer of `tf.keras.optimizers.legacy`."""
  scope = ""
  for weight, _, slot in found[:1]:
    values = graph.find_value(weight), graph.find_value(slot)
    if None not in values:  # It is `Adam/w/m`.
      name, whole = (value.full_name for value in values)
      scope = whole.rpartition(f"/{name}/")[0].rpartition("/")[2]
  kind = slots.find_kind([names.split_number(scope)[0]])
  if kind is not None:
    return kind
  return slots.find_kind_of_roles({role for _, role, _ in found})


def _list_members(
  graph: ObjectGraph,
  children: dict[str, int],
  name: str,
  by_name: Mapping[str, int],
) -> Iterator[tuple[int, int]]:
  """Yields (weight, slot) of a list of one of Keras's newer optimizers."""

  def members(name: str) -> list[int]:
    found = graph.children[children[name]] if name in children else {}
    return [found[key] for key in sorted(found, key=int) if key.isdecimal()]

  listed, weights = members(name), members("_trainable_variables")
  if len(listed) == len(weights):  # Keras 3.
    yield from zip(weights, listed)
    return
  for slot in listed:  # Keras 2, where it is `Adam/m/dense/kernel`.
    value = graph.find_value(slot)
    rest = value.full_name.partition("/")[2] if value is not None else ""
    while rest and rest not in by_name:
      rest = rest.partition("/")[2]
    if rest:
      yield by_name[rest], slot


class _Naming:
  def __init__(
    self,
    checkpoint: Checkpoint,
    places: Sequence[Place],
    mapping: Mapping[str, str | None],
    learning_rate: float | None,
  ) -> None:
    self.graph = ObjectGraph(checkpoint)
    self.sources: dict[str, Source] = {}
    self.mapping = dict(mapping)
    self.wanted = {place.name: place.spec for place in places}
    self._checkpoint, self._rate = checkpoint, learning_rate
    self._places = {place.name: place for place in places}
    self._named = slots.NamedSlots(self.wanted)
    # Name there -> names here. Slots of a variable go with it.
    self._by_key = names.group(
      self.wanted, lambda name: mapping.get(name) or name
    )
    # The program has names of Keras itself: it is in a graph.
    self._own = names.list_keys(checkpoint).keys() & self.wanted.keys()

  def add(
    self,
    name: str,
    number: int | None,
    spec: TensorSpec,
    why: str,
    factor: float = 1.0,
  ) -> None:
    key = self.graph.get_key(number)
    if key is not None and name not in self._own:
      self.sources[name] = Source(key, spec, factor=factor, why=why)

  def add_scale(self, saved: _Saved, others: Sequence[_Saved]) -> None:
    """Adds the names of Keras 3's loss scale, as in compat.v1."""
    if names.KERAS_3_SCALE not in saved.children:
      return
    have_scales = [names.KERAS_3_SCALE in each.children for each in others]
    scope = slots.find_scope(self.wanted, have_scales, saved.path)
    tensors = names.SCALE_TENSORS[names.COMPAT].items()
    for (name, spec), child in zip(tensors, names.KERAS_3):
      self.add(scope + name, saved.children[child], spec, _SCALE)

  def add_slots(self, saved: _Saved) -> None:
    by_slot = {key: name for name, key in self.mapping.items() if key}
    missing: list[str] = []
    for weight, role, slot in saved.slots if saved.kind else []:
      value, of_weight = map(self.graph.find_value, (slot, weight))
      if value is None or of_weight is None:
        continue
      key = value.checkpoint_key
      news = [by_slot[n] for n in (value.full_name, key) if n in by_slot]
      for name in self._by_key.get(of_weight.full_name, ()):
        roles = self._named.find(name, saved.kind)
        news += [roles[role]] if role in roles else []
        if "momentum" in roles and saved.kind == "RMSProp":
          missing.append(roles["momentum"])
      for name in dict.fromkeys(news):
        if name == value.full_name:
          continue  # The program is of Keras, too.
        if name in self.mapping:
          self.mapping[name] = name
        factor, why = 1.0, _SAME_THERE.format(role)
        if saved.kind == "Momentum":
          factor = -1 / self._find_rate(saved, name, value.full_name)
          why = _FACTOR.format(factor)
        self.add(name, slot, self._checkpoint.specs[key], why, factor)
    for name in missing:
      if name not in self.sources and name not in self._own:
        self._places[name].why = "Keras's optimizer has no momentum"

  def _find_rate(self, saved: _Saved, name: str, there: str) -> float:
    """Returns the positive rate with which training goes on."""
    rate = self._rate
    if rate is None and not self._read(saved.children.get("decay")):
      for child in ("learning_rate", "_learning_rate"):
        if rate is None:
          rate = self._read(saved.children.get(child))
    if rate is None or not 0 < rate < math.inf:
      raise CheckpointError(
        f"{self._checkpoint.prefix}: nothing tells the learning rate, by which "
        f"{name} ({there} in it) must be divided: give learning_rate to "
        "checkpoint.restore"
      )
    return rate

  def _read(self, number: int | None) -> float | None:
    """Returns the value of a scalar; None if it is not there."""
    key = self.graph.get_key(number)
    if key is None or self._checkpoint.specs[key].shape:
      return None
    return float(self._checkpoint.read_scalar(key))

  def add_powers(self, saved: _Saved) -> None:
    steps = self._read(saved.counter)
    if steps is None or saved.kind not in slots.CORRECTED:
      return
    key = self.graph.get_key(saved.counter) or ""
    for base in ("beta1_power", "beta2_power"):
      child = f"beta_{base[4]}"
      beta = self._read(saved.children.get(child))
      if beta is None:  # Newer optimizers do not save it.
        places = self._places.items()
        found = {p.beta for n, p in places if names.get_base(n) == base}
        beta = found.pop() if len(found) == 1 else None
      if beta is not None and 0 < beta < 1:
        spec, why = TensorSpec("float32", ()), _POWER.format(child)
        value = beta ** (steps + 1)
        self.sources[f"{saved.path}/{base}"] = Source(key, spec, value, why=why)
