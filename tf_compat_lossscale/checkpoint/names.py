# SPDX-License-Identifier: Apache-2.0
"""Knows what each API calls the variables of a loss scale and an optimizer.

Most names depend on the model alone: `dense/kernel` is `dense/kernel` in every
program that builds the model. The names of two kinds of variables also depend
on the API, on the control flow, and on which optimizers have a loss scale:

- A loss scale's variables, in the scope where it was made:

      compat.v1    current_loss_scale (float32), good_steps (int64)
      tf.contrib   loss_scale (float32), good_steps, bad_steps (int32)

  `GrowthBackoff` has those of compat.v1 and more: `COUNTS`.

- Variables that an optimizer makes while it applies gradients, such as Adam's
  powers. For an optimizer that applies gradients in a scope `s`:

                          TensorFlow 1's control flow   TensorFlow 2's
      compat.v1           s/cond_1/beta1_power          beta1_power
      tf.contrib          s/cond/beta1_power            beta1_power
      without loss scale  s/beta1_power                 s/beta1_power

TensorFlow numbers equal names in the order of creation: `beta1_power_1`,
`cond_3`. So such a name does not tell which optimizer the variable is for.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import re
from typing import NamedTuple
from typing import TypeVar

from tf_compat_lossscale._core import object_graph
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import CheckpointError
from tf_compat_lossscale.checkpoint.reading import TensorSpec

_T = TypeVar("_T")
_K = TypeVar("_K", bound=Hashable)
COMPAT, CONTRIB = object_graph.COMPAT, object_graph.CONTRIB
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
# API -> the number of the cond in which a scope's first optimizer applies
# gradients. In compat.v1, the loss scale is updated in a cond before that.
FIRST_COND = {COMPAT: 1, CONTRIB: 0}
# The counts (int64) that only GrowthBackoff has. tf.contrib's `bad_steps` are
# its `spent_hysteresis`.
SPENT, SKIPPED = "spent_hysteresis", "skipped_steps"
COUNTS = (SPENT, "overflows", "steps_to_overflow", SKIPPED)
COUNT = TensorSpec("int64", ())

# What APIs call the variables of a loss scale -> what they mean. GrowthBackoff
# has further counts, which have one name everywhere.
MEANINGS = {
  "current_loss_scale": "value",  # compat.v1 and Keras 2.
  "loss_scale": "value",  # tf.contrib.
  object_graph.KERAS_3_MEMBERS[0]: "value",
  "good_steps": "good",
  object_graph.KERAS_3_MEMBERS[1]: "good",
  "bad_steps": "bad",
  SPENT: "bad",
}

# The dtypes that no weight or slot has, since no gradient has them.
INTEGERS = {
  f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
} | {"bool", "string"}
_POWER = re.compile(r"beta[0-9]_power")
# TensorFlow numbers equal names. No program has so many names that a number
# has more digits; such digits belong to the name.
_NUMBERED = re.compile(r"(.*)_([0-9]{1,18})", re.DOTALL)
# The scope of a part: a name, characters of `part`, and a number.
_PART = re.compile(r"(.*)/[part]*_?([0-9]+)", re.DOTALL)
AVERAGE = "ExponentialMovingAverage"  # What TensorFlow 1 calls an average.
DEBIASING = {"biased", "local_step"}  # What zero debiasing keeps beside one.
# Integer scalars that count steps.
STEPS = {"global_step", "save_counter"}
ACCUMULATION = {"accumulation/micro_batches"}  # The counter of `accumulate`.
MASTERS = "FP32-master-copy/"  # The scope of float32 copies of float16 weights.


class ScaleNames(NamedTuple):
  """The names of one loss scale's variables.

  Attributes:
    api: COMPAT or CONTRIB.
    scope: The scope of the variables, with its slash, or an empty string.
    names: The variables' names, in the order of `SCALE_TENSORS[api]`.
    counts: The names of GrowthBackoff's counts, in the order of `COUNTS`; ()
      for other loss scales.
  """

  api: str
  scope: str
  names: tuple[str, ...]
  counts: tuple[str, ...] = ()

  @property
  def all(self) -> tuple[str, ...]:
    return (*self.names, *self.counts)

  @property
  def parts(self) -> dict[str, str]:
    """What each variable means in any API -> its name."""
    bases = (*SCALE_TENSORS[self.api], *COUNTS[: len(self.counts)])
    return {get_meaning(b): name for b, name in zip(bases, self.all)}


class FoundScales(NamedTuple):
  """The loss scales among variables.

  Attributes:
    known: The loss scales, sorted by scope, API and number.
    unclear: Variables with names of a loss scale's variables, of which there
      are too many: only some can be a loss scale's.
    incomplete: The loss scales that lack counters, with the names that the
      counters would have. Each may as well be a variable of the user.
    counters: Variables named like counters of a loss scale that is not there.
    likely: Those of `incomplete` that are probably loss scales: the name
      `loss_scale` alone is too common.
  """

  known: list[ScaleNames]
  unclear: set[str]
  incomplete: list[ScaleNames]
  counters: set[str]
  likely: list[ScaleNames]


def get_meaning(base: str) -> str:
  """Returns what a loss scale's variable means: equal in all APIs."""
  return MEANINGS.get(base, base)


def group(
  items: Iterable[_T], get_key: Callable[[_T], _K]
) -> dict[_K, list[_T]]:
  """Returns each key -> the items that have the key, in their order."""
  groups: dict[_K, list[_T]] = {}
  for item in items:
    groups.setdefault(get_key(item), []).append(item)
  return groups


def list_keys(checkpoint: Checkpoint) -> dict[str, str]:
  """Returns the variables of any checkpoint by name: name -> key.

  In an object-based checkpoint, the object graph has the names.
  """
  graph = checkpoint.object_graph
  if graph is None:
    return {name: name for name in checkpoint.specs}
  keys: dict[str, str] = {}
  for node in graph.nodes:
    for attribute in node.attributes:
      name, key = attribute.full_name, attribute.checkpoint_key
      if not name or key not in checkpoint.specs:
        continue  # What is no variable has no name.
      if key.startswith("save_counter/"):
        continue
      if keys.setdefault(name, key) != key:
        raise CheckpointError(
          f"{checkpoint.prefix}: two variables in it are called {name}, so the "
          "name does not tell them apart: restore objects"
        )
  return keys


def split_scope(name: str) -> tuple[str, str]:
  """Returns a name's scope, with its slash, and the rest of the name."""
  head, slash, tail = name.rpartition("/")
  return head + slash, tail


def split_number(name: str) -> tuple[str, int]:
  """Splits `good_steps_1` into `good_steps` and 1; the number may be 0."""
  match = _NUMBERED.fullmatch(name)
  return (match[1], int(match[2])) if match else (name, 0)


def add_number(name: str, number: int) -> str:
  """Returns the name that `split_number` would split so."""
  return f"{name}_{number}" if number else name


def get_base(name: str) -> str:
  """Returns a name without its scope and number."""
  return split_number(split_scope(name)[1])[0]


def _is_cond(part: str) -> bool:
  return split_number(part)[0] == "cond"


def remove_conds(name: str) -> str:
  """Returns a name without the scopes of conds: `a/cond_1/b` -> `a/b`."""
  *scopes, last = name.split("/")
  return "/".join([part for part in scopes if not _is_cond(part)] + [last])


def split_cond(name: str) -> tuple[str, int | None]:
  """Removes the last scope of a cond, and returns its number: 0 for `cond`.

  `a/cond_1/b` becomes `a/b` and 1. A name without conds has the number None.
  """
  parts = name.split("/")
  for i in range(len(parts) - 2, -1, -1):
    if _is_cond(parts[i]):
      return "/".join(parts[:i] + parts[i + 1 :]), split_number(parts[i])[1]
  return name, None


def has_cond(name: str) -> bool:
  """Returns whether any scope of a name is a cond's."""
  return any(map(_is_cond, name.split("/")[:-1]))


def get_scope(name: str) -> str:
  """Returns the scope of a variable, without conds."""
  return split_scope(remove_conds(name))[0]


def is_power(name: str, tensor: TensorSpec | None = None) -> bool:
  """Returns whether a variable is called like a power of Adam or AdaMax.

  If dtype and shape are known: a power is a floating-point scalar.
  """
  if tensor is not None and (tensor.shape or tensor.dtype in INTEGERS):
    return False
  return bool(_POWER.fullmatch(get_base(name)))


def get_other_power(power: str) -> str:
  """Returns `beta2_power` for `beta1_power`, and the other way round."""
  scope, last = split_scope(power)
  other = {"beta1": "beta2", "beta2": "beta1"}.get(last[:5], last[:5])
  return scope + other + last[5:]


def is_global_step(name: str) -> bool:
  """Returns whether a variable is called like the global step, in any scope."""
  return split_scope(name)[1] == "global_step"


def is_named_like_scale(name: str, tensor: TensorSpec) -> bool:
  """Returns whether a variable is a scalar with the name of a loss scale's."""
  if tensor.shape:
    return False
  base = get_base(name)
  return any(base in tensors for tensors in SCALE_TENSORS.values())


def find_scales(tensors: Mapping[str, TensorSpec]) -> FoundScales:
  """Finds the loss scales among variables by their names.

  A scope may have several loss scales of one API, numbered in the order of
  creation: `current_loss_scale_1` belongs to `good_steps_1`. If the scope has
  more variables of one name than of another, the user has a variable with such
  a name, and the names do not show which:

      s/current_loss_scale, s/good_steps, s/good_steps_1  ->  all unclear
  """
  # (scope, API) -> base name -> the variables, in the order of their numbers.
  found: dict[tuple[str, str], dict[str, list[str]]] = {}
  scalars = {name: spec for name, spec in tensors.items() if not spec.shape}
  for name, tensor in scalars.items():
    scope, last = split_scope(name)
    base = split_number(last)[0]
    for api, wanted in SCALE_TENSORS.items():
      is_count = api == COMPAT and base in COUNTS and tensor == COUNT
      if wanted.get(base) == tensor or is_count:
        members = found.setdefault((scope, api), {})
        members.setdefault(base, []).append(name)
  known: list[ScaleNames] = []
  incomplete: list[ScaleNames] = []
  unclear: set[str] = set()
  counters: set[str] = set()
  for scope, api in sorted(found):
    by_base = {
      base: sorted(members, key=get_number)
      for base, members in found[scope, api].items()
    }
    lists = [by_base.get(base, []) for base in SCALE_TENSORS[api]]
    sizes = set(map(len, lists))
    if len(sizes) == 1:  # As many of each name.
      further = [by_base.get(base, []) for base in COUNTS]
      if {len(members) for members in further} != sizes or api != COMPAT:
        further = []  # Some loss scale there is no GrowthBackoff.
      counts = list(zip(*further)) or [()] * len(lists[0])
      known += [
        ScaleNames(api, scope, each, more)
        for each, more in zip(zip(*lists), counts)
      ]
    elif 0 not in sizes:  # More of one name than of another.
      unclear.update(name for members in lists for name in members)
    elif sizes == {0, len(lists[0])}:  # Counters are missing.
      for i, first in enumerate(lists[0]):
        number = get_number(first)
        each = tuple(
          members[i] if members else scope + add_number(base, number)
          for members, base in zip(lists, SCALE_TENSORS[api])
        )
        if all(n not in tensors for n, m in zip(each, lists) if not m):
          incomplete.append(ScaleNames(api, scope, each))
    elif not lists[0]:  # There are counters alone.
      counters.update(name for members in lists for name in members)
  likely = [
    scale
    for scale in incomplete
    if scale.api == COMPAT or not scalars.keys().isdisjoint(scale.names[1:])
  ]
  return FoundScales(known, unclear, incomplete, counters, likely)


def get_number(name: str) -> int:
  """Returns the number in which a name ends; 0 if there is none."""
  return split_number(name)[1]


def sort_by_creation(
  names: Iterable[str], mixed: bool = False
) -> list[str] | None:
  """Sorts variables whose names are equal but for scopes and numbers.

  If they are `mixed`, what was made in conds was made first.

  Returns:
    The names in the order of creation; None if they do not tell it. Numbers
    do so within one scope, if all variables were made in conds, or none was.
  """
  listed = list(names)
  scopes = set(map(get_scope, listed))
  conds = [split_cond(name)[1] for name in listed]
  keys = [
    (cond is None, cond or 0, get_number(name))
    for cond, name in zip(conds, listed)
  ]
  is_mixed = None in conds and set(conds) != {None} and not mixed
  if len(scopes) > 1 or is_mixed or len(set(keys)) < len(keys):
    return None
  return [name for _, name in sorted(zip(keys, listed))]


def find_slots(
  names: Iterable[str], averages: bool = False
) -> Iterator[tuple[str, str]]:
  """Yields each name that looks like a slot's, with its variable's name.

  The slot of `w` is called `w/Adam`. Within a variable scope `s`, the slot of
  `s/w` is called `s/s/w/Adam`; if `s/w` is partitioned, each part has its own:
  `s/w//part_1/Adam` or `s/w/rt_1/Adam`. These are the last characters of
  `s/w/part_1`, as many as the scope has.
  """
  known = set(names)
  lengths = set(map(len, known))
  for name in known:
    head, _, last = name.rpartition("/")
    part = _PART.fullmatch(head)
    whole = head.removesuffix(f"/part_{part[2]}").rstrip("/") if part else head
    begin = 0  # Of the variable's name, which is tried after each slash.
    if get_base(last) == AVERAGE and not averages:
      continue
    while begin < len(whole):
      if len(whole) - begin in lengths and whole[begin:] in known:
        yield name, whole[begin:]
        break
      begin = whole.find("/", begin) + 1 or len(whole)
    else:
      weight, number = (part[1], part[2]) if part else ("", "")
      tail = head[len(weight) + 1 :]
      if weight in known and f"{weight}/part_{number}".endswith(tail):
        yield name, weight


def group_slots(listed: Iterable[str]) -> dict[str, dict[str, list[str]]]:
  """Returns weight -> name of its slots without numbers -> these slots.

  Slots of one name are sorted by their numbers.
  """
  found: dict[str, dict[str, list[str]]] = {}
  slots = sorted(find_slots(listed), key=lambda pair: get_number(pair[0]))
  for slot, weight in slots:
    bases = found.setdefault(weight, {})
    bases.setdefault(get_base(slot), []).append(slot)
  return found
