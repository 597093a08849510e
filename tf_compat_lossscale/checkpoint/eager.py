# SPDX-License-Identifier: Apache-2.0
"""Restores checkpoints by name into objects with optimizers, eagerly.

The optimizers may be TensorFlow 1's or Keras's; `slots` has the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import difflib
import numbers
from typing import Any
from typing import NamedTuple

from absl import logging
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import optimizer_kinds
from tf_compat_lossscale._core.tf import optimizers as tf_optimizers
from tf_compat_lossscale.checkpoint import matching
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint import objects as _objects
from tf_compat_lossscale.checkpoint import places
from tf_compat_lossscale.checkpoint import slots
from tf_compat_lossscale.checkpoint.places import Place
from tf_compat_lossscale.checkpoint.places import Source
from tf_compat_lossscale.checkpoint.places import Undecided
from tf_compat_lossscale.checkpoint.places import Wishes
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import CheckpointError
from tf_compat_lossscale.checkpoint.report import Report
from tf_compat_lossscale.checkpoint.report import shorten
from tf_compat_lossscale.keras import optimizer_states

_SAME = "what TensorFlow 1 has for the same"
_HYPER = "a hyperparameter is the program's"
_PRODUCT = "computed from the steps: Keras's Nadam has a schedule of momentums"
_FACTOR = "multiplied by {:g}, the negative learning rate"
_UNFIT = "it does not fit, and nothing was restored"


def restore_by_name(
  checkpoint: Checkpoint,
  objects: Any,
  wishes: Wishes,
  learning_rate: float | None = None,
) -> Report:
  """Restores a checkpoint by name into objects with optimizers, eagerly.

  The mapping of the wishes may have paths of variables, too. If variables may
  be missing, they keep their values unless their initial values are known.
  """
  if wishes.same_order:
    raise ValueError(
      "same_order is for a session or for variables: objects do not show the "
      "order in which their optimizers were created. Leave it out; if names "
      "leave a choice, the error shows the mapping to give."
    )
  return _EagerRestore(checkpoint, objects, wishes, learning_rate).run()


class _Member(NamedTuple):
  """A variable of an optimizer.

  Attributes:
    place: The variable's place.
    name: The role of a slot; the attribute of another variable of Keras.
    weight: The place of the weight, if the variable is a slot.
  """

  place: Place
  name: str
  weight: Place | None = None


class _EagerRestore:
  def __init__(
    self,
    checkpoint: Checkpoint,
    objects: Any,
    wishes: Wishes,
    learning_rate: float | None,
  ) -> None:
    self._checkpoint, self._wishes = checkpoint, wishes
    self._rate = learning_rate
    self._sources = places.list_sources(checkpoint)
    self._named = slots.NamedSlots(self._sources)
    items = _objects.walk(objects)
    self._initial = _objects.find_initial_values(items)
    self._paths = {id(item): path for path, item in items}
    keras = [each for each in items if _objects.is_keras_optimizer(each[1])]
    wrapped = {id(getattr(item, "inner_optimizer", None)) for _, item in keras}
    # Path -> optimizer: of Keras with a wrapper, of TensorFlow 1 without.
    self._keras = {p: item for p, item in keras if id(item) not in wrapped}
    self._v1: dict[str, Any] = {}
    for path, item in items:
      if isinstance(item, tf.compat.v1.train.Optimizer):
        *_, inner = optimizer_kinds.walk(item)
        self._v1[self._paths.get(id(inner), path)] = inner
    optimizers = self._keras | self._v1
    variables = {p: _list_variables(each) for p, each in optimizers.items()}
    known = {id(each) for listed in variables.values() for _, each in listed}
    self._places: list[Place] = []
    for path, item in items:
      if _objects.is_variable(item) and id(item) not in known:
        self._add(item, path)
    self._weights = list(self._places)
    self._members = {
      path: self._add_members(path, optimizer, variables[path])
      for path, optimizer in optimizers.items()
    }
    self._mapped, self._unknown = self._find_mapped(wishes.mapping)

  def run(self) -> Report:
    undecided = list(self._name_v1_slots())
    if undecided:
      raise places.make_error(self._checkpoint.prefix, _UNFIT, [], undecided)
    for path, optimizer in self._v1.items():
      betas = tf_optimizers.find_betas(optimizer)
      for place, _, weight in self._members[path]:
        if weight is None and names.is_power(place.name, place.spec):
          place.beta = betas.get(names.get_base(place.name), 0.0)
    scales: list[Place] = []
    for path, optimizer in self._keras.items():
      scales += self._name_scale(path, self._members[path])
      self._fill_keras(path, optimizer, self._members[path])
    for alike in names.group(self._places, lambda each: each.name).values():
      for place in alike if alike[1:] else []:
        place.name, place.has_scope = place.path, False
    self._check_names()
    mapping = {place.name: key for place, key in self._mapped.items()}
    wishes = dataclasses.replace(self._wishes, mapping=mapping | self._unknown)
    matching.match(self._checkpoint, self._places, self._sources, wishes)
    for place in scales:  # They have the dtypes of compat.v1 so far.
      own = places.make_place("", place.variables[0]).spec
      if place.source is not None:
        place.source = dataclasses.replace(place.source, spec=own)
    notes = self._check_lost()
    report = places.fill(
      None,
      self._checkpoint,
      self._places,
      keys=self._checkpoint.specs,
      notes=notes,
    )
    for optimizer in self._keras.values():
      optimizer_states.count_products(optimizer)
    return report

  def _add(self, variable: Any, path: str) -> Place:
    """Adds a variable, with its path if the objects do not have it."""
    path = self._paths.get(id(variable)) or path
    place = places.make_place(
      places.get_name(variable),
      variable,
      label=path if self._keras else "",
      path=path,
      initial=self._initial.get(id(variable)),
    )
    self._places.append(place)
    return place

  def _add_members(
    self, path: str, optimizer: Any, listed: list[tuple[str, Any]]
  ) -> list[_Member]:
    """Adds the variables of an optimizer, the slots first."""
    weights = {id(each.variables[0]): each for each in self._weights}
    left = {id(variable): (name, variable) for name, variable in listed}
    members: list[_Member] = []
    variables = [each.variables[0] for each in self._weights]
    for variable, role, slot in _list_slots(optimizer, variables):
      weight = weights.get(id(variable))
      if weight is not None and left.pop(id(slot), None) is not None:
        there = f"{weight.path}/.OPTIMIZER_SLOT/{path}/{role}"
        members.append(_Member(self._add(slot, there), role, weight))
    for name, variable in left.values():
      there = f"{path}/{places.get_name(variable)}"
      members.append(_Member(self._add(variable, there), name))
    if path in self._keras:
      for place, *_ in members:
        place.name = place.path
    return members

  def _find_mapped(
    self, mapping: Mapping[str, str | None]
  ) -> tuple[dict[Place, str | None], dict[str, str | None]]:
    """Returns the caller's mapping by place, and what is for no place."""
    known: dict[str, list[Place]] = {}
    for place in self._places:
      for name in {place.path, place.own_name}:
        known.setdefault(name, []).append(place)
    for here in mapping:
      if len(known.get(here, ())) > 1:
        raise ValueError(
          f"mapping names {here!r}, the name of several variables: give the "
          f"path of one, {', '.join(each.path for each in known[here])}."
        )
    return (
      {known[here][0]: key for here, key in mapping.items() if here in known},
      {here: key for here, key in mapping.items() if here not in known},
    )

  def _get_key(self, weight: Place) -> str:
    """Returns the name that a weight has in the checkpoint."""
    return self._mapped.get(weight) or weight.own_name

  def _name_v1_slots(self) -> Iterator[Undecided]:
    """Names the slots of TensorFlow 1's optimizers as in the checkpoint.

    TensorFlow numbers slots of one name by the order in which the process made
    them, also slots of optimizers that are gone: `w/Adam_2` and `w/Adam_3`. A
    checkpoint of a process with one Adam has `w/Adam` and `w/Adam_1`. So slots
    of a weight are paired in the order of their numbers, if there are as many.
    If the old program applied gradients in a scope, all are `scope/w/Adam`.

    Yields:
      The slots that cannot be paired, if the mapping does not have them.
    """
    made = [
      (weight, names.get_base(place.name), place)
      for path in self._v1
      for place, _, weight in self._members[path]
      if weight is not None
    ]
    for (weight, base), each in names.group(made, lambda m: m[:2]).items():
      ours = sorted(
        (place for *_, place in each), key=lambda p: names.get_number(p.name)
      )
      key = self._get_key(weight)
      theirs = self._named.list_slots(key, base) or [
        f"{key}/{names.add_number(base, i)}" for i in range(len(ours))
      ]
      scopes = {names.split_scope(name)[0] for name in theirs}
      if len(ours) == len(theirs) and len(scopes) == 1:
        for place, name in zip(ours, theirs):
          place.name = name
        continue
      for place in ours:
        place.name, place.has_scope = place.path, False
      left = [place.name for place in ours if place not in self._mapped]
      if left:
        yield Undecided(left, theirs)

  def _name_scale(self, path: str, members: list[_Member]) -> list[Place]:
    """Gives Keras 3's loss scale the names of compat.v1, by which it is found.

    Returns:
      The places of the loss scale, if the optimizer has one.
    """
    by_name = {name: place for place, name, _ in members}
    if names.KERAS_3_SCALE not in by_name:
      return []
    count = sum(hasattr(o, names.KERAS_3_SCALE) for o in self._keras.values())
    scope = slots.find_scope(self._checkpoint.specs, count, path)
    found = [by_name[name] for name in names.KERAS_3]
    tensors = names.SCALE_TENSORS[names.COMPAT].items()
    for place, (name, spec) in zip(found, tensors):
      place.name, place.spec = scope + name, spec
    return found

  def _fill_keras(
    self, path: str, optimizer: Any, members: list[_Member]
  ) -> None:
    """Decides on the variables of one of Keras's optimizers, but its scale."""
    inner = _get_inner(optimizer)
    if (vars(inner).get("gradient_accumulation_steps") or 1) > 1:
      raise CheckpointError(
        f"{self._checkpoint.prefix}: {path} accumulates gradients, so it does "
        "not count steps as the program that saved the checkpoint: restore "
        "into an optimizer without gradient_accumulation_steps"
      )
    counters = [place for place, name, _ in members if name in slots.COUNTERS]
    steps = self._give_steps(counters)
    for place, name, weight in members:
      if place.is_decided or name in names.KERAS_3:
        continue
      if weight is not None:
        self._fill_slot(place, weight, inner, name)
      elif place in self._mapped:
        self._give(place)
      elif name in slots.HYPERPARAMETERS:
        place.why = _HYPER
      elif name in slots.PRODUCTS and steps is not None:
        product = slots.compute_nadam_product(inner, steps)
        place.take(Source("", place.spec, product), _PRODUCT)
      else:
        self._give(place, place.own_name)

  def _fill_slot(
    self, place: Place, weight: Place, inner: Any, role: str
  ) -> None:
    """Decides on a slot of one of Keras's optimizers."""
    kind = slots.find_kind_of_optimizer(inner) or ""
    found = self._named.find(self._get_key(weight), kind).get(role)
    if place.own_name in self._sources:  # It is of Keras, too.
      self._give(place, place.own_name)
    elif kind != "Momentum":
      self._give(place, found, _SAME)
    elif found is not None or place in self._mapped:
      self._give(place, found, _SAME, -self._find_rate(inner, place))
    elif vars(inner).get("momentum") == 0:
      place.take(Source("", place.spec, 0), "the momentum is 0")

  def _give(
    self, place: Place, key: str | None = None, why: str = "", factor: float = 1
  ) -> None:
    """Gives a place a tensor, unless the caller's mapping gives another."""
    if place in self._mapped:
      key, why = self._mapped[place], matching.MAPPED
    source = self._sources.get(key or "")
    if source is None:
      return  # It is missing, or the mapping is wrong.
    # Keras's own `momentum` is multiplied by the rate already.
    if factor != 1 and names.get_base(source.key) != "momentum":
      source = dataclasses.replace(
        source, factor=factor, why=_FACTOR.format(factor)
      )
    misfit = place.take(source, why, self._wishes.cast)
    if misfit:
      raise places.make_error(self._checkpoint.prefix, _UNFIT, [misfit])

  def _give_steps(self, counters: list[Place]) -> int | None:
    """Gives an optimizer's counters their number of steps; returns that."""
    steps = [
      n for n in self._sources if names.split_scope(n)[1] == "global_step"
    ]
    likely = [
      name
      for each in counters
      for name in (self._mapped.get(each), each.own_name)
    ]
    likely += steps if len(steps) == 1 else []
    key = next((name for name in likely if name in self._sources), None)
    if key is None:
      return None
    for each in counters:
      self._give(each, key, "" if key == each.own_name else _SAME)
    return int(self._sources[key].read(self._checkpoint).item())

  def _find_rate(self, inner: Any, place: Place) -> float:
    """Returns the learning rate with which training goes on."""
    config = inner.get_config()
    # A schedule or a decay changes the rate with the steps.
    rate = None if config.get("decay") else config.get("learning_rate")
    rate = self._rate or rate
    if isinstance(rate, numbers.Real) and float(rate) > 0:
      return float(rate)
    raise CheckpointError(
      f"{self._checkpoint.prefix}: nothing tells the learning rate, by which "
      f"{place.name} must be multiplied: give learning_rate"
    )

  def _check_names(self) -> None:
    """Checks that the checkpoint has the names of the weights."""
    lost = [
      weight
      for weight in self._weights
      if weight.name not in self._sources
      and weight not in self._mapped
      and not names.is_named_like_scale(weight.name, weight.spec)
    ]
    if not lost or self._wishes.missing != "error":
      return
    known = {place.name for place in self._places}
    known |= {slot for slot, _ in names.find_slots(self._sources)}
    free = [name for name in self._sources if name not in known]
    lines = []
    for weight in lost:
      alike = [n for n in free if self._sources[n].spec == weight.spec]
      near = difflib.get_close_matches(weight.name, alike, 1, 0.0)
      free = [name for name in free if name not in near]
      lines.append(f"  {weight.name!r}: {near[0] if near else None!r},")
    raise CheckpointError(
      f"{self._checkpoint.prefix}: it has other names for "
      f"{len(lost)} of the variables. Give each the name that it has there, or "
      "None for its initial value. These are the nearest names of the same "
      "shape: check them",
      ["mapping={", *lines, "}"],
    )

  def _check_lost(self) -> list[str]:
    """Checks that slots of weights go to optimizers; returns notes."""
    lost = slots.find_lost(
      self._checkpoint.specs,
      {each.source.key for each in self._places if each.source is not None},
    )
    if not lost or not (self._keras or self._v1):
      return []
    message = (
      f"slots {', '.join(shorten(lost))} went to no optimizer, so training "
      "would go on otherwise than it did"
    )
    if self._wishes.missing == "error":
      raise CheckpointError(
        f"{self._checkpoint.prefix}: {message}: give their optimizer; if it "
        f"has no slots before its first step, call {_objects.BUILD} first; "
        "missing='initialize' restores without slots"
      )
    logging.warning("%s: %s", self._checkpoint.prefix, message)
    return [message]


def _get_inner(optimizer: Any) -> Any:
  """Returns one of Keras's optimizers without the wrapper."""
  return getattr(optimizer, "inner_optimizer", optimizer)


def _list_variables(optimizer: Any) -> list[tuple[str, Any]]:
  """Returns an optimizer's variables, of Keras with their attributes."""
  if isinstance(optimizer, tf.compat.v1.train.Optimizer):
    return [("", each) for each in tf_optimizers.list_variables(optimizer)]
  return optimizer_states.list_variables(optimizer)


def _list_slots(
  optimizer: Any, weights: list[Any]
) -> Iterator[tuple[Any, str, Any]]:
  """Yields (weight, role, slot) of an optimizer."""
  if isinstance(optimizer, tf.compat.v1.train.Optimizer):
    for weight in weights:
      for role in optimizer.get_slot_names():
        slot = optimizer.get_slot(weight, role)
        if slot is not None:
          yield weight, role, slot
    return
  inner = _get_inner(optimizer)
  lists = slots.LISTS.get(slots.find_kind_of_optimizer(inner) or "", {})
  yield from optimizer_states.list_slots(inner, weights, lists)
