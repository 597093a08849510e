# SPDX-License-Identifier: Apache-2.0
"""Reads the names of variables in checkpoints by name (`tf.train.Saver`).

Most names depend on the model alone: `dense/kernel` is `dense/kernel` in every
program that builds the model. The names of two kinds of variables also depend
on the API, on the control flow, and on which optimizers have a loss scale. This
package calls such names *ambiguous*:

- Variables that an optimizer creates while it applies gradients, such as Adam's
  powers. If the optimizer applies gradients in a cond, the names start with the
  cond's scope: with a dynamic loss scale and TensorFlow 1's control flow
  `cond_1/beta1_power` (tf.contrib: `cond/beta1_power`), otherwise
  `beta1_power`.
- A loss scale's variables: `current_loss_scale` (float32) and `good_steps`
  (int64) in compat.v1, but `loss_scale` (float32), `good_steps` and `bad_steps`
  (int32) in tf.contrib.

TensorFlow makes equal names unique with numbers (`beta1_power_1`), in the order
of creation. So a name alone does not tell which optimizer the variable is for.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import re
from typing import NamedTuple
from typing import TypeVar

from tf_compat_lossscale.checkpoint.files.entries import TensorSpec

_T = TypeVar("_T")
_K = TypeVar("_K", bound=Hashable)
COMPAT, CONTRIB = "compat.v1", "contrib"
# API -> the base names of a loss scale's variables -> dtype and shape.
SCALE_TENSORS: dict[str, dict[str, TensorSpec]] = {
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
# The attributes of a MixedPrecisionLossScaleOptimizer in an object graph.
BASE_OPTIMIZER, LOSS_SCALE = "base_optimizer", "loss_scale"
KERAS_3_SCALE = "dynamic_scale"  # The same in Keras 3's LossScaleOptimizer.
# Its loss scale and its counter of good steps, in the order of SCALE_TENSORS.
KERAS_3 = (KERAS_3_SCALE, "step_counter")
# The dtypes that no weight or slot has, since no gradient has them.
INTEGERS = {
  f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
} | {"bool", "string"}
_POWER = re.compile(r"beta[0-9]_power")
# TensorFlow numbers equal names. No program has so many names that a number
# has more digits; such digits belong to the name.
_MOST_DIGITS = 18
AVERAGE = "ExponentialMovingAverage"  # What TensorFlow 1 calls an average.
_NOT_SLOTS = {AVERAGE}


class ScaleNames(NamedTuple):
  """The names of one loss scale's variables.

  Attributes:
    api: COMPAT or CONTRIB.
    scope: The scope of the variables, with its slash, or an empty string.
    names: The variables' names, in the order of `SCALE_TENSORS[api]`.
  """

  api: str
  scope: str
  names: tuple[str, ...]


def group(
  items: Iterable[_T], get_key: Callable[[_T], _K]
) -> dict[_K, list[_T]]:
  """Returns each key -> the items that have the key, in their order."""
  groups: dict[_K, list[_T]] = {}
  for item in items:
    groups.setdefault(get_key(item), []).append(item)
  return groups


def split_scope(name: str) -> tuple[str, str]:
  """Returns a name's scope, with its slash, and the rest of the name."""
  head, slash, tail = name.rpartition("/")
  return head + slash, tail


def split_number(name: str) -> tuple[str, int]:
  """Splits `good_steps_1` into `good_steps` and 1; the number may be 0."""
  base, underscore, digits = name.rpartition("_")
  if (
    underscore
    and len(digits) <= _MOST_DIGITS
    and digits.isascii()
    and digits.isdigit()
  ):
    return base, int(digits)
  return name, 0


def add_number(name: str, number: int) -> str:
  """Returns the name that `split_number` would split so."""
  return f"{name}_{number}" if number else name


def get_base(name: str) -> str:
  """Returns a name without its scope and number."""
  return split_number(split_scope(name)[1])[0]


def is_named_like_scale(name: str, tensor: TensorSpec) -> bool:
  """Returns whether a variable is a scalar with the name of a loss scale's."""
  base = get_base(name)
  return not tensor.shape and any(
    base in tensors for tensors in SCALE_TENSORS.values()
  )


def is_ambiguous(name: str, tensor: TensorSpec) -> bool:
  """Returns whether a name depends on more than the model.

  These are the names of Adam's powers and of loss scales.
  """
  return is_power(name, tensor) or is_named_like_scale(name, tensor)


class FoundScales(NamedTuple):
  """The loss scales among variables.

  Attributes:
    known: The loss scales, sorted by scope, API and number.
    unclear: Variables with names of a loss scale's variables, of which there
      are too many: only some can be a loss scale's.
    incomplete: The loss scales that lack counters, with the names that the
      counters would have. Each may as well be a variable of the user, unless
      evidence proves more.
    counters: Variables named like counters of a loss scale that is not there.
  """

  known: list[ScaleNames]
  unclear: set[str]
  incomplete: list[ScaleNames]
  counters: set[str]


def find_scales(
  tensors: Mapping[str, TensorSpec],
  proven: Iterable[ScaleNames] = (),
  others: Iterable[str] = (),
) -> FoundScales:
  """Finds the loss scales among the variables of a checkpoint by name.

  A scope may have several loss scales of one API, numbered in the order of
  creation: `current_loss_scale_1` belongs to `good_steps_1`. If the scope has
  more variables of one name than of another, the user has a variable with such
  a name, and the names do not show which:

      s/current_loss_scale, s/good_steps, s/good_steps_1  ->  all unclear

  Args:
    tensors: Name -> dtype and shape.
    proven: The loss scales that evidence proves.
    others: The variables that evidence proves to be no loss scale's.

  Returns:
    The loss scales, and the variables that may be parts of others.
  """
  found = [
    scale for scale in proven if not tensors.keys().isdisjoint(scale.names)
  ]
  settled = {name for scale in found for name in scale.names}.union(others)
  numbered: dict[tuple[str, str, str], list[tuple[int, str]]] = {}
  for name, tensor in tensors.items():
    scope, last = split_scope(name)
    base, number = split_number(last)
    for api, wanted in SCALE_TENSORS.items():
      if wanted.get(base) == tensor and name not in settled:
        numbered.setdefault((scope, api, base), []).append((number, name))
  unclear: set[str] = set()
  incomplete: list[ScaleNames] = []
  counters: set[str] = set()
  for scope, api in {key[:2] for key in numbered}:
    lists = [
      sorted(numbered.get((scope, api, base), []))
      for base in SCALE_TENSORS[api]
    ]
    sizes = set(map(len, lists))
    if len(sizes) == 1:
      for members in zip(*lists):
        names = tuple(name for _, name in members)
        found.append(ScaleNames(api, scope, names))
    elif 0 not in sizes:
      unclear.update(name for members in lists for _, name in members)
    elif sizes == {0, len(lists[0])}:
      incomplete += _complete(scope, api, lists, tensors)
    elif not lists[0]:
      counters.update(name for members in lists for _, name in members)
  order = {name: i for i, name in enumerate(tensors)}

  def key(scale: ScaleNames) -> tuple[str, str, int, int]:
    number = split_number(scale.names[0])[1]
    return (scale.scope, scale.api, number, order.get(scale.names[0], 0))

  return FoundScales(
    sorted(found, key=key), unclear, sorted(incomplete, key=key), counters
  )


def _complete(
  scope: str,
  api: str,
  lists: list[list[tuple[int, str]]],
  tensors: Mapping[str, TensorSpec],
) -> Iterator[ScaleNames]:
  """Yields loss scales with the names that their missing counters would have.

  Args:
    scope: The scope of the variables, with its slash.
    api: COMPAT or CONTRIB.
    lists: For each variable of a loss scale, the pairs of number and name.
    tensors: The names that are taken.
  """
  for i, (number, _) in enumerate(lists[0]):
    found = tuple(
      members[i][1] if members else scope + add_number(base, number)
      for members, base in zip(lists, SCALE_TENSORS[api])
    )
    if all(n not in tensors for n, m in zip(found, lists) if not m):
      yield ScaleNames(api, scope, found)


def remove_conds(name: str) -> str:
  """Returns a name without the scopes of conds: `a/cond_1/b` -> `a/b`."""
  return "/".join(p for p in name.split("/") if not _is_cond(p))


def _is_cond(part: str) -> bool:
  """Returns whether a part of a name is called like the scope of a cond."""
  return split_number(part)[0] == "cond"


def remove_innermost_cond(name: str) -> str:
  """Returns a name without the last scope of a cond."""
  parts = name.split("/")
  for i in range(len(parts) - 2, -1, -1):
    if _is_cond(parts[i]):
      return "/".join(parts[:i] + parts[i + 1 :])
  return name


def get_cond_number(name: str) -> int | None:
  """Returns the number of the last cond in a name: `a/cond_1/b` -> 1.

  Returns:
    The number, 0 for `cond`; None if the name has no scope of a cond.
  """
  for part in reversed(name.split("/")[:-1]):
    base, number = split_number(part)
    if base == "cond":
      return number
  return None


def is_power(name: str, tensor: TensorSpec | None = None) -> bool:
  """Returns whether a variable is called like a power of Adam or AdaMax.

  Args:
    name: The variable's name.
    tensor: The variable's dtype and shape, if known: a power is a
      floating-point scalar.
  """
  if tensor is not None and (tensor.shape or tensor.dtype in INTEGERS):
    return False
  return bool(_POWER.fullmatch(get_base(name)))


def get_other_power(power: str) -> str:
  """Returns `beta2_power` for `beta1_power`, and the other way round."""
  scope, last = split_scope(power)
  other = {"beta1": "beta2", "beta2": "beta1"}.get(last[:5], last[:5])
  return scope + other + last[5:]


def sort_names(names: Iterable[str]) -> list[str]:
  """Sorts names of one kind by cond and number: the order of creation."""

  def key(name: str) -> tuple[int, int, str]:
    cond = get_cond_number(name)
    number = split_number(name)[1] if is_power(name) else 0
    return (-1 if cond is None else cond, number, name)

  return sorted(names, key=key)


def find_slots(names: Iterable[str]) -> Iterator[tuple[str, str]]:
  """Yields each name that looks like a slot's, with its variable's name.

  The slot of `w` is called `w/Adam`. Within a variable scope `s`, the slot of
  `s/w` is called `s/s/w/Adam`.
  """
  known = set(names)
  lengths = set(map(len, known))
  for name in known:
    head, _, last = name.rpartition("/")
    begin = 0  # Of the variable's name, which is tried after each slash.
    while begin < len(head) and get_base(last) not in _NOT_SLOTS:
      if len(head) - begin in lengths and head[begin:] in known:
        yield name, head[begin:]
        break
      begin = head.find("/", begin) + 1 or len(head)


class Family(NamedTuple):
  """The slots of one variable that have one name but for the number.

  Attributes:
    weight: The variable.
    base: The name of the optimizers: `Adam`.
  """

  weight: str
  base: str


def find_families(all_names: Iterable[str]) -> dict[Family, list[str]]:
  """Groups slots by weight and name, in the order of their numbers."""
  found: dict[Family, list[str]] = {}
  for slot, weight in find_slots(all_names):
    found.setdefault(Family(weight, get_base(slot)), []).append(slot)
  for members in found.values():
    members.sort(key=lambda slot: (split_number(slot)[1], slot))
  return found


def find_lost_slots(names: Iterable[str], used: Collection[str]) -> list[str]:
  """Returns the slots of weights that are used though no slot of theirs is.

  If an optimizer has one slot of a weight, it needs no other: RMSprop without
  momentum, for instance.

  Args:
    names: The names in a checkpoint.
    used: Those that are restored.
  """
  found = [(s, w) for s, w in find_slots(names) if w in used]
  served = {weight for slot, weight in found if slot in used}
  return sorted(slot for slot, weight in found if weight not in served)
