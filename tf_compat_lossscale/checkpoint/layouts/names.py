"""What the names of a Saver's variables mean.

Three of them depend on more than the model. Variables that an optimizer makes
while it applies gradients are named by the cond that they are made in, if
there is one: `cond_1/beta1_power` (tf.contrib: `cond/…`) under TensorFlow 1's
control flow with a dynamic loss scale, `beta1_power` otherwise. And the loss
scale's own: `current_loss_scale` (float32) and `good_steps` (int64), or in
tf.contrib `loss_scale` (float32), `good_steps` and `bad_steps` (int32).
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import re
from typing import NamedTuple

from tf_compat_lossscale.checkpoint.files.entries import TensorSpec

COMPAT, CONTRIB = "compat.v1", "contrib"
# API -> what its variables are called and are, in the order of `State`.
LAYOUTS: dict[str, dict[str, TensorSpec]] = {
  COMPAT: {
    "current_loss_scale": TensorSpec("float32", ()),
    "good_steps": TensorSpec("int64", ()),
  },
  CONTRIB: {
    "loss_scale": TensorSpec("float32", ()),
    "good_steps": TensorSpec("int32", ()),
    "bad_steps": TensorSpec("int32", ()),
  },
}
INTEGERS = {
  f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
} | {"bool", "string"}
_COND = re.compile(r"cond(?:_(\d+))?")
_NUMBERED = re.compile(r"(.*?)(?:_(\d+))?")
_POWER = re.compile(r"beta\d_power(?:_\d+)?")
# The last part of slots' names -> the optimizer in `tf.compat.v1.train`.
_SLOTS = {
  "Adadelta": "Adadelta",
  "Adagrad": "Adagrad",
  "Adam": "Adam",
  "AdaMax": "AdaMax",
  "Ftrl": "Ftrl",
  "Momentum": "Momentum",
  "RMSProp": "RMSProp",
  "adam_m": "AdamWeightDecay",  # As Google's and NVIDIA's BERT has it.
  "lamb_m": "LAMB",
}
_NOT_SLOTS = {"ExponentialMovingAverage"}


class State(NamedTuple):
  """The names of a loss scale's variables.

  Attributes:
    api: COMPAT or CONTRIB.
    scope: What they have in front, with a slash, or nothing.
    names: The variables', in the order of `LAYOUTS`.
  """

  api: str
  scope: str
  names: tuple[str, ...]


def split_scope(name: str) -> tuple[str, str]:
  """A name's scope, with its slash, and the rest."""
  head, slash, tail = name.rpartition("/")
  return head + slash, tail


def split_number(name: str) -> tuple[str, int]:
  """What a name was before it was made unique, and its number (0 for none)."""
  match = _NUMBERED.fullmatch(name)
  assert match
  return match[1], int(match[2] or 0)


def base(name: str) -> str:
  """A name without its scope and number."""
  return split_number(split_scope(name)[1])[0]


def numbered(name: str, number: int) -> str:
  """The opposite of `split_number`."""
  return f"{name}_{number}" if number else name


def is_like_scale(name: str, tensor: TensorSpec) -> bool:
  """Returns whether a scalar is called like one of a loss scale's."""
  last = base(name)
  return not tensor.shape and any(last in api for api in LAYOUTS.values())


def is_special(name: str, tensor: TensorSpec) -> bool:
  """Returns whether a name depends on more than the model, as it seems.

  Those of Adam's powers and of loss scales depend on the control flow, and on
  which optimizers have a loss scale.
  """
  return is_power(name, tensor) or is_like_scale(name, tensor)


class Scales(NamedTuple):
  """The loss scales among variables.

  Attributes:
    known: The loss scales, by scope and number.
    unclear: The variables that could be a loss scale's, but not all of them
      are.
  """

  known: list[State]
  unclear: set[str]


def loss_scales(
  tensors: Mapping[str, TensorSpec],
  proven: Iterable[State] = (),
  others: Iterable[str] = (),
) -> Scales:
  """Finds the loss scales among a Saver's variables.

  Several in a scope are numbered: those of one API belong together in the
  order of their numbers. If a scope has more of one kind than of another, then
  a variable of the user's is called like a loss scale's.

  Args:
    tensors: Name -> dtype and shape.
    proven: The loss scales that are known by more than their names.
    others: The variables that are known to be no loss scale's.
  """
  states = [s for s in proven if not set(s.names).isdisjoint(tensors)]
  settled = {name for state in states for name in state.names}.union(others)
  found: dict[tuple[str, str, str], list[tuple[int, str]]] = {}
  for name, tensor in tensors.items():
    scope, last = split_scope(name)
    first, number = split_number(last)
    for api, layout in LAYOUTS.items():
      if layout.get(first) == tensor and name not in settled:
        found.setdefault((scope, api, first), []).append((number, name))
  unclear: set[str] = set()
  for scope, api in {key[:2] for key in found}:
    lists = [sorted(found.get((scope, api, b), [])) for b in LAYOUTS[api]]
    sizes = set(map(len, lists))
    if len(sizes) == 1:
      for names in zip(*lists):
        states.append(State(api, scope, tuple(name for _, name in names)))
    elif 0 not in sizes:
      unclear.update(name for names in lists for _, name in names)
  order = {name: i for i, name in enumerate(tensors)}

  def key(state: State) -> tuple[str, str, int, int]:
    number = split_number(state.names[0])[1]
    return (state.scope, state.api, number, order.get(state.names[0], 0))

  return Scales(sorted(states, key=key), unclear)


def without_conds(name: str) -> str:
  """A name without the conds that its variable was made in."""
  return "/".join(p for p in name.split("/") if not _COND.fullmatch(p))


def out_of_cond(name: str) -> str:
  """A name without the innermost cond that its variable was made in."""
  parts = name.split("/")
  for i in range(len(parts) - 2, -1, -1):
    if _COND.fullmatch(parts[i]):
      return "/".join(parts[:i] + parts[i + 1 :])
  return name


def innermost_cond(name: str) -> int | None:
  """The number of the last cond in a name; None if there is none."""
  numbers = [
    int(match[1] or 0)
    for match in map(_COND.fullmatch, name.split("/")[:-1])
    if match
  ]
  return numbers[-1] if numbers else None


def is_power(name: str, tensor: TensorSpec | None = None) -> bool:
  """Returns whether that is one of Adam's powers, or of its like, by its name.

  Args:
    name: The variable's name.
    tensor: Its dtype and shape, if known: powers are scalars, and no integers.
  """
  if tensor is not None and (tensor.shape or tensor.dtype in INTEGERS):
    return False
  return bool(_POWER.fullmatch(split_scope(name)[1]))


def partner(power: str) -> str:
  """The name of the other one of Adam's two powers."""
  scope, last = split_scope(power)
  other = {"beta1": "beta2", "beta2": "beta1"}.get(last[:5], last[:5])
  return scope + other + last[5:]


class Family(NamedTuple):
  """What variables share that differ in their cond or number alone.

  Attributes:
    scope: The scope, without conds.
    base: The rest of the name, for powers without its number.
  """

  scope: str
  base: str


def family(name: str) -> Family:
  """The family of a variable."""
  scope, last = split_scope(without_conds(name))
  return Family(scope, split_number(last)[0] if is_power(name) else last)


def in_order(names: Iterable[str]) -> list[str]:
  """A family's names, in the order in which their variables were made."""

  def key(name: str) -> tuple[int, int, str]:
    cond = innermost_cond(name)
    number = split_number(name)[1] if is_power(name) else 0
    return (-1 if cond is None else cond, number, name)

  return sorted(names, key=key)


def families(names: Iterable[str]) -> dict[Family, list[str]]:
  """Names by family, each in order."""
  found: dict[Family, list[str]] = {}
  for name in names:
    found.setdefault(family(name), []).append(name)
  return {key: in_order(members) for key, members in found.items()}


def slots(names: Iterable[str]) -> Iterator[tuple[str, str]]:
  """Yields what look like slots: (name, the variable's that it belongs to).

  A slot is called after its variable: `w/Adam`, or within a variable scope
  `scope/scope/w/Adam`.
  """
  known = set(names)
  for name in known:
    head, _, last = name.rpartition("/")
    while head and last not in _NOT_SLOTS:
      if head in known:
        yield name, head
        break
      head = head.partition("/")[2]


def inner_optimizer(names: Iterable[str]) -> str | None:
  """The optimizers that a Saver's names show; None if they show none."""
  names = set(names)
  found = set()
  for name, _ in slots(names):
    last = name.rpartition("/")[2]
    optimizer = _SLOTS.get(last) or _SLOTS.get(split_number(last)[0])
    if optimizer:
      found.add(optimizer)
  if not found and any(map(is_power, names)):
    found.add("Adam")
  return ", ".join(sorted(found)) or None
