# SPDX-License-Identifier: Apache-2.0
"""Restores checkpoints by name into objects with optimizers, eagerly.

The optimizers may be TensorFlow 1's or Keras's; `slots` has the table.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator
import dataclasses
import difflib
from typing import Any
from typing import NamedTuple

from absl import logging
import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import optimizer_kinds
from tf_compat_lossscale._core.tf import optimizers as tf_optimizers
from tf_compat_lossscale._core.tf import tracking
from tf_compat_lossscale.checkpoint import matching
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint import objects as walking
from tf_compat_lossscale.checkpoint import slots
from tf_compat_lossscale.checkpoint.matching import Source
from tf_compat_lossscale.checkpoint.matching import Wishes
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import CheckpointError
from tf_compat_lossscale.checkpoint.reading import TensorSpec
from tf_compat_lossscale.checkpoint.report import Report
from tf_compat_lossscale.keras import optimizer_states

_BUILD = "optimizer.apply_gradients([(tf.zeros_like(w), w) for w in variables])"
_SAME = "what TensorFlow 1 has for the same"
_NOT_CORRECTED = (
  "BERT's optimizers do not correct their slots for the first steps, as "
  "Keras's do: the first steps differ unless iterations is large"
)
_KEPT = "the checkpoint does not have it, and its initial value is not known"
_HYPER = "a hyperparameter is the program's"
_PRODUCT = "computed from the steps: Keras's Nadam has a schedule of momentums"
_SCHEDULED = "what the schedule gives for that step"
_LEGACY_PRODUCT = slots.PRODUCTS[0]  # Of the Nadam with `schedule_decay`.
_FACTOR = "multiplied by {:g}, {}"


class _Wanted(NamedTuple):
  """A variable of the program.

  Attributes:
    variable: The variable.
    path: Its path in the objects.
    name: Its own name.
    spec: The dtype and shape that its value is to have.
  """

  variable: Any
  path: str
  name: str
  spec: TensorSpec


def _make_wanted(variable: Any, path: str) -> _Wanted:
  dtype = tf.as_dtype(variable.dtype).base_dtype.name
  shape = tuple(tf.TensorShape(variable.shape).as_list())
  return _Wanted(variable, path, _name(variable), TensorSpec(dtype, shape))


def restore_by_name(
  checkpoint: Checkpoint,
  objects: Any,
  wishes: Wishes,
  learning_rate: float | None = None,
) -> Report:
  """Restores a checkpoint by name into objects with optimizers, eagerly.

  Args:
    checkpoint: The checkpoint.
    objects: What `tf.train.Checkpoint` takes, or a dict of such objects.
    wishes: What the caller decided. The mapping may have paths of variables. If
      variables may be missing, they keep their values unless their initial
      values are known.
    learning_rate: The learning rate with which training goes on.

  Returns:
    The source of each variable's value.

  Raises:
    CheckpointError: A variable has no value, an optimizer has not made its
      slots, or slots of the checkpoint are for no optimizer. No variable was
      assigned.
    ValueError: The mapping is wrong, or the objects have no variables.
  """
  return _Restorer(checkpoint, objects, wishes, learning_rate).run()


class _Restorer:
  """A restore by name of one checkpoint into objects."""

  def __init__(
    self,
    checkpoint: Checkpoint,
    objects: Any,
    wishes: Wishes,
    learning_rate: float | None,
  ) -> None:
    self._checkpoint, self._objects = checkpoint, objects
    self._wishes, self._rate = wishes, learning_rate
    self._sources = {
      name: Source(key, checkpoint.specs[key])
      for name, key in names.list_keys(checkpoint).items()
    }
    self._named = slots.NamedSlots(self._sources)
    self._wanted: dict[str, _Wanted] = {}  # By the name that it has there.
    # By the names in `_wanted`:
    self._mapping: dict[str, str | None] = {}
    self._reasons: dict[str, str] = {}
    self._factors: dict[str, float] = {}
    self._kept: dict[str, str] = {}  # By path.
    self._notes: list[str] = []
    walking.list_variables(objects)  # Or an error says that there are none.
    self._items = list(walking.walk_paths(objects))
    self._paths = {id(item): path for path, item in self._items}
    self._keras = self._list_keras()
    self._v1 = self._list_v1()
    known = {id(v) for each in self._keras.values() for v in _list_own(each)}
    known |= {
      id(variable)
      for optimizer in self._v1
      for variable in tf_optimizers.list_variables(optimizer)
    }
    self._weights = [
      _make_wanted(item, path)
      for path, item in self._items
      if walking.is_variable(item) and id(item) not in known
    ]

  def run(self) -> Report:
    """Restores the checkpoint; returns the report."""
    self._check_built()
    self._add_weights()
    for path, optimizer in self._keras.items():
      self._add_keras(path, optimizer)
    self._add_v1()
    self._translate_mapping()
    self._check_names()
    match = matching.match_names(
      {name: each.spec for name, each in self._wanted.items()},
      self._sources,
      self._checkpoint.prefix,
      dataclasses.replace(self._wishes, mapping=self._mapping),
    )
    self._check_lost({source.key for source in match.sources.values()})
    report = self._assign(match)
    for note in self._notes:
      if "slots" in note or "went to" in note:
        logging.warning("%s: %s", self._checkpoint.prefix, note)
    for optimizer in self._keras.values():
      optimizer_states.count_products(optimizer)
    return report

  def _list_keras(self) -> dict[str, Any]:
    """Returns path -> optimizer of Keras, without those that are wrapped."""
    found = [
      each for each in self._items if walking.is_keras_optimizer(each[1])
    ]
    wrapped = {id(getattr(item, "inner_optimizer", None)) for _, item in found}
    return {path: item for path, item in found if id(item) not in wrapped}

  def _list_v1(self) -> list[Any]:
    """Returns the optimizers of TensorFlow 1, without wrappers."""
    inner = (
      list(optimizer_kinds.walk(item))[-1]
      for _, item in self._items
      if isinstance(item, tf.compat.v1.train.Optimizer)
    )
    return list({id(optimizer): optimizer for optimizer in inner}.values())

  def _check_built(self) -> None:
    """Checks that optimizers have made their slots."""
    with_slots = {weight for _, weight in names.find_slots(self._sources)}
    trained = {
      self._find_key(each)
      for each in self._weights
      if getattr(each.variable, "trainable", False)
    }
    if not (with_slots.intersection(trained) if trained else with_slots):
      return
    new = [
      path or type(optimizer).__name__
      for path, optimizer in self._keras.items()
      if not optimizer_states.is_built(optimizer)
    ]
    if not new:
      return
    message = (
      f"it has slots, but {', '.join(new)} has none before its first step: "
      "call optimizer.build(variables) first, or of a legacy optimizer "
      f"{_BUILD}"
    )
    if not trained:
      message += "; the objects have no variables yet: build the model first"
    if self._wishes.missing == "error":
      raise CheckpointError(
        f"{self._checkpoint.prefix}: {message}; missing='initialize' restores "
        "without slots"
      )
    self._notes.append(message)

  def _find_key(self, wanted: _Wanted) -> str:
    """Returns the name that a weight has in the checkpoint."""
    given = self._wishes.mapping
    return given.get(wanted.path) or given.get(wanted.name) or wanted.name

  def _want(self, name: str, wanted: _Wanted) -> str:
    """Adds a variable to restore; returns the name that is wanted for it."""
    if name in self._wanted:
      name = wanted.path
    self._wanted[name] = wanted
    return name

  def _add_weights(self) -> None:
    """Adds what is no optimizer's: weights, loss scales, other variables."""
    for each in self._weights:
      self._want(each.name, each)

  def _add_v1(self) -> None:
    """Adds the variables of TensorFlow 1's optimizers.

    TensorFlow numbers slots of one name by the order in which the process made
    them, also slots of optimizers that are gone: `w/Adam_2` and `w/Adam_3`. A
    checkpoint of a process with one Adam has `w/Adam` and `w/Adam_1`. So slots
    are numbered anew, from 0, if the checkpoint does not have their names.
    """
    done: set[int] = set()
    for weight in self._weights:
      found: dict[str, list[tuple[int, Any]]] = {}
      is_exact = weight.name == self._find_key(weight)
      for optimizer in self._v1:
        for slot in _list_slots(optimizer, weight.variable):
          name = _name(slot)
          is_exact &= name in self._sources
          base, number = _split(name.rpartition("/")[2], optimizer)
          found.setdefault(base, []).append((number, slot))
      for base, members in found.items():
        members.sort(key=lambda pair: pair[0])
        for number, (_, slot) in enumerate(members):
          done.add(id(slot))
          name = _name(slot)
          if not is_exact:
            name = self._find_v1(weight, names.add_number(base, number))
          self._want(name, _make_wanted(slot, name))
    for optimizer in self._v1:
      for variable in tf_optimizers.list_variables(optimizer):
        if id(variable) not in done:
          name = _name(variable)
          path = self._paths.get(id(variable), name)
          self._want(name, _make_wanted(variable, path))

  def _find_v1(self, weight: _Wanted, last: str) -> str:
    """Returns the name that a slot of a weight has in the checkpoint.

    If the old program applied gradients in a scope, the slot is
    `scope/w/Momentum` there.
    """
    key = self._find_key(weight)
    found = [
      slot
      for slot in self._named.list_all(key)
      if slot.rpartition("/")[2] == last
    ]
    return found[0] if len(found) == 1 else f"{key}/{last}"

  def _add_keras(self, path: str, optimizer: Any) -> None:
    """Adds the variables of one of Keras's optimizers."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    kind = slots.find_kind(c.__name__ for c in type(inner).__mro__) or ""
    left = {id(each): each for each in _list_own(optimizer)}
    if (
      left.pop(id(getattr(optimizer, "dynamic_scale", None)), None) is not None
    ):
      # The names of compat.v1, so that the loss scale is found by its name.
      scope = slots.find_scope(
        {name: source.spec for name, source in self._sources.items()},
        [hasattr(each, "dynamic_scale") for each in self._keras.values()],
        path,
      )
      tensors = names.SCALE_TENSORS[names.COMPAT].items()
      for (name, spec), child in zip(tensors, names.KERAS_3):
        variable = getattr(optimizer, child)
        left.pop(id(variable), None)
        wanted = self._make_own(variable, path)
        self._want(scope + name, wanted._replace(spec=spec))
    steps = self._add_steps(path, optimizer, inner, kind, left)
    rate = self._compute_rate(inner, steps)
    for weight, role, slot in self._list_slots(inner, kind):
      left.pop(id(slot), None)
      self._add_slot(path, inner, kind, weight, role, slot, rate)
    for weight, average in self._list_paired(inner, slots.AVERAGES):
      left.pop(id(average), None)
      wanted = self._make_own(average, path)
      key = self._find_key(weight)
      if f"{key}/{names.AVERAGE}" in self._sources:
        key, why = f"{key}/{names.AVERAGE}", _SAME
      else:
        why = "the weight, whose average starts from it"
      if key in self._sources:
        self._map(wanted, key, why)
    for _, total in self._list_paired(inner, slots.SUMS):
      left.pop(id(total), None)
      wanted = self._make_own(total, path)
      self._set(wanted, 0, "", "no gradient is accumulated between two steps")
    attributes = _list_attributes(optimizer, inner)
    for variable in left.values():
      wanted = self._make_own(variable, path)
      name = attributes.get(id(variable), "")
      if name in slots.PRODUCTS and steps is not None:
        decay = float(np.asarray(inner.decay)) if name == _LEGACY_PRODUCT else 1
        beta = float(np.asarray(inner.beta_1))
        product = slots.compute_nadam_product(beta, decay, steps.number)
        self._set(wanted, product, steps.key, _PRODUCT)
      elif name == slots.CURRENT_RATE and rate is not None and steps:
        self._set(wanted, rate, steps.key, _SCHEDULED)
      elif name in slots.HYPERPARAMETERS:
        self._kept[wanted.path] = _HYPER
      else:
        self._want(wanted.path, wanted)
        if wanted.name in self._sources:
          self._mapping[wanted.path] = wanted.name

  def _add_slot(
    self,
    path: str,
    inner: Any,
    kind: str,
    weight: _Wanted,
    role: str,
    slot: Any,
    rate: float | None,
  ) -> None:
    """Adds a slot of one of Keras's optimizers."""
    there = f"{weight.path}/.OPTIMIZER_SLOT/{path}/{role}"
    wanted = _make_wanted(slot, self._paths.get(id(slot), there))
    if wanted.name in self._sources:  # It is of Keras, too.
      self._map(wanted, wanted.name, "")
      return
    found = self._named.find(self._find_key(weight), kind).get(role)
    is_sum = kind == "Momentum"
    if found is None and is_sum and vars(inner).get("momentum") == 0:
      self._set(wanted, 0, "", "the momentum is 0")
    elif found is None:
      self._want(wanted.path, wanted)
    else:
      self._map(wanted, found, _SAME)
      if (
        names.get_base(found) in slots.OWN_NAMES
        and _NOT_CORRECTED not in self._notes
      ):
        self._notes.append(_NOT_CORRECTED)
    if is_sum:
      if rate is None:
        raise CheckpointError(
          f"{self._checkpoint.prefix}: nothing tells the learning rate, by "
          f"which {wanted.path} must be multiplied: give learning_rate"
        )
      self._factors[wanted.path] = -rate

  def _map(self, wanted: _Wanted, key: str, why: str) -> None:
    """Gives a variable a tensor."""
    self._want(wanted.path, wanted)
    self._mapping[wanted.path] = key
    self._reasons[wanted.path] = why

  def _set(self, wanted: _Wanted, value: float, key: str, why: str) -> None:
    """Gives a variable a value that was computed from a tensor, or ""."""
    self._want(wanted.path, wanted)
    self._sources[wanted.path] = Source(key, wanted.spec, value)
    self._reasons[wanted.path] = why

  def _make_own(self, variable: Any, path: str) -> _Wanted:
    """Returns a variable of the optimizer at a path."""
    own = self._paths.get(id(variable)) or f"{path}/{_name(variable)}"
    return _make_wanted(variable, own)

  def _list_slots(
    self, inner: Any, kind: str
  ) -> Iterator[tuple[_Wanted, str, Any]]:
    """Yields (weight, role, slot) of one of Keras's optimizers."""
    for role, attribute in slots.LISTS.get(kind, {}).items():
      if hasattr(inner, "get_slot_names"):
        for weight in self._weights:
          slot = walking.get_slot(inner, weight.variable, role)
          if slot is not None:
            yield weight, role, slot
      else:
        for weight, slot in self._list_paired(inner, attribute):
          yield weight, role, slot

  def _list_paired(
    self, inner: Any, attribute: str
  ) -> Iterator[tuple[_Wanted, Any]]:
    """Yields (weight, variable) of a list of a newer optimizer of Keras."""
    by_id = {id(each.variable): each for each in self._weights}
    weights = [each.variable for each in self._weights]
    for weight, variable in optimizer_states.pair_list(
      inner, attribute, weights
    ):
      if id(weight) in by_id:
        yield by_id[id(weight)], variable

  def _add_steps(
    self,
    path: str,
    optimizer: Any,
    inner: Any,
    kind: str,
    left: dict[int, Any],
  ) -> _Steps | None:
    """Adds an optimizer's counters of steps; returns the steps if known."""
    counters = [
      self._make_own(variable, path)
      for variable in _list_counters(optimizer, inner)
      if left.pop(id(variable), None) is not None
    ]
    if not counters:
      return None
    given = self._wishes.mapping
    named = [
      name
      for name in self._sources
      if names.split_scope(name)[1] == "global_step"
    ]
    key = next(
      (
        found
        for each in counters
        for found in (given.get(each.path), given.get(each.name), each.name)
        if found in self._sources
      ),
      named[0] if len(named) == 1 else None,
    )
    counted = self._count_steps(inner, kind)
    factor = vars(inner).get("gradient_accumulation_steps") or 1
    if key is not None:
      source = self._sources[key]
      steps = _Steps(int(source.read(self._checkpoint).item()), source.key)
      if counted and abs(counted.number - steps.number) > 1:
        self._notes.append(
          f"the optimizer's {counted.key} has counted {counted.number} steps, "
          f"but {key} is {steps.number}: Keras goes by the latter alone, so "
          "its next steps have another size"
        )
    elif counted:
      steps = counted
      self._notes.append(
        f"{counters[0].path} is {steps.number}, as {steps.key} shows"
      )
    elif kind and kind not in slots.CORRECTED:
      steps = _Steps(0, "")
      self._notes.append(
        f"{counters[0].path} starts from 0, since there is no global_step"
      )
    else:
      for each in counters:
        self._want(each.path, each)
      return None
    for each in counters:
      is_own = each.variable is counters[-1].variable
      if key is not None and (factor == 1 or not is_own):
        self._map(each, key, "" if key == each.name else _SAME)
      else:
        self._set(
          each, steps.number * (factor if is_own else 1), steps.key, _SAME
        )
    if factor > 1:
      self._notes.append(
        f"{counters[-1].path} is {factor} times the steps, since the optimizer "
        f"accumulates {factor} gradients for each step"
      )
    return steps

  def _count_steps(self, inner: Any, kind: str) -> _Steps | None:
    """Returns the steps that the powers of the only Adam show."""
    if kind not in slots.CORRECTED:
      return None
    for base in ("beta2_power", "beta1_power"):
      found = [
        name
        for name, source in self._sources.items()
        if names.get_base(name) == base and names.is_power(name, source.spec)
      ]
      beta = getattr(inner, f"beta_{base[4]}", None)
      if len(found) == 1 and beta is not None:
        power = self._sources[found[0]].read(self._checkpoint).item()
        count = slots.count_steps(power, float(np.asarray(beta)))
        if count is not None:
          return _Steps(count, self._sources[found[0]].key)
    return None

  def _compute_rate(self, inner: Any, steps: _Steps | None) -> float | None:
    """Returns the learning rate of the next step; None if it is unknown."""
    if self._rate is not None:
      return self._rate
    schedule = optimizer_states.find_rate(inner)
    if schedule is not None:
      if steps is None:
        return None
      factor = vars(inner).get("gradient_accumulation_steps") or 1
      return schedule(steps.number * factor + factor - 1)
    rate = float(np.asarray(inner.learning_rate))
    decay = getattr(inner, "decay", None)
    if hasattr(inner, "get_slot_names") and decay is not None:
      rate /= 1 + float(np.asarray(decay)) * (steps.number if steps else 0)
    return rate

  def _translate_mapping(self) -> None:
    """Adds the caller's mapping, whose names may be paths or own names.

    Raises:
      ValueError: The mapping has a name that does not exist.
    """
    keys = {
      key: name for name, key in names.list_keys(self._checkpoint).items()
    }
    known: dict[str, list[str]] = {}
    for name, each in self._wanted.items():
      for other in {name, each.path, each.name}:
        known.setdefault(other, []).append(name)
    for here, there in self._wishes.mapping.items():
      found = known.get(here, [here])
      if len(found) > 1:
        raise ValueError(
          f"mapping names {here!r}, the name of several variables: give the "
          f"path of one, {', '.join(self._wanted[n].path for n in found)}."
        )
      if there is not None and there not in self._sources:
        there = keys.get(there, there)
      if self._mapping.get(found[0]) != there:
        self._reasons.pop(found[0], None)
      self._mapping[found[0]] = there

  def _check_names(self) -> None:
    """Checks that the checkpoint has the names of the weights.

    Raises:
      CheckpointError: It has not. The message lists the names for `mapping`.
    """
    lost = [
      (name, each)
      for name, each in self._wanted.items()
      if any(each is weight for weight in self._weights)
      and name not in self._sources
      and name not in self._mapping
      and not names.is_named_like_scale(name, each.spec)
    ]
    if not lost or self._wishes.missing != "error":
      return
    slots = {slot for slot, _ in names.find_slots(self._sources)}
    free = [
      name
      for name in self._sources
      if name not in self._wanted and name not in slots
    ]
    lines = ["mapping={"]
    for name, each in lost:
      alike = [n for n in free if self._sources[n].spec == each.spec]
      near = difflib.get_close_matches(name, alike, 1, 0.0)
      for other in near:
        free.remove(other)
      shown = repr(near[0]) if near else "None"
      lines.append(f"  {name!r}: {shown},")
    raise CheckpointError(
      f"{self._checkpoint.prefix}: it has other names for "
      f"{len(lost)} of the variables. Give each the name that it has there, or "
      "None for its initial value. These are the nearest names of the same "
      "shape: check them",
      [*lines, "}"],
    )

  def _check_lost(self, used: Collection[str]) -> None:
    """Checks that the slots of weights in the checkpoint go to optimizers.

    Raises:
      CheckpointError: Some do not, and `missing` is 'error'.
    """
    if not self._keras and not self._v1:
      return
    keys = names.list_keys(self._checkpoint)
    specs = {name: self._checkpoint.specs[key] for name, key in keys.items()}
    lost = slots.find_lost(specs, {n for n, key in keys.items() if key in used})
    if not lost:
      return
    message = f"{', '.join(matching.shorten(lost))} went to no optimizer"
    if self._wishes.missing != "error":
      self._notes.append(message)
      return
    why = (
      "training would go on otherwise than it did: give the optimizer that had "
      "them"
    )
    for optimizer in self._v1:
      if not optimizer.get_slot_names():
        name = type(optimizer).__name__
        why = f"{name} has none before its first step: call {_BUILD} first"
    raise CheckpointError(
      f"{self._checkpoint.prefix}: slots {message}, and {why}; "
      "missing='initialize' restores without slots"
    )

  def _assign(self, match: matching.Match) -> Report:
    """Assigns what was found; returns the report."""
    report = Report(
      self._checkpoint.prefix,
      kept=self._kept,
      unused=match.unused,
      notes=(*self._checkpoint.notes, *match.notes, *self._notes),
    )
    initial = walking.find_initial_values(self._objects)
    values: list[tuple[Any, Any]] = []
    for name, each in self._wanted.items():
      label = each.path if self._keras else name
      source = match.sources.get(name)
      if source is None:
        why, value = match.initialized[name], initial.get(id(each.variable))
        if value is None:
          self._kept[label] = _KEPT
        else:
          report.initialized[label] = why
          values.append((each.variable, value))
        continue
      value = source.read(self._checkpoint)
      why = self._reasons.get(name, match.reasons.get(name, ""))
      # Keras's own `momentum` is multiplied by the rate already.
      is_sum = names.get_base(source.key) != "momentum"
      if name in self._factors and source.key and is_sum:
        value = value * np.asarray(self._factors[name], value.dtype)
        why = _FACTOR.format(self._factors[name], "the negative learning rate")
      values.append(
        (each.variable, walking.convert(value, each.variable, source.key))
      )
      if not source.key:
        report.initialized[label] = why
      elif why:
        report.bridged[label], report.proofs[label] = source.key, why
      else:
        report.restored[label] = source.key
    if not report.restored and not report.bridged:
      raise CheckpointError(
        f"{self._checkpoint.prefix}: none of its values is for the objects"
      )
    assign = walking.plan_assignments(None, values, [])
    self._checkpoint.check_current()
    assign()
    return report


class _Steps(NamedTuple):
  """A number of steps, and the key that it was found by."""

  number: int
  key: str


def _name(variable: Any) -> str:
  """Returns a variable's name; Keras 3's has a path of names."""
  path = getattr(variable, "path", "")
  return str(path or variable.name.split(":")[0])


def _list_slots(optimizer: Any, weight: Any) -> list[Any]:
  """Returns the slots that an optimizer of TensorFlow 1 has for a weight."""
  found = (optimizer.get_slot(weight, n) for n in optimizer.get_slot_names())
  return [slot for slot in found if slot is not None]


def _split(name: str, optimizer: Any) -> tuple[str, int]:
  """Splits the number from a slot's name; the optimizer's may end in one."""
  own = tf_optimizers.get_name(optimizer)
  rest = name.removeprefix(own)
  if name.startswith(own) and (not rest or rest[1:].isdecimal()):
    return own, int(rest[1:] or 0)
  return names.split_number(name)


def _list_own(optimizer: Any) -> list[Any]:
  """Returns the variables of one of Keras's optimizers, without weights."""
  inner = getattr(optimizer, "inner_optimizer", optimizer)
  found = [*_list_counters(optimizer, inner)]
  for item in (optimizer, inner):
    listed = item.variables
    found += listed() if callable(listed) else listed
    found += [
      child
      for name, child in tracking.list_children(item).items()
      if walking.is_variable(child)
    ]
  return list({id(variable): variable for variable in found}.values())


def _list_counters(optimizer: Any, inner: Any) -> list[Any]:
  """Returns the counters of steps of an optimizer; its own comes last."""
  found = [
    child
    for item in (optimizer, inner)
    for name, child in tracking.list_children(item).items()
    if name in slots.COUNTERS
  ]
  return list({id(variable): variable for variable in found}.values())


def _list_attributes(*items: Any) -> dict[int, str]:
  """Returns `id` of each variable of optimizers -> the attribute."""
  return {
    id(child): name
    for item in items
    for name, child in tracking.list_children(item).items()
  }
