# SPDX-License-Identifier: Apache-2.0
"""Restores checkpoints by name into objects with optimizers, eagerly.

The optimizers may be TensorFlow 1's or Keras's; `_slots` has the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
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
  items = _objects.walk(objects)
  keras, v1 = _find_optimizers(items)
  made: list[Any] = []
  for optimizer in keras.values():
    made += [v for _, v in optimizer_states.list_variables(optimizer)]
  for optimizer in v1.values():
    made += tf_optimizers.list_variables(optimizer)
  weights = {id(v): (p, v) for p, v in items if _objects.is_variable(v)}
  for variable in made:
    weights.pop(id(variable), None)
  program = [*made, *(variable for _, variable in weights.values())]
  renamed = _rename_scopes(checkpoint, wishes.mapping, program)
  restore = _EagerRestore(
    checkpoint,
    dataclasses.replace(wishes, mapping=renamed.mapping),
    learning_rate,
    renamed.sources,
    names.group_slots(renamed.sources),
    keras,
    v1,
    {id(item): path for path, item in items},
    _objects.find_initial_values(items),
    renamed.notes,
  )
  for number, (path, variable) in weights.items():
    restore.weights[number] = restore.add(variable, path)
  return restore.run()


def _find_optimizers(
  items: list[tuple[str, Any]],
) -> tuple[dict[str, Any], dict[str, Any]]:
  """Returns path -> optimizer: Keras's with wrapper, and TensorFlow 1's."""
  keras = [each for each in items if _objects.is_keras_optimizer(each[1])]
  wrapped = {id(getattr(item, "inner_optimizer", None)) for _, item in keras}
  paths = {id(item): path for path, item in items}
  v1: dict[str, Any] = {}
  for path, item in items:
    if isinstance(item, tf.compat.v1.train.Optimizer):
      *_, inner = optimizer_kinds.walk(item)
      v1[paths.get(id(inner), path)] = inner
  return {p: item for p, item in keras if id(item) not in wrapped}, v1


def _rename_scopes(
  checkpoint: Checkpoint,
  mapping: Mapping[str, str | None],
  program: list[Any],
) -> pairs.Renamed:
  """Renames scopes; keeps single names, which may be paths of objects."""
  sources = _targets.list_sources(checkpoint)
  renamed = pairs.rename(
    checkpoint.prefix,
    sources,
    {here: mapping[here] for here in filter(pairs.is_scope, mapping)},
    {
      name: _targets.make_target(name, v).spec
      for name, v in zip(map(_targets.get_name, program), program)
    },
  )
  news = {source.key: new for new, source in renamed.sources.items()}
  for here, there in mapping.items():
    if pairs.is_scope(here):
      continue
    if there in sources:
      there = news.get(sources[there].key, there)
    renamed.mapping[here] = there
  return renamed


@dataclasses.dataclass
class _EagerRestore:
  """A restore by name: targets of all variables, then their sources.

  Attributes:
    wishes: Their mapping has single names and paths alone.
    named: The slots there, as `names.group_slots` has them.
    keras: Path -> optimizer of Keras, with its wrapper.
    v1: Path -> optimizer of TensorFlow 1, without its wrappers.
    paths: `id` of an object -> its path.
    initial: `id` of a variable -> its initial value, if that is known.
    weights: `id` of a variable that is no optimizer's -> its target.
  """

  checkpoint: Checkpoint
  wishes: Wishes
  rate: float | None
  sources: dict[str, Source]
  named: dict[str, dict[str, list[str]]]
  keras: dict[str, Any]
  v1: dict[str, Any]
  paths: dict[int, str]
  initial: dict[int, Any]
  notes: list[str]
  targets: list[Target] = dataclasses.field(default_factory=list)
  weights: dict[int, Target] = dataclasses.field(default_factory=dict)

  def run(self) -> Report:
    undecided = list(self._add_v1())
    for path, optimizer in self.keras.items():
      undecided += self._add_keras(path, optimizer)
    if undecided:
      raise _targets.make_error(self.checkpoint.prefix, _UNFIT, [], undecided)
    for alike in names.group(self.targets, lambda each: each.name).values():
      for target in alike if alike[1:] else []:
        target.name, target.has_scope = target.path, False
    wishes = dataclasses.replace(self.wishes, mapping=self._translate_mapping())
    self._check_names()
    notes = _matching.Matching(
      self.checkpoint, self.targets, self.sources, wishes
    ).run()
    notes += self._check_lost()
    report = _targets.fill(
      None,
      self.checkpoint,
      self.targets,
      keys=self.checkpoint.specs,
      notes=[*self.notes, *notes],
    )
    for optimizer in self.keras.values():
      optimizer_states.count_products(optimizer)
    return report

  def add(self, variable: Any, path: str) -> Target:
    """Adds a variable, with its path if the objects do not have it."""
    path = self.paths.get(id(variable)) or path
    target = _targets.make_target(
      _targets.get_name(variable),
      variable,
      label=path if self.keras else "",
      path=path,
      initial=self.initial.get(id(variable)),
    )
    self.targets.append(target)
    return target

  def _get_mapped(self, target: Target) -> str | None:
    """Returns what the mapping gives a target; "" if the mapping lacks it."""
    mapping = self.wishes.mapping
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
    for path, optimizer in self.v1.items():
      left = {id(v): v for v in tf_optimizers.list_variables(optimizer)}
      for weight in self.weights.values():
        for role in optimizer.get_slot_names():
          slot = optimizer.get_slot(weight.variables[0], role)
          if left.pop(id(slot), None) is not None:
            there = f"{weight.path}{_objects.SLOT}{path}/{role}"
            target = self.add(slot, there)
            base = names.get_base(target.name)
            made.setdefault((weight, base), []).append(target)
      betas = tf_optimizers.find_betas(optimizer)
      for variable in left.values():
        target = self.add(variable, f"{path}/{_targets.get_name(variable)}")
        if names.is_power(target.name, target.spec):
          target.beta = betas.get(names.get_base(target.name), 0.0)
    for (weight, base), ours in made.items():
      theirs = self.named.get(self._get_key(weight), {}).get(base, [])
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
        f"{self.checkpoint.prefix}: {path} accumulates gradients, so it does "
        "not count steps as the program that saved the checkpoint: restore "
        "into an optimizer without gradient_accumulation_steps"
      )
    left = {
      id(v): (n, v) for n, v in optimizer_states.list_variables(optimizer)
    }

    def add(variable: Any, there: str) -> Target:
      del left[id(variable)]
      target = self.add(variable, there)
      target.name = target.path
      return target

    kind = slot_names.find_kind_of_optimizer(inner) or ""
    for variable, role, slot in optimizer_states.list_slots(
      inner,
      [each.variables[0] for each in self.weights.values()],
      slot_names.LISTS.get(kind, {}),
    ):
      weight = self.weights.get(id(variable))
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
    found = names.find_scales(self.checkpoint.specs)
    theirs = [scale.names for scale in found.known]
    left = [target for target in ours if self._get_mapped(target) == ""]
    if not theirs and not found.unclear:
      for target in left:
        target.why = _targets.NO_SCALE
      return []
    here = [
      hasattr(each, object_graph.KERAS_3_SCALE) for each in self.keras.values()
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
    bases = self.named.get(self._get_key(weight), {})
    found = _slots.find_roles(bases, kind).get(role)
    mapped = self._get_mapped(target)
    if not mapped and target.own_name in self.sources:  # It is of Keras, too.
      self._give(target, target.own_name)
    elif kind != "Momentum":
      self._give(target, found, _slots.SAME)
    elif found or mapped:
      config = inner.get_config()
      # A decay changes the rate with the steps, and a schedule is no number.
      rate = None if config.get("decay") else config.get("learning_rate")
      factor = -_slots.check_rate(
        self.rate or rate, self.checkpoint, target.name
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
    source = self.sources.get(key or "")
    if source is None:
      return  # It is missing, or the mapping is wrong.
    # Keras's own `momentum` is multiplied by the rate already.
    if factor != 1 and names.get_base(source.key) != "momentum":
      source = dataclasses.replace(
        source, factor=factor, why=_slots.FACTOR.format(factor)
      )
    misfit = target.take(source, why, self.wishes.cast)
    if misfit:
      raise _targets.make_error(self.checkpoint.prefix, _UNFIT, [misfit])

  def _give_steps(self, counters: list[Target]) -> int | None:
    """Gives an optimizer's counters their number of steps; returns that."""
    steps = list(filter(names.is_global_step, self.sources))
    likely = [
      name
      for each in counters
      for name in (self._get_mapped(each), each.own_name)
    ]
    likely += steps if len(steps) == 1 else []
    key = next((name for name in likely if name in self.sources), None)
    for each in counters if key else ():  # Keras 3's wrapper has its own.
      is_own = each.own_name in self.sources
      self._give(each, *((each.own_name,) if is_own else (key, _slots.SAME)))
    found = [target.source for target in counters if target.source is not None]
    counts = [int(source.read(self.checkpoint).item()) for source in found]
    return max(counts, default=None)

  def _translate_mapping(self) -> dict[str, str | None]:
    """Returns the caller's mapping, from the names of targets to names."""
    known: dict[str, list[Target]] = {}
    for target in self.targets:
      for other in {target.name, target.path, target.own_name}:
        known.setdefault(other, []).append(target)
    mapping: dict[str, str | None] = {}
    for here, there in self.wishes.mapping.items():
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
      for weight in self.weights.values()
      if weight.name not in self.sources
      and self._get_mapped(weight) == ""
      and not names.is_named_like_scale(weight.name, weight.spec)
    ]
    if not lost or self.wishes.missing != "error":
      return
    known = {target.name for target in self.targets}
    known |= {slot for slot, _ in names.find_slots(self.sources)}
    free = [name for name in self.sources if name not in known]
    lines = []
    for weight in lost:
      alike = [n for n in free if self.sources[n].spec == weight.spec]
      near = difflib.get_close_matches(weight.name, alike, 1, 0.0)
      free = [name for name in free if name not in near]
      lines.append(f"  {weight.name!r}: {near[0] if near else None!r},")
    raise CheckpointError(
      f"{self.checkpoint.prefix}: it has other names for "
      f"{len(lost)} of the variables. Give each the name that it has there, or "
      "None for its initial value. These are the nearest names of the same "
      "shape: check them",
      ["mapping={", *lines, "}"],
    )

  def _check_lost(self) -> list[str]:
    """Checks that slots of weights go to optimizers; returns notes."""
    used = {each.source.key for each in self.targets if each.source is not None}
    specs = self.checkpoint.specs
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
    if not lost or not (self.keras or self.v1):
      return []
    message = (
      f"slots {', '.join(shorten(lost))} went to no optimizer, so training "
      "would go on otherwise than it did"
    )
    if self.wishes.missing == "error":
      raise CheckpointError(
        f"{self.checkpoint.prefix}: {message}: give their optimizer; if it "
        f"has no slots before its first step, call {_objects.BUILD} first; "
        "missing='initialize' restores without slots"
      )
    logging.warning("%s: %s", self.checkpoint.prefix, message)
    return [message]
