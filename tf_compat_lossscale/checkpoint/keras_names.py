# SPDX-License-Identifier: Apache-2.0
"""Gives the state of Keras's optimizers the names of TensorFlow 1.

So a program of TensorFlow 1 restores an object-based checkpoint of Keras.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
import math
from typing import NamedTuple

from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint import objects as walking
from tf_compat_lossscale.checkpoint import reading
from tf_compat_lossscale.checkpoint import slots
from tf_compat_lossscale.checkpoint.matching import Source
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import CheckpointError
from tf_compat_lossscale.checkpoint.reading import TensorSpec

_SAME_THERE = "the slot that Keras's optimizer calls {}"
_POWER = "computed from the steps and {} of Keras's optimizer"
_STEPS = "the steps of Keras's optimizer"
_SCALE = "of Keras 3's loss scale"
_FACTOR = "multiplied by {:g}, {}"


class Named(NamedTuple):
  """What a checkpoint of Keras has for a program of TensorFlow 1.

  Attributes:
    sources: Name in that program -> the source of its value.
    reasons: The same names -> how the source was found.
    initial: Variable of that program -> why it starts from its initial value.
    mapping: The caller's mapping. A slot that is mapped to one of Keras's gets
      the converted value.
  """

  sources: dict[str, Source]
  reasons: dict[str, str]
  initial: dict[str, str]
  mapping: dict[str, str | None]


def name_keras(
  checkpoint: Checkpoint,
  wanted: Mapping[str, TensorSpec],
  mapping: Mapping[str, str | None],
  learning_rate: float | None = None,
  betas: Mapping[str, float] | None = None,
) -> Named:
  """Gives the state of Keras's optimizers the names of TensorFlow 1's.

      program         checkpoint           value
      w/Momentum      SGD/w/momentum       times -1 / learning rate
      w/Adam          Adam/w/m
      beta1_power     Adam/beta_1, iter    beta_1 ** (iter + 1)
      global_step     Adam/iter

  The powers are called `optimizer/beta1_power` here, by the path of Keras's
  optimizer: which program's power that is, is decided as for all powers.

  Args:
    checkpoint: The checkpoint.
    wanted: Variable of the program -> dtype and shape.
    mapping: Variable -> its name in the checkpoint, as the caller decided.
    learning_rate: The learning rate with which training goes on; None for that
      of the checkpoint.
    betas: Power in the program -> its initial value, which newer optimizers of
      Keras do not save.

  Raises:
    CheckpointError: Slots depend on a learning rate that nothing tells.
  """
  named = Named({}, {}, {}, dict(mapping))
  if checkpoint.object_graph is None:
    return named
  graph = walking.ObjectGraph(checkpoint)
  paths = reading.find_paths(checkpoint.object_graph)
  saved = list(_find_saved(graph, paths))
  if saved:
    _Naming(checkpoint, graph, wanted, learning_rate, betas or {}, named).run(
      saved
    )
  return named


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


def _find_saved(
  graph: walking.ObjectGraph, paths: Mapping[int, str]
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
    found = [
      (
        slot.original_variable_node_id,
        slot.slot_name,
        slot.slot_variable_node_id,
      )
      for part in {number: None, base: None}
      for slot in graph.nodes[part].slot_variables
    ]
    if "iter" in children:
      kind = _find_legacy_kind(graph, found)
    else:
      kinds = [
        kind
        for kind, lists in slots.LISTS.items()
        if children.keys() >= set(lists.values())
      ]
      kind = kinds[0] if kinds else ""
      found = [
        (weight, role, slot)
        for role, name in slots.LISTS.get(kind, {}).items()
        for weight, slot in _list_members(graph, children, name, by_name)
      ]
    yield _Saved(paths.get(number, ""), kind, children, found)


def _find_legacy_kind(
  graph: walking.ObjectGraph, found: list[tuple[int, str, int]]
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
  graph: walking.ObjectGraph,
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
  """The naming of the state of Keras's optimizers in one checkpoint."""

  def __init__(
    self,
    checkpoint: Checkpoint,
    graph: walking.ObjectGraph,
    wanted: Mapping[str, TensorSpec],
    learning_rate: float | None,
    betas: Mapping[str, float],
    result: Named,
  ) -> None:
    self._checkpoint, self._graph = checkpoint, graph
    self._wanted, self._rate = wanted, learning_rate
    self._betas, self._result = betas, result
    self._named = slots.NamedSlots(wanted)
    # Name there -> names here. Slots of a variable go with it.
    self._by_key = names.group(
      wanted, lambda name: result.mapping.get(name) or name
    )
    # The program has names of Keras itself: it is in a graph.
    self._own = names.list_keys(checkpoint).keys() & wanted.keys()

  def run(self, saved: list[_Saved]) -> None:
    """Fills the result."""
    for each in saved:
      self._add_slots(each)
      self._add_powers(each)
      if "dynamic_scale" in each.children:
        scope = slots.find_scope(
          self._wanted,
          ["dynamic_scale" in other.children for other in saved],
          each.path,
        )
        tensors = names.SCALE_TENSORS[names.COMPAT].items()
        for (name, spec), child in zip(tensors, names.KERAS_3):
          self._add(scope + name, each.children[child], spec, _SCALE)
    if len(saved) == 1:
      for name, spec in self._wanted.items():
        if names.split_scope(name)[1] == "global_step":
          self._add(name, self._get_counter(saved[0]), spec, _STEPS)

  def _add(
    self,
    name: str,
    number: int | None,
    spec: TensorSpec,
    why: str,
    factor: float = 1.0,
  ) -> None:
    """Adds the name of a node's value."""
    key = self._graph.get_key(number)
    if key is not None and name not in self._own:
      self._result.sources[name] = Source(key, spec, factor=factor)
      self._result.reasons[name] = why

  def _get_counter(self, saved: _Saved) -> int | None:
    found = [saved.children[n] for n in slots.COUNTERS if n in saved.children]
    return found[0] if found else None

  def _add_slots(self, saved: _Saved) -> None:
    """Adds the names of an optimizer's slots."""
    by_slot = {key: name for name, key in self._result.mapping.items() if key}
    missing: dict[str, str] = {}
    for weight, role, slot in saved.slots:
      value, of_weight = map(self._graph.find_value, (slot, weight))
      key = self._graph.get_key(slot)
      if value is None or of_weight is None or key is None or not saved.kind:
        continue
      news = [by_slot[n] for n in (value.full_name, key) if n in by_slot]
      for name in self._by_key.get(of_weight.full_name, ()):
        roles = self._named.find(name, saved.kind)
        news += [roles[role]] if role in roles else []
        if "momentum" in roles and saved.kind == "RMSProp":
          missing[roles["momentum"]] = "Keras's optimizer has no momentum"
      spec = self._checkpoint.specs[key]
      for name in dict.fromkeys(news):
        if name == value.full_name:
          continue  # The program is of Keras, too.
        if name in self._result.mapping:
          self._result.mapping[name] = name
        if saved.kind == "Momentum":
          rate = self._find_rate(saved, name, value.full_name)
          why = _FACTOR.format(-1 / rate, "the inverse learning rate, negated")
          self._add(name, slot, spec, why, -1 / rate)
        else:
          self._add(name, slot, spec, _SAME_THERE.format(role))
    for name, why in missing.items():
      if name not in self._result.sources and name not in self._own:
        self._result.initial[name] = why

  def _find_rate(self, saved: _Saved, name: str, there: str) -> float:
    """Returns the positive rate with which training goes on."""
    rate = self._rate
    if rate is None:
      found = [
        self._read(saved.children.get(n))
        for n in (slots.CURRENT_RATE, "learning_rate", "_learning_rate")
      ]
      rate = next((each for each in found if each is not None), None)
      decay = self._read(saved.children.get("decay"))
      steps = self._read(self._get_counter(saved))
      if rate is not None and decay and steps:
        rate /= 1 + decay * steps
    if rate is None or not 0 < rate < math.inf:
      raise CheckpointError(
        f"{self._checkpoint.prefix}: nothing tells the learning rate, by which "
        f"{name} ({there} in it) must be divided: give learning_rate to "
        "checkpoint.restore"
      )
    return rate

  def _read(self, number: int | None) -> float | None:
    """Returns the value of a scalar; None if it is not there."""
    key = self._graph.get_key(number)
    if key is None or self._checkpoint.specs[key].shape:
      return None
    return float(self._checkpoint.read_scalar(key))

  def _add_powers(self, saved: _Saved) -> None:
    """Adds the powers of an optimizer."""
    steps = self._read(self._get_counter(saved))
    if steps is None or saved.kind not in slots.CORRECTED:
      return
    key = self._graph.get_key(self._get_counter(saved)) or ""
    for base in ("beta1_power", "beta2_power"):
      child = f"beta_{base[4]}"
      beta = self._read(saved.children.get(child))
      if beta is None:  # Newer optimizers do not save it.
        found = {
          value
          for name, value in self._betas.items()
          if names.get_base(name) == base
        }
        beta = found.pop() if len(found) == 1 else None
      if beta is not None and 0 < beta < 1:
        name = f"{saved.path}/{base}"
        spec = TensorSpec("float32", ())
        self._result.sources[name] = Source(key, spec, beta ** (steps + 1))
        self._result.reasons[name] = _POWER.format(child)
