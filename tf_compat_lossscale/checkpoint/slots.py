# SPDX-License-Identifier: Apache-2.0
"""Exchanges the state of TensorFlow 1's optimizers with Keras's.

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

So v is -rate * a. This module speaks of a slot's *role*: the slot's name in the
table's last column. `tf.keras.optimizers.legacy` has slots by these names;
later optimizers have a list of variables for each role, such as `_velocities`.

Keras's optimizers have further variables. What they get from TensorFlow 1:

    learning_rate and others         they keep their values
    _current_learning_rate           what the schedule gives at that step
    iter, _iterations                global_step, times the gradients that
                                     Keras 3 accumulates for each step
    momentum_cache, _u_product       computed: Nadam's product of momentums
    _model_variables_moving_average  w/ExponentialMovingAverage, else w
    _accumulated_gradients           0: global_step counts whole steps
    vhat, _velocity_hats (AMSGrad)   nothing
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import difflib
import math
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
from tf_compat_lossscale.checkpoint import reading
from tf_compat_lossscale.checkpoint.matching import Source
from tf_compat_lossscale.checkpoint.matching import Wishes
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import CheckpointError
from tf_compat_lossscale.checkpoint.reading import TensorSpec
from tf_compat_lossscale.checkpoint.report import Report
from tf_compat_lossscale.keras import optimizer_states

# An optimizer of TensorFlow 1, by the name that its slots have -> the roles in
# the order of the slots' numbers; there may be alternatives.
_ROLES: dict[str, tuple[tuple[str, ...], ...]] = {
  "Adadelta": (("accum_grad", "accum_var"),),
  "Adagrad": (("accumulator",),),
  "Adam": (("m", "v"),),
  "AdaMax": (("m", "v"),),
  "Ftrl": (("accumulator", "linear"),),
  "Momentum": (("momentum",),),
  "RMSProp": (("rms", "momentum"), ("rms", "mg", "momentum")),
}
# Further names of slots -> the optimizer with the same slots. Weight decay is
# no slot.
_ALIKE = {"AdamW": "Adam", "MomentumW": "Momentum"}
# Slots with a name for each role -> optimizer, role.
_OWN_NAMES = {
  "adam_m": ("Adam", "m"),
  "adam_v": ("Adam", "v"),
  "lamb_m": ("Adam", "m"),
  "lamb_v": ("Adam", "v"),
}
# Keras's classes, in lower case -> the optimizer with the same slots. Classes
# whose slots have other meanings have "".
_CLASSES = {
  "adadelta": "Adadelta",
  "adagrad": "Adagrad",
  "adam": "Adam",
  "adamax": "AdaMax",
  "adamw": "Adam",
  "ftrl": "Ftrl",
  "lamb": "Adam",
  "nadam": "Adam",
  "rmsprop": "RMSProp",
  "sgd": "Momentum",
} | dict.fromkeys(
  [
    "adabelief",
    "adafactor",
    "lars",
    "lion",
    "muon",
    "novograd",
    "schedulefreeadamw",
    "yogi",
  ],
  "",
)
# Optimizer -> role -> the attribute of Keras's newer optimizers that lists its
# variables. In an object graph, the first optimizer whose lists are all there.
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
# What Keras's optimizers call their counter of steps, and Nadam's product.
_COUNTERS = ("iter", "_iterations")
_PRODUCTS = ("momentum_cache", "_u_product")
_CURRENT_RATE = "_current_learning_rate"  # What a schedule gave in a step.
# Attributes of Keras's optimizers that other checkpoints have no variables for.
_HYPERPARAMETERS = {
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
  "_learning_rate",
}
# Lists of variables that newer optimizers have beside their slots.
_AVERAGES, _SUMS = "_model_variables_moving_average", "_accumulated_gradients"
# The optimizers that correct their slots by the number of steps.
_CORRECTED = {"Adam", "AdaMax"}
_MOST_COUNTED = 1_000_000  # Steps whose momentums are multiplied one by one.

_BUILD = "optimizer.apply_gradients([(tf.zeros_like(w), w) for w in variables])"
_SAME = "what TensorFlow 1 has for the same"
_NOT_CORRECTED = (
  "BERT's optimizers do not correct their slots for the first steps, as Keras's "
  "do: the first steps differ unless iterations is large"
)
_SAME_THERE = "the slot that Keras's optimizer calls {}"
_FACTOR = "multiplied by {:g}, {}"
_POWER = "computed from the steps and {} of Keras's optimizer"
_STEPS = "the steps of Keras's optimizer"
_SCALE = "of Keras 3's loss scale"
_KEPT = "the checkpoint does not have it, and its initial value is not known"
_HYPER = "a hyperparameter is the program's"


def find_kind(names_of_classes: Iterable[str]) -> str:
  """Returns the optimizer of TensorFlow 1 with the slots of a class of Keras.

  Args:
    names_of_classes: The class's name, and those that it is derived from.

  Returns:
    A key of `_ROLES`; '' if there is none.
  """
  for name in names_of_classes:
    kind = _CLASSES.get(name.lower().replace("_", ""))
    if kind is not None:
      return kind
  return ""


class _NamedSlots:
  """The slots of TensorFlow 1's optimizers among variables by name."""

  def __init__(self, all_names: Collection[str]) -> None:
    # Weight -> name of the slots without numbers -> the slots.
    self._found: dict[str, dict[str, list[str]]] = {}
    for slot, weight in names.find_slots(all_names):
      bases = self._found.setdefault(weight, {})
      bases.setdefault(names.get_base(slot), []).append(slot)
    for bases in self._found.values():
      for members in bases.values():
        members.sort(key=_get_number)

  def find(self, weight: str, kind: str) -> dict[str, str]:
    """Returns role -> slot of a weight; {} if several optimizers may have it.

    Args:
      weight: The weight's name.
      kind: The optimizer: a key of `_ROLES`.
    """
    found: dict[str, str] = {}
    for base, members in self._found.get(weight, {}).items():
      own, role = _OWN_NAMES.get(base, ("", ""))
      if kind not in (own, _ALIKE.get(base, base)):
        continue
      given = ((role,),) if own else _ROLES[kind]
      roles = next((r for r in given if len(r) == len(members)), ())
      if len(roles) != len(members) or found.keys() & set(roles):
        return {}
      found.update(zip(roles, members))
    return found

  def list_all(self, weight: str) -> list[str]:
    """Returns all slots of a weight."""
    return [n for each in self._found.get(weight, {}).values() for n in each]


def _get_number(name: str) -> int:
  return names.split_number(name)[1]


def find_lost(
  tensors: Mapping[str, TensorSpec], used: Collection[str]
) -> list[str]:
  """Returns the slots of weights that are used though no slot of theirs is.

  If an optimizer has one slot of a weight, it needs no other: RMSprop without
  momentum, for instance.

  Args:
    tensors: Name in the checkpoint -> dtype and shape.
    used: The names that are restored.
  """
  found = [
    (slot, weight)
    for slot, weight in names.find_slots(tensors)
    if weight in used
    and (
      tensors[slot] == tensors[weight]
      or names.get_base(slot).lower() in names.SLOTS
    )
  ]
  served = {weight for slot, weight in found if slot in used}
  return sorted(slot for slot, weight in found if weight not in served)


def count_steps(power: float, beta: float) -> int | None:
  """Returns after how many steps a power of Adam has a value; None if unknown.

  Args:
    power: The value of `beta1_power` or `beta2_power`: beta ** (steps + 1).
    beta: The base.
  """
  if not 0 < beta < 1 or not np.finfo(np.float32).tiny <= power <= beta * 1.001:
    return None
  return round(math.log(power) / math.log(beta)) - 1


def compute_nadam_product(beta: float, decay: float, steps: int) -> float:
  """Returns Keras's product of Nadam's momentums after some steps.

  Args:
    beta: Nadam's `beta_1`.
    decay: Its `schedule_decay`; 1 for newer optimizers.
    steps: The number of steps.
  """
  # Long before, the product is 0 in float32, unless beta is very near 1.
  counts = np.arange(1, min(steps, _MOST_COUNTED) + 1)
  factors = beta * (1 - 0.5 * 0.96 ** (decay * counts))
  left = max(0, steps - _MOST_COUNTED)
  return float(np.float32(np.prod(factors) * beta**left))


# From TensorFlow 1 to Keras's objects, eagerly.


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
    self._named = _NamedSlots(self._sources)
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
    found = {
      path: item
      for path, item in self._items
      if walking.is_keras_optimizer(item)
    }
    inner = [getattr(each, "inner_optimizer", None) for each in found.values()]
    return {
      path: item
      for path, item in found.items()
      if all(item is not other for other in inner)
    }

  def _list_v1(self) -> list[Any]:
    """Returns the optimizers of TensorFlow 1, without wrappers."""
    found: dict[int, Any] = {}
    for _, item in self._items:
      if isinstance(item, tf.compat.v1.train.Optimizer):
        *_, innermost = optimizer_kinds.walk(item)
        found[id(innermost)] = innermost
    return list(found.values())

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
      for base, slots in found.items():
        slots.sort(key=lambda pair: pair[0])
        for number, (_, slot) in enumerate(slots):
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
    kind = find_kind(cls.__name__ for cls in type(inner).__mro__)
    left = {id(each): each for each in _list_own(optimizer)}
    if (
      left.pop(id(getattr(optimizer, "dynamic_scale", None)), None) is not None
    ):
      # The names of compat.v1, so that the loss scale is found by its name.
      scope = _find_scope(
        {name: source.spec for name, source in self._sources.items()},
        [hasattr(each, "dynamic_scale") for each in self._keras.values()],
        path,
      )
      tensors = names.SCALE_TENSORS[names.COMPAT].items()
      for (name, spec), child in zip(tensors, names.KERAS_3):
        variable = getattr(optimizer, child)
        left.pop(id(variable), None)
        wanted = _make_wanted(variable, self._find_path(variable, path))
        self._want(scope + name, wanted._replace(spec=spec))
    steps = self._add_steps(path, optimizer, inner, kind, left)
    rate = self._compute_rate(inner, steps)
    for weight, role, slot in self._list_slots(inner, kind):
      left.pop(id(slot), None)
      self._add_slot(path, inner, kind, weight, role, slot, rate)
    for weight, average in self._list_paired(inner, _AVERAGES):
      left.pop(id(average), None)
      wanted = _make_wanted(average, self._find_path(average, path))
      key = self._find_key(weight)
      if f"{key}/{names.AVERAGE}" in self._sources:
        key, why = f"{key}/{names.AVERAGE}", _SAME
      else:
        why = "the weight, whose average starts from it"
      if key in self._sources:
        self._map(wanted, key, why)
    for _, total in self._list_paired(inner, _SUMS):
      left.pop(id(total), None)
      wanted = _make_wanted(total, self._find_path(total, path))
      self._set(wanted, 0, "", "no gradient is accumulated between two steps")
    attributes = _list_attributes(optimizer, inner)
    for variable in left.values():
      wanted = _make_wanted(variable, self._find_path(variable, path))
      name = attributes.get(id(variable), "")
      computed: tuple[float, str] | None = None
      if name in _PRODUCTS and steps is not None:
        decay = 1.0
        if name == _PRODUCTS[0]:
          decay = float(np.asarray(inner.decay))
        beta = float(np.asarray(inner.beta_1))
        computed = (
          compute_nadam_product(beta, decay, steps.number),
          "computed from the steps: Keras's Nadam has a schedule of momentums",
        )
      elif name == _CURRENT_RATE and rate is not None:
        computed = rate, "what the schedule gives for that step"
      if computed and steps is not None:
        self._set(wanted, computed[0], steps.key, computed[1])
      elif name in _HYPERPARAMETERS:
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
        names.get_base(found) in _OWN_NAMES
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

  def _find_path(self, variable: Any, path: str) -> str:
    """Returns the path of a variable of an optimizer."""
    return self._paths.get(id(variable)) or f"{path}/{_name(variable)}"

  def _list_slots(
    self, inner: Any, kind: str
  ) -> Iterator[tuple[_Wanted, str, Any]]:
    """Yields (weight, role, slot) of one of Keras's optimizers."""
    for role, attribute in _LISTS.get(kind, {}).items():
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
      _make_wanted(variable, self._find_path(variable, path))
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
    elif kind and kind not in _CORRECTED:
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
    if kind not in _CORRECTED:
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
        count = count_steps(power, float(np.asarray(beta)))
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
    lost = find_lost(specs, {name for name, key in keys.items() if key in used})
    if not lost:
      return
    message = f"{', '.join(matching.shorten(lost))} went to no optimizer"
    for optimizer in self._v1:
      if not optimizer.get_slot_names() and self._wishes.missing == "error":
        raise CheckpointError(
          f"{self._checkpoint.prefix}: slots {message}, but "
          f"{type(optimizer).__name__} has none before its first step: call "
          f"{_BUILD} first; missing='initialize' restores without slots"
        )
    if self._wishes.missing == "error":
      raise CheckpointError(
        f"{self._checkpoint.prefix}: slots {message}, so training would go on "
        "otherwise than it did: give the optimizer that had them, or "
        "missing='initialize' to go on without"
      )
    self._notes.append(message)

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
      if name in self._factors and source.key and self._is_sum(source.key):
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

  def _is_sum(self, key: str) -> bool:
    """Returns whether a tensor is of MomentumOptimizer, not of Keras's SGD."""
    return names.get_base(key) != "momentum"


class _Steps(NamedTuple):
  """A number of steps, and the key that it was found by."""

  number: int
  key: str


def _name(variable: Any) -> str:
  """Returns a variable's name; Keras 3's has a path of names."""
  path = getattr(variable, "path", "")
  return str(path or variable.name.split(":")[0])


def _find_scope(
  others: Mapping[str, TensorSpec], have_scales: Iterable[bool], path: str
) -> str:
  """Returns the scope in which a loss scale of Keras 3 is found by name.

  Args:
    others: The variables of the other side.
    have_scales: Which optimizers on this side have a loss scale.
    path: The path of the optimizer.

  Returns:
    The scope of the other side's only loss scale, with its slash; if there are
    several on a side, one that shows which optimizer this is.
  """
  known = names.find_scales(others).known
  if len(known) == 1 and sum(have_scales) == 1:
    return known[0].scope
  return f"{path}/"


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
  for each in dict.fromkeys((id(optimizer), id(inner))):
    item = optimizer if each == id(optimizer) else inner
    listed = item.variables
    found += listed if isinstance(listed, (list, tuple)) else listed()
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
    if name in _COUNTERS
  ]
  return list({id(variable): variable for variable in found}.values())


def _list_attributes(*items: Any) -> dict[int, str]:
  """Returns `id` of each variable of optimizers -> the attribute."""
  return {
    id(child): name
    for item in items
    for name, child in tracking.list_children(item).items()
  }


# From Keras's objects to names of TensorFlow 1.


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
    number: Its node.
    path: Its path.
    kind: The optimizer of TensorFlow 1 with the same slots: a key of `_ROLES`;
      '' if there is none.
    children: Attribute -> node, also of a wrapper.
    slots: (node of the weight, role, node of the slot).
  """

  number: int
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
  inside = {
    children[base]
    for children in graph.children
    for base in ("base_optimizer", "inner_optimizer")
    if base in children
  }
  for number, own in enumerate(graph.children):
    base = own.get("base_optimizer", own.get("inner_optimizer"))
    children = own | (graph.children[base] if base is not None else {})
    if number in inside or not children.keys() & set(_COUNTERS):
      continue
    slots = [
      (
        slot.original_variable_node_id,
        slot.slot_name,
        slot.slot_variable_node_id,
      )
      for part in ([number] if base is None else [number, base])
      for slot in graph.nodes[part].slot_variables
    ]
    if "iter" in children:
      kind = _find_legacy_kind(graph, slots)
    else:
      kind = next(
        (k for k, v in _LISTS.items() if children.keys() >= set(v.values())), ""
      )
      slots = [
        (weight, role, slot)
        for role, name in _LISTS.get(kind, {}).items()
        for weight, slot in _list_members(graph, children, name, by_name)
      ]
    yield _Saved(number, paths.get(number, ""), kind, children, slots)


def _find_legacy_kind(
  graph: walking.ObjectGraph, slots: list[tuple[int, str, int]]
) -> str:
  """Returns the kind of an optimizer of `tf.keras.optimizers.legacy`."""
  scope = ""
  for weight, _, slot in slots[:1]:
    values = graph.find_value(weight), graph.find_value(slot)
    if None not in values:  # It is `Adam/w/m`.
      name, whole = (value.full_name for value in values)
      scope = whole.rpartition(f"/{name}/")[0].rpartition("/")[2]
  kind = _CLASSES.get(names.split_number(scope)[0].lower().replace("_", ""))
  if kind is not None:
    return kind
  found = {role for _, role, _ in slots}
  return next(
    (
      kind
      for kind, (*_, most) in _ROLES.items()
      if found == set(most) or (kind == "RMSProp" and "rms" in found)
    ),
    "",
  )


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
    self._named = _NamedSlots(wanted)
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
        scope = _find_scope(
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
    found = [saved.children[n] for n in _COUNTERS if n in saved.children]
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
        for n in (_CURRENT_RATE, "learning_rate", "_learning_rate")
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
    if steps is None or saved.kind not in _CORRECTED:
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
