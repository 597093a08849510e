# SPDX-License-Identifier: Apache-2.0
"""Knows what optimizers call their slots: tables.

This module speaks of a slot's *role*: its name in `tf.keras.optimizers.legacy`.
Later optimizers have a list of variables for each role, such as `_velocities`.
An optimizer's *kind* is the key of `ROLES` with its slots, such as "Momentum".
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable

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
# The roles of TensorFlow 1's in object graphs, if they differ -> the kind.
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
# What optimizers call their slots that no table above has, in lower case and
# without numbers. Most are the names of the optimizers.
_OTHER_SLOTS = {
  # tf.train.
  "adagradda",
  "proximaladagrad",
  "proximalgradientdescent",
  # tf.contrib.opt and its successors.
  "accumulated_gradient",
  "addsign",
  "centeredrmsprop",
  "elasticaverageoptimizer",
  "ggt",
  "larsoptimizer",
  "lazyadam",
  "lazyadamoptimizer",
  "modelaverageoptimizer",
  "movingaverageoptimizer",
  "multistepoptimizer",
  "powersign",
  "sgdw",
  "shampoo",
  # Keras's, Adafactor's, NovoGrad's, and sums of gradients.
  "vhat",
  "vc",
  "vr",
  "grad_acc",
  "grad_ema",
}
# Names of slots that are short enough for a program's own variables.
SHORT_SLOTS = {"linear", "m", "mg", "rms", "v", "vc", "vr"}
# All that optimizers call their slots, in lower case and without numbers.
SLOTS = {
  *(kind.lower() for kind in (*CLASSES, *ALIKE, *OWN_NAMES)),
  *(role for each in ROLES.values() for roles in each for role in roles),
  *_OTHER_SLOTS,
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
# What Keras's optimizers call Nadam's product.
PRODUCTS = ("momentum_cache", "_u_product")
# The optimizers that correct their slots by the number of steps.
CORRECTED = {"Adam", "AdaMax"}


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
  found = (k for k, v in LISTS.items() if set(v.values()) <= set(children))
  return next(found, "")


def find_kind(names_of_classes: Iterable[str]) -> str | None:
  """Returns the key of `ROLES` with the slots of an optimizer's classes.

  It is '' if there is none, and None if the classes are unknown.
  """
  found = (
    CLASSES.get(name.lower().replace("_", "").removesuffix("optimizer"))
    for name in names_of_classes
  )
  return next((kind for kind in found if kind is not None), None)


def find_kind_of_optimizer(optimizer: object) -> str | None:
  """Returns the same for an optimizer, by its class."""
  return find_kind(cls.__name__ for cls in type(optimizer).__mro__)
