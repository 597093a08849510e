# SPDX-License-Identifier: Apache-2.0
"""Restores checkpoints by name into objects with optimizers, eagerly.

The optimizers may be TensorFlow 1's or Keras's; `slots` has the table.
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
import difflib
import numbers
from typing import Any

from absl import logging
import numpy as np
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
_NOT_CORRECTED = (
  "BERT's optimizers do not correct their slots for the first steps, as "
  "Keras's do: the first steps differ unless iterations is large"
)
_HYPER = "a hyperparameter is the program's"
_PRODUCT = "computed from the steps: Keras's Nadam has a schedule of momentums"
_LEGACY_PRODUCT = slots.PRODUCTS[0]  # Of the Nadam with `schedule_decay`.
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
  _objects.list_variables(objects)  # Or an error says that there are none.
  return _EagerRestore(checkpoint, objects, wishes, learning_rate).run()


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
    self._initial = _objects.find_initial_values(objects)
    self._notes: list[str] = []
    items = list(_objects.walk(objects))
    self._paths = {id(item): path for path, item in items}
    keras = [each for each in items if _objects.is_keras_optimizer(each[1])]
    wrapped = {id(getattr(item, "inner_optimizer", None)) for _, item in keras}
    # Path -> optimizer of Keras, without those in wrappers.
    self._keras = {
      path: item for path, item in keras if id(item) not in wrapped
    }
    # Path -> optimizer of TensorFlow 1, without wrappers.
    self._v1: dict[str, Any] = {}
    for path, item in items:
      if isinstance(item, tf.compat.v1.train.Optimizer):
        inner = list(optimizer_kinds.walk(item))[-1]
        self._v1[self._paths.get(id(inner), path)] = inner
    known: set[int] = set()
    for _, optimizer in keras:
      listed = optimizer_states.list_variables(optimizer)
      known |= {id(variable) for _, variable in listed}
    for optimizer in self._v1.values():
      known |= set(map(id, tf_optimizers.list_variables(optimizer)))
    self._weights = [
      self._make_place(item, path)
      for path, item in items
      if _objects.is_variable(item) and id(item) not in known
    ]
    self._places = list(self._weights)

  def run(self) -> Report:
    self._add_v1()
    scales: list[Place] = []
    for path, optimizer in self._keras.items():
      scales += self._add_keras(path, optimizer)
    for alike in names.group(self._places, lambda each: each.name).values():
      for place in alike if alike[1:] else []:
        place.name, place.has_scope = place.further[0], False
    mapping = self._translate_mapping()
    self._check_names(mapping)
    wishes = dataclasses.replace(self._wishes, mapping=mapping)
    matching.match(self._checkpoint, self._places, self._sources, wishes)
    for place in scales:  # They have the dtypes of compat.v1 so far.
      own = places.make_place("", place.variables[0]).spec
      if place.source is not None:
        place.source = dataclasses.replace(place.source, spec=own)
    self._check_lost()
    report = places.fill(
      None,
      self._checkpoint,
      self._places,
      keys=self._checkpoint.specs,
      notes=self._notes,
    )
    for optimizer in self._keras.values():
      optimizer_states.count_products(optimizer)
    return report

  def _make_place(self, variable: Any, path: str, name: str = "") -> Place:
    """Returns the place of a variable.

    Args:
      variable: The variable.
      path: Its path in the objects, if these do not have it.
      name: Its likely name in the checkpoint; by default its own.
    """
    path = self._paths.get(id(variable)) or path
    own = places.get_name(variable)
    return places.make_place(
      name or own,
      variable,
      label=path if self._keras else "",
      further=(path, own),
      initial=self._initial.get(id(variable)),
    )

  def _get_mapped(self, place: Place) -> str | None:
    found = (self._wishes.mapping.get(n) for n in (place.name, *place.further))
    return next(filter(None, found), None)

  def _get_key(self, weight: Place) -> str:
    """Returns the name that a weight has in the checkpoint."""
    return self._get_mapped(weight) or weight.further[1]

  def _is_mapped(self, place: Place) -> bool:
    return any(n in self._wishes.mapping for n in (place.name, *place.further))

  def _add_v1(self) -> None:
    """Adds the variables of TensorFlow 1's optimizers.

    TensorFlow numbers slots of one name by the order in which the process made
    them, also slots of optimizers that are gone: `w/Adam_2` and `w/Adam_3`. A
    checkpoint of a process with one Adam has `w/Adam` and `w/Adam_1`. So slots
    of a weight are paired in the order of their numbers, if there are as many.
    """
    done: set[int] = set()
    undecided: list[Undecided] = []
    for weight in self._weights:
      made: list[Place] = []
      for path, optimizer in self._v1.items():
        for role in optimizer.get_slot_names():
          slot = optimizer.get_slot(weight.variables[0], role)
          if slot is not None and id(slot) not in done:
            done.add(id(slot))
            there = f"{weight.further[0]}/.OPTIMIZER_SLOT/{path}/{role}"
            made.append(self._make_place(slot, there))
      self._places += made
      made.sort(key=lambda place: names.get_number(place.name))
      by_base = names.group(made, lambda place: names.get_base(place.name))
      for base, members in by_base.items():
        undecided += self._name_slots(weight, base, members)
    if undecided:
      raise places.make_error(self._checkpoint.prefix, _UNFIT, [], undecided)
    for path, optimizer in self._v1.items():
      betas = tf_optimizers.find_betas(optimizer)
      for variable in tf_optimizers.list_variables(optimizer):
        if id(variable) not in done:
          done.add(id(variable))
          own = places.get_name(variable)
          place = self._make_place(variable, f"{path}/{own}")
          if names.is_power(own, place.spec):
            place.beta = betas.get(names.get_base(own), 0.0)
          self._places.append(place)

  def _name_slots(
    self, weight: Place, base: str, members: list[Place]
  ) -> Iterator[Undecided]:
    """Names a weight's slots of one name as in the checkpoint, if it can.

    If the old program applied gradients in a scope, the slot is
    `scope/w/Momentum` there.
    """
    key = self._get_key(weight)
    there = [
      name for name in self._named.list_all(key) if names.get_base(name) == base
    ]
    if {place.name for place in members} == set(there):
      return
    scopes = {names.split_scope(name)[0] for name in there}
    if there and (len(there) != len(members) or len(scopes) > 1):
      for place in members:
        place.name, place.has_scope = place.further[0], False
      left = [p.name for p in members if not self._is_mapped(p)]
      if left:
        yield Undecided(left, there)
      return
    there.sort(key=names.get_number)
    numbers = range(len(members))
    there = there or [f"{key}/{names.add_number(base, i)}" for i in numbers]
    for place, name in zip(members, there):
      place.name = name

  def _add_keras(self, path: str, optimizer: Any) -> list[Place]:
    """Adds one of Keras's optimizers; returns the places of its loss scale."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if (vars(inner).get("gradient_accumulation_steps") or 1) > 1:
      raise CheckpointError(
        f"{self._checkpoint.prefix}: {path} accumulates gradients, so it does "
        "not count steps as the program that saved the checkpoint: restore "
        "into an optimizer without gradient_accumulation_steps"
      )
    kind = slots.find_kind_of_optimizer(inner) or ""
    weights = {id(each.variables[0]): each for each in self._weights}
    left = {
      id(variable): (name, variable)
      for name, variable in optimizer_states.list_variables(optimizer)
    }

    def add(variable: Any, there: str = "") -> Place:
      there = there or f"{path}/{places.get_name(variable)}"
      there = self._paths.get(id(variable), there)
      place = self._make_place(variable, there, there)
      self._places.append(place)
      left.pop(id(variable), None)
      return place

    scales = []
    if hasattr(optimizer, names.KERAS_3_SCALE):
      # The names of compat.v1, so that the loss scale is found by its name.
      scope = slots.find_scope(
        self._checkpoint.specs,
        [hasattr(each, names.KERAS_3_SCALE) for each in self._keras.values()],
        path,
      )
      tensors = names.SCALE_TENSORS[names.COMPAT].items()
      for (name, spec), child in zip(tensors, names.KERAS_3):
        place = add(getattr(optimizer, child))
        place.name, place.spec = scope + name, spec
        scales.append(place)
    listed = list(left.values())
    steps = self._add_steps(
      [add(each) for name, each in listed if name in slots.COUNTERS]
    )
    variables = [each.variables[0] for each in self._weights]
    lists = slots.LISTS.get(kind, {})
    for each, role, slot in optimizer_states.list_slots(
      inner, variables, lists
    ):
      if id(each) in weights:
        weight = weights[id(each)]
        there = f"{weight.further[0]}/.OPTIMIZER_SLOT/{path}/{role}"
        self._fill_slot(add(slot, there), weight, inner, kind, role)
    for name, variable in list(left.values()):
      place = add(variable)
      if name in slots.PRODUCTS and steps is not None:
        decay = float(np.asarray(inner.decay)) if name == _LEGACY_PRODUCT else 1
        beta = float(np.asarray(inner.beta_1))
        product = slots.compute_nadam_product(beta, decay, steps)
        self._set(place, product, _PRODUCT)
      elif name in slots.HYPERPARAMETERS:
        place.is_kept, place.why = True, _HYPER
      else:
        self._give(place, place.further[1], "")
    return scales

  def _fill_slot(
    self, place: Place, weight: Place, inner: Any, kind: str, role: str
  ) -> None:
    """Decides on a slot of one of Keras's optimizers."""
    own = place.further[1]
    if own in self._sources:  # It is of Keras, too.
      self._give(place, own, "")
      return
    found = self._named.find(self._get_key(weight), kind).get(role)
    is_sum = kind == "Momentum"
    if is_sum and found is None and vars(inner).get("momentum") == 0:
      self._set(place, 0, "the momentum is 0")
      return
    factor = 1.0
    if is_sum and (found or self._is_mapped(place)):
      factor = -self._find_rate(inner, place)
    self._give(place, found, _SAME, factor)
    is_bert = found is not None and names.get_base(found) in slots.OWN_NAMES
    if is_bert and _NOT_CORRECTED not in self._notes:
      self._notes.append(_NOT_CORRECTED)

  def _give(
    self, place: Place, key: str | None, why: str, factor: float = 1.0
  ) -> None:
    """Gives a place a tensor, unless the caller's mapping gives another."""
    if self._is_mapped(place):
      key, why = self._get_mapped(place), matching.MAPPED
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

  def _set(self, place: Place, value: float, why: str) -> None:
    """Gives a place a value, unless the caller's mapping gives a tensor."""
    if self._is_mapped(place):
      self._give(place, None, "")
    else:
      place.take(Source("", place.spec, value), why)

  def _add_steps(self, counters: list[Place]) -> int | None:
    """Gives an optimizer's counters their number of steps; returns that."""
    named = [
      n for n in self._sources if names.split_scope(n)[1] == "global_step"
    ]
    likely = [
      name
      for each in counters
      for name in (self._get_mapped(each), each.further[1])
    ]
    likely += named if len(named) == 1 else []
    key = next((name for name in likely if name in self._sources), None)
    if key is None:
      return None
    for each in counters:
      self._give(each, key, "" if key == each.further[1] else _SAME)
    return int(self._sources[key].read(self._checkpoint).item())

  def _find_rate(self, inner: Any, place: Place) -> float:
    """Returns the learning rate with which training goes on."""
    config = inner.get_config()
    rate = self._rate or config.get("learning_rate")
    # A schedule or a decay changes the rate with the steps.
    is_fixed = self._rate or not config.get("decay")
    if isinstance(rate, numbers.Real) and is_fixed and float(rate) > 0:
      return float(rate)
    raise CheckpointError(
      f"{self._checkpoint.prefix}: nothing tells the learning rate, by which "
      f"{place.name} must be multiplied: give learning_rate"
    )

  def _translate_mapping(self) -> dict[str, str | None]:
    """Returns the caller's mapping, from the names of places to names."""
    known: dict[str, list[Place]] = {}
    for place in self._places:
      for other in {place.name, *place.further}:
        known.setdefault(other, []).append(place)
    mapping: dict[str, str | None] = {}
    for here, there in self._wishes.mapping.items():
      found = known.get(here, [])
      if len(found) > 1:
        raise ValueError(
          f"mapping names {here!r}, the name of several variables: give the "
          f"path of one, {', '.join(place.further[0] for place in found)}."
        )
      mapping[found[0].name if found else here] = there
    return mapping

  def _check_names(self, mapping: dict[str, str | None]) -> None:
    """Checks that the checkpoint has the names of the weights."""
    lost = [
      weight
      for weight in self._weights
      if weight.name not in self._sources
      and weight.name not in mapping
      and not names.is_named_like_scale(weight.name, weight.spec)
    ]
    if not lost or self._wishes.missing != "error":
      return
    known = {place.name for place in self._places}
    known |= {slot for slot, _ in names.find_slots(self._sources)}
    free = [name for name in self._sources if name not in known]
    lines = ["mapping={"]
    for weight in lost:
      alike = [n for n in free if self._sources[n].spec == weight.spec]
      near = difflib.get_close_matches(weight.name, alike, 1, 0.0)
      for other in near:
        free.remove(other)
      shown = repr(near[0]) if near else "None"
      lines.append(f"  {weight.name!r}: {shown},")
    raise CheckpointError(
      f"{self._checkpoint.prefix}: it has other names for "
      f"{len(lost)} of the variables. Give each the name that it has there, or "
      "None for its initial value. These are the nearest names of the same "
      "shape: check them",
      [*lines, "}"],
    )

  def _check_lost(self) -> None:
    """Checks that the slots of weights in the checkpoint go to optimizers."""
    lost = slots.find_lost(
      self._checkpoint.specs,
      {each.source.key for each in self._places if each.source is not None},
    )
    new = [
      path or type(each).__name__
      for path, each in self._keras.items()
      if not optimizer_states.is_built(each)
    ]
    new += [
      type(each).__name__
      for each in self._v1.values()
      if not each.get_slot_names() and slots.find_kind_of_optimizer(each)
    ]
    if not lost or not (self._keras or self._v1):
      return
    message = f"slots {', '.join(shorten(lost))} went to no optimizer"
    why = "training would go on otherwise than it did"
    if new:
      why = f"{', '.join(new)} has none before its first step"
    if self._wishes.missing == "error":
      advice = f"call {_objects.BUILD}" if new else "give the optimizer of them"
      raise CheckpointError(
        f"{self._checkpoint.prefix}: {message}, and {why}: {advice} first; "
        "missing='initialize' restores without slots"
      )
    self._notes.append(f"{message}, and {why}")
    logging.warning("%s: %s", self._checkpoint.prefix, self._notes[-1])
