# SPDX-License-Identifier: Apache-2.0
"""Exchanges the state of TensorFlow 1's optimizers with Keras's.

docs/keras-checkpoints.md has the table of optimizers and slots. All slots but
one have the same values in both. MomentumOptimizer sums gradients, and Keras's
SGD sums what it adds to the variable:

    MomentumOptimizer    a = momentum * a + g;         w -= rate * a
    SGD                  v = momentum * v - rate * g;  w += v

So v is -rate * a. This module speaks of a slot's *role*: the slot's name in the
table's last column. `tf.keras.optimizers.legacy` has slots by these names;
later optimizers have a list of variables for each role, such as `_velocities`.

Keras's optimizers have further variables. What they get from TensorFlow 1:

    learning_rate and others         they keep their values
    iter, _iterations                global_step
    momentum_cache, _u_product       computed: Nadam's product of momentums
    all others                       nothing: an error says so
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping

import numpy as np

from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint.reading import TensorSpec

# An optimizer of TensorFlow 1, by the name that its slots have -> the roles in
# the order of the slots' numbers; there may be alternatives.
ROLES: dict[str, tuple[tuple[str, ...], ...]] = {
  "Adadelta": (("accum_grad", "accum_var"),),
  "Adagrad": (("accumulator",),),
  "Adam": (("m", "v"),),
  "AdaMax": (("m", "v"),),
  "Ftrl": (("accumulator", "linear"),),
  "Momentum": (("momentum",),),
  "RMSProp": (("rms", "momentum"), ("rms", "mg", "momentum")),
}
# The same of TensorFlow 1's optimizers in object graphs, if they differ.
_ROLES_OF_V1 = {
  frozenset({"accum", "accum_update"}): "Adadelta",
  frozenset({"accum", "linear"}): "Ftrl",
}
# Further names of slots -> the optimizer with the same slots. Weight decay is
# no slot.
ALIKE = {"AdamW": "Adam", "MomentumW": "Momentum"}
# Slots with a name for each role -> optimizer, role.
OWN_NAMES = {
  "adam_m": ("Adam", "m"),
  "adam_v": ("Adam", "v"),
  "lamb_m": ("Adam", "m"),
  "lamb_v": ("Adam", "v"),
}
# Keras's classes, in lower case -> the optimizer with the same slots. Classes
# whose slots have other meanings have "".
CLASSES = {
  "adadelta": "Adadelta",
  "adagrad": "Adagrad",
  "adam": "Adam",
  "adamax": "AdaMax",
  "adamw": "Adam",
  "ftrl": "Ftrl",
  "lamb": "Adam",
  "momentum": "Momentum",  # TensorFlow 1's.
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
# All that optimizers call their slots, in lower case and without numbers.
SLOTS = {
  *(kind.lower() for kind in (*CLASSES, *ALIKE, *OWN_NAMES)),
  *(role for each in ROLES.values() for roles in each for role in roles),
  *names.OTHER_SLOTS,
}
# Optimizer -> role -> the attribute of Keras's newer optimizers that lists its
# variables. In an object graph, the first optimizer whose lists are all there.
LISTS: dict[str, dict[str, str]] = {
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
COUNTERS = ("iter", "_iterations")
PRODUCTS = ("momentum_cache", "_u_product")
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
# The optimizers that correct their slots by the number of steps.
CORRECTED = {"Adam", "AdaMax"}
_MOST_COUNTED = 1_000_000  # Steps whose momentums are multiplied one by one.


def find_kind_of_roles(roles: Collection[str]) -> str:
  """Returns the key of `ROLES` whose slots have these roles; '' if none has."""
  if frozenset(roles) in _ROLES_OF_V1:
    return _ROLES_OF_V1[frozenset(roles)]
  for kind, (*_, most) in ROLES.items():
    is_part = kind == "RMSProp" and "rms" in roles and set(roles) < set(most)
    if is_part or set(roles) == set(most):
      return kind
  return ""


def find_kind_of_lists(children: Collection[str]) -> str:
  """Returns the key of `LISTS` whose lists an optimizer has; '' if none is."""
  for kind, lists in LISTS.items():
    if set(lists.values()) <= set(children):
      return kind
  return ""


def find_kind(names_of_classes: Iterable[str]) -> str | None:
  """Returns the optimizer of TensorFlow 1 with the slots of a class.

  Args:
    names_of_classes: The name of an optimizer's class, of Keras or of
      TensorFlow 1, and those of the classes that it is derived from.

  Returns:
    A key of `ROLES`; '' if there is none; None if the classes are unknown.
  """
  for name in names_of_classes:
    name = name.lower().replace("_", "").removesuffix("optimizer")
    kind = CLASSES.get(name)
    if kind is not None:
      return kind
  return None


def find_kind_of_optimizer(optimizer: object) -> str | None:
  """Returns the same for an optimizer, by its class."""
  return find_kind(cls.__name__ for cls in type(optimizer).__mro__)


class NamedSlots:
  """The slots of TensorFlow 1's optimizers among variables by name."""

  def __init__(self, all_names: Collection[str]) -> None:
    # Weight -> name of the slots without numbers -> the slots.
    self._found: dict[str, dict[str, list[str]]] = {}
    for slot, weight in names.find_slots(all_names):
      bases = self._found.setdefault(weight, {})
      bases.setdefault(names.get_base(slot), []).append(slot)
    for bases in self._found.values():
      for members in bases.values():
        members.sort(key=names.get_number)

  def find(self, weight: str, kind: str) -> dict[str, str]:
    """Returns role -> slot of a weight; {} if several optimizers may have it.

    Args:
      weight: The weight's name.
      kind: The optimizer: a key of `ROLES`.
    """
    found: dict[str, str] = {}
    for base, members in self._found.get(weight, {}).items():
      own, role = OWN_NAMES.get(base, ("", ""))
      if kind not in (own, ALIKE.get(base, base)):
        continue
      given = ((role,),) if own else ROLES[kind]
      roles = next((r for r in given if len(r) == len(members)), ())
      if len(roles) != len(members) or found.keys() & set(roles):
        return {}
      found.update(zip(roles, members))
    return found

  def list_all(self, weight: str) -> list[str]:
    """Returns all slots of a weight."""
    return [n for each in self._found.get(weight, {}).values() for n in each]


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
      tensors[slot] == tensors[weight] or names.get_base(slot).lower() in SLOTS
    )
  ]
  served = {weight for slot, weight in found if slot in used}
  return sorted(slot for slot, weight in found if weight not in served)


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


def find_scope(
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
