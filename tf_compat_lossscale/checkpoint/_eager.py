# SPDX-License-Identifier: Apache-2.0
"""Restores checkpoints by name into objects with optimizers, eagerly.

The optimizers may be TensorFlow 1's or Keras's; `_slots` has the table.
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
import difflib
from typing import Any

from absl import logging
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import object_graph
from tf_compat_lossscale._core import optimizer_kinds
from tf_compat_lossscale._core import slot_names
from tf_compat_lossscale._core.tf import optimizers as tf_optimizers
from tf_compat_lossscale.checkpoint import _matching
from tf_compat_lossscale.checkpoint import _objects
from tf_compat_lossscale.checkpoint import _slots
from tf_compat_lossscale.checkpoint import _targets
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint import pairs
from tf_compat_lossscale.checkpoint._report import Report
from tf_compat_lossscale.checkpoint._targets import Source
from tf_compat_lossscale.checkpoint._targets import Target
from tf_compat_lossscale.checkpoint._targets import Undecided
from tf_compat_lossscale.checkpoint._targets import Wishes
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import CheckpointError
from tf_compat_lossscale.checkpoint.reading import shorten
from tf_compat_lossscale.keras import optimizer_states

_HYPER = "a hyperparameter is the program's"
_PRODUCT = "computed from the steps: Keras's Nadam has a schedule of momentums"
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
      "order in which their optimizers were created. Leave it out."
    )
  return _EagerRestore(checkpoint, objects, wishes, learning_rate).run()


class _EagerRestore:
  """A restore by name: targets of all variables, then their sources."""

  def __init__(
    self,
    checkpoint: Checkpoint,
    objects: Any,
    wishes: Wishes,
    learning_rate: float | None,
  ) -> None:
    self._checkpoint, self._rate = checkpoint, learning_rate
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
    made: list[Any] = []
    for optimizer in self._keras.values():
      made += [v for _, v in optimizer_states.list_variables(optimizer)]
    for optimizer in self._v1.values():
      made += tf_optimizers.list_variables(optimizer)
    known = set(map(id, made))
    program = [*made, *(v for _, v in items if _objects.is_variable(v))]
    own = map(_targets.get_name, program)
    # Scopes are renamed here. Single names, which may be paths, come later.
    mapping = dict(wishes.mapping)
    sources = _targets.list_sources(checkpoint)
    self._sources, anew, self._notes = pairs.rename(
      checkpoint.prefix,
      sources,
      {h: mapping.pop(h) for h in wishes.mapping if pairs.is_scope(h)},
      {n: _targets.make_target(n, v).spec for n, v in zip(own, program)},
    )
    news = {source.key: new for new, source in self._sources.items()}
    for here, there in mapping.items():
      if there in sources:
        mapping[here] = news.get(sources[there].key, there)
    self._wishes = dataclasses.replace(wishes, mapping=anew | mapping)
    self._named = _slots.NamedSlots(self._sources)
    self._targets: list[Target] = []
    self._weights = {
      id(item): self._add(item, path)
      for path, item in items
      if _objects.is_variable(item) and id(item) not in known
    }

  def run(self) -> Report:
    undecided = list(self._add_v1())
    for path, optimizer in self._keras.items():
      undecided += self._add_keras(path, optimizer)
    if undecided:
      raise _targets.make_error(self._checkpoint.prefix, _UNFIT, [], undecided)
    for alike in names.group(self._targets, lambda each: each.name).values():
      for target in alike if alike[1:] else []:
        target.name, target.has_scope = target.path, False
    wishes = dataclasses.replace(
      self._wishes, mapping=self._translate_mapping()
    )
    self._check_names()
    notes = _matching.Matching(
      self._checkpoint, self._targets, self._sources, wishes
    ).run()
    notes += self._check_lost()
    report = _targets.fill(
      None,
      self._checkpoint,
      self._targets,
      keys=self._checkpoint.specs,
      notes=[*self._notes, *notes],
    )
    for optimizer in self._keras.values():
      optimizer_states.count_products(optimizer)
    return report

  def _add(self, variable: Any, path: str) -> Target:
    """Adds a variable, with its path if the objects do not have it."""
    path = self._paths.get(id(variable)) or path
    target = _targets.make_target(
      _targets.get_name(variable),
      variable,
      label=path if self._keras else "",
      path=path,
      initial=self._initial.get(id(variable)),
    )
    self._targets.append(target)
    return target

  def _get_mapped(self, target: Target) -> str | None:
    """Returns what the mapping gives a target; "" if the mapping lacks it."""
    mapping = self._wishes.mapping
    return mapping.get(target.path, mapping.get(target.own_name, ""))

  def _get_key(self, weight: Target) -> str:
    """Returns the name that a weight has in the checkpoint."""
    return self._get_mapped(weight) or weight.own_name

  def _add_v1(self) -> Iterator[Undecided]:
    """Adds the variables of TensorFlow 1's optimizers.

    TensorFlow numbers slots of one name by the order in which the process made
    them, also slots of optimizers that are gone: `w/Adam_2` and `w/Adam_3`. A
    checkpoint of a process with one Adam has `w/Adam` and `w/Adam_1`. So slots
    of a weight are paired in the order of their numbers, if there are as many.
    If the old program applied gradients in a scope, all are `scope/w/Adam`.
    Slots that neither this nor the mapping pairs are yielded.
    """
    # Weight and name of the slots -> the slots of all optimizers.
    made: dict[tuple[Target, str], list[Target]] = {}
    for path, optimizer in self._v1.items():
      left = {id(v): v for v in tf_optimizers.list_variables(optimizer)}
      for weight in self._weights.values():
        for role in optimizer.get_slot_names():
          slot = optimizer.get_slot(weight.variables[0], role)
          if left.pop(id(slot), None) is not None:
            there = f"{weight.path}{_objects.SLOT}{path}/{role}"
            target = self._add(slot, there)
            base = names.get_base(target.name)
            made.setdefault((weight, base), []).append(target)
      betas = tf_optimizers.find_betas(optimizer)
      for variable in left.values():
        target = self._add(variable, f"{path}/{_targets.get_name(variable)}")
        if names.is_power(target.name, target.spec):
          target.beta = betas.get(names.get_base(target.name), 0.0)
    for (weight, base), ours in made.items():
      theirs = self._named.list_slots(self._get_key(weight), base)
      scopes = {names.split_scope(name)[0] for name in theirs}
      if len(ours) == len(theirs) and len(scopes) == 1:
        ours.sort(key=lambda target: names.get_number(target.name))
        for target, name in zip(ours, theirs):
          target.name = name
        continue
      for target in ours:
        target.name, target.has_scope = target.path, False
      left_out = [p.name for p in ours if self._get_mapped(p) == ""]
      if left_out and theirs:
        yield Undecided(left_out, theirs)

  def _add_keras(self, path: str, optimizer: Any) -> list[Undecided]:
    """Adds the variables of one of Keras's optimizers, and decides on them."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if (vars(inner).get("gradient_accumulation_steps") or 1) > 1:
      raise CheckpointError(
        f"{self._checkpoint.prefix}: {path} accumulates gradients, so it does "
        "not count steps as the program that saved the checkpoint: restore "
        "into an optimizer without gradient_accumulation_steps"
      )
    left = {
      id(v): (n, v) for n, v in optimizer_states.list_variables(optimizer)
    }

    def add(variable: Any, there: str) -> Target:
      del left[id(variable)]
      target = self._add(variable, there)
      target.name = target.path
      return target

    kind = slot_names.find_kind_of_optimizer(inner) or ""
    for variable, role, slot in optimizer_states.list_slots(
      inner,
      [each.variables[0] for each in self._weights.values()],
      slot_names.LISTS.get(kind, {}),
    ):
      weight = self._weights.get(id(variable))
      if weight is not None:
        there = f"{weight.path}{_objects.SLOT}{path}/{role}"
        self._fill_slot(add(slot, there), weight, inner, kind, role)
    others = [
      (name, add(variable, f"{path}/{_targets.get_name(variable)}"))
      for name, variable in list(left.values())
    ]
    steps = self._give_steps(
      [p for n, p in others if n in object_graph.COUNTERS]
    )
    for name, target in others:
      if self._get_mapped(target) != "":
        self._give(target)
      elif name in object_graph.HYPERPARAMETERS:
        target.why = _HYPER
      elif name in slot_names.PRODUCTS and steps is not None:
        product = _slots.compute_nadam_product(inner, steps)
        target.take(Source("", target.spec, product), _PRODUCT)
      elif name not in (*object_graph.COUNTERS, *object_graph.KERAS_3_MEMBERS):
        self._give(target, target.own_name)
    scale = [
      p for key in object_graph.KERAS_3_MEMBERS for n, p in others if n == key
    ]
    return self._fill_scale(scale)

  def _fill_scale(self, ours: list[Target]) -> list[Undecided]:
    """Gives Keras 3's loss scale the values of the only one there."""
    found = names.find_scales(self._checkpoint.specs)
    theirs = [scale.names for scale in found.known]
    left = [target for target in ours if self._get_mapped(target) == ""]
    if not theirs and not found.unclear:
      for target in left:
        target.why = _targets.NO_SCALE
      return []
    here = [
      hasattr(each, object_graph.KERAS_3_SCALE) for each in self._keras.values()
    ]
    if sum(here) == len(theirs) == 1:
      for target, key in zip(ours, theirs[0]):
        self._give(target, key, _targets.OTHER_API)
      return []
    there = [*found.unclear, *(name for each in theirs for name in each)]
    return [Undecided([p.name for p in left], sorted(there))] if left else []

  def _fill_slot(
    self, target: Target, weight: Target, inner: Any, kind: str, role: str
  ) -> None:
    """Decides on a slot of one of Keras's optimizers."""
    found = self._named.find(self._get_key(weight), kind).get(role)
    mapped = self._get_mapped(target)
    if not mapped and target.own_name in self._sources:  # It is of Keras, too.
      self._give(target, target.own_name)
    elif kind != "Momentum":
      self._give(target, found, _slots.SAME)
    elif found or mapped:
      config = inner.get_config()
      # A decay changes the rate with the steps, and a schedule is no number.
      rate = None if config.get("decay") else config.get("learning_rate")
      factor = -_slots.check_rate(
        self._rate or rate, self._checkpoint, target.name
      )
      self._give(target, found, _slots.SAME, factor)
    elif vars(inner).get("momentum") == 0:
      target.take(Source("", target.spec, 0), "the momentum is 0")

  def _give(
    self,
    target: Target,
    key: str | None = None,
    why: str = "",
    factor: float = 1,
  ) -> None:
    """Gives a target a tensor, unless the caller's mapping gives another."""
    mapped = self._get_mapped(target)
    if mapped != "":
      key, why = mapped, _targets.MAPPED
    source = self._sources.get(key or "")
    if source is None:
      return  # It is missing, or the mapping is wrong.
    # Keras's own `momentum` is multiplied by the rate already.
    if factor != 1 and names.get_base(source.key) != "momentum":
      source = dataclasses.replace(
        source, factor=factor, why=_slots.FACTOR.format(factor)
      )
    misfit = target.take(source, why, self._wishes.cast)
    if misfit:
      raise _targets.make_error(self._checkpoint.prefix, _UNFIT, [misfit])

  def _give_steps(self, counters: list[Target]) -> int | None:
    """Gives an optimizer's counters their number of steps; returns that."""
    steps = list(filter(names.is_global_step, self._sources))
    likely = [
      name
      for each in counters
      for name in (self._get_mapped(each), each.own_name)
    ]
    likely += steps if len(steps) == 1 else []
    key = next((name for name in likely if name in self._sources), None)
    for each in counters if key else ():  # Keras 3's wrapper has its own.
      is_own = each.own_name in self._sources
      self._give(each, *((each.own_name,) if is_own else (key, _slots.SAME)))
    found = [target.source for target in counters if target.source is not None]
    counts = [int(source.read(self._checkpoint).item()) for source in found]
    return max(counts, default=None)

  def _translate_mapping(self) -> dict[str, str | None]:
    """Returns the caller's mapping, from the names of targets to names."""
    known: dict[str, list[Target]] = {}
    for target in self._targets:
      for other in {target.name, target.path, target.own_name}:
        known.setdefault(other, []).append(target)
    mapping: dict[str, str | None] = {}
    for here, there in self._wishes.mapping.items():
      found = known.get(here, [])
      if len(found) > 1:
        raise ValueError(
          f"mapping names {here!r}, the name of several variables: give the "
          f"path of one, {', '.join(target.path for target in found)}."
        )
      mapping[found[0].name if found else here] = there
    return mapping

  def _check_names(self) -> None:
    """Checks that the checkpoint has the names of the weights."""
    lost = [
      weight
      for weight in self._weights.values()
      if weight.name not in self._sources
      and self._get_mapped(weight) == ""
      and not names.is_named_like_scale(weight.name, weight.spec)
    ]
    if not lost or self._wishes.missing != "error":
      return
    known = {target.name for target in self._targets}
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
    used = {
      each.source.key for each in self._targets if each.source is not None
    }
    specs = self._checkpoint.specs
    found = [
      (slot, weight)
      for slot, weight in names.find_slots(specs)
      if weight in used
      and (
        specs[slot] == specs[weight]
        or names.get_base(slot).lower() in slot_names.SLOTS
      )
    ]
    # RMSprop without momentum, for instance, needs one slot of two.
    served = {weight for slot, weight in found if slot in used}
    lost = sorted(slot for slot, weight in found if weight not in served)
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
