# SPDX-License-Identifier: Apache-2.0
"""Tells apart the slots of several optimizers of one name on one variable.

TensorFlow numbers such slots in the order of creation. If one program creates
`opt_a` first and another `opt_b`, equal names are slots of other optimizers:

    slots of w            program          checkpoint
    w/Adam, w/Adam_1      opt_a's m, v     opt_b's m, v
    w/Adam_2, w/Adam_3    opt_b's m, v     opt_a's m, v

The graphs show the *owner* of a slot: the optimizer whose ops update it. Owners
are pairs by what they alone have in common on both sides, in this order:

1. Slots that the caller's mapping gives to each other.
2. A weight that the optimizer trains, or all such weights.
3. A variable or placeholder that its updates are computed from, or all such.
4. The scope in which it applies gradients.
5. If one owner is left on each side, these two are a pair.
6. Owners that nothing tells apart are pairs if their slots have equal names, as
   TensorFlow's Saver pairs them; but not if their settings (such as learning
   rates) or their ops suggest other pairs.

If the evidence of one side is missing, slots are pairs if the checkpoint has
all names of the program. All else is undecided.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
from typing import TypeVar

from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts.evidence import Owner
from tf_compat_lossscale.checkpoint.layouts.inventory import Inventory

_T = TypeVar("_T")

# The name of an optimizer of TensorFlow 1, which its slots have -> what Keras
# calls the slots, in the order of their numbers. Some optimizers have
# alternatives.
ROLES: dict[str, tuple[tuple[str, ...], ...]] = {
  "Adadelta": (("accum_grad", "accum_var"),),
  "Adagrad": (("accumulator",),),
  "Adam": (("m", "v"),),
  "AdaMax": (("m", "v"),),
  "Ftrl": (("accumulator", "linear"),),
  "Momentum": (("momentum",),),
  "RMSProp": (("rms", "momentum"), ("rms", "mg", "momentum")),
}
# The same -> the most slots for a variable. Others have one, as far as names
# tell.
_MOST_SLOTS = {name: len(roles[-1]) for name, roles in ROLES.items()} | {
  "AdagradDA": 2
}
# How two optimizers were found to be one, by what they alone have in common.
_PROOFS = (
  "the mapping says so",
  "its optimizer also trains {}",
  "its optimizer trains the same weights",
  "its updates are computed from {}",
  "its updates are computed from the same variables",
  "its optimizer is the only one in the scope '{}'",
)


@dataclasses.dataclass
class SlotPairs:
  """The pairs of slots of contested families.

  Attributes:
    keys: Slot of the program -> its name in the checkpoint; None if the slot is
      proven to be in the checkpoint under no name.
    proofs: Slot of the program -> the proof, if the names differ.
    undecided: The slots without a proof, and their candidates.
    unproven: The slots that are pairs by equal names alone, without evidence.
  """

  keys: dict[str, str | None] = dataclasses.field(default_factory=dict)
  proofs: dict[str, str] = dataclasses.field(default_factory=dict)
  undecided: list[tuple[list[str], list[str]]] = dataclasses.field(
    default_factory=list
  )
  unproven: list[str] = dataclasses.field(default_factory=list)


def find_kind(roles: Set[str]) -> str | None:
  """Returns the optimizer whose slots Keras calls so: a key of `ROLES`."""
  for kind, (*_, most) in ROLES.items():
    if roles == set(most) or (kind == "RMSProp" and "rms" in roles <= {*most}):
      return kind
  return None


def find_contested(here: Inventory, there: Inventory) -> list[names.Family]:
  """Returns the families in which a name may be another optimizer's there.

  Without evidence, names tell how many optimizers there are at least.
  """
  families = there.families
  return [
    family
    for family, ours in here.families.items()
    if family in families
    and _is_contested(here, there, ours, families[family], family.base)
  ]


def _is_contested(
  here: Inventory,
  there: Inventory,
  ours: list[str],
  theirs: list[str],
  base: str,
) -> bool:
  if len(ours) == len(theirs) == 1:
    return False
  count, count_there = (
    count_owners(here, ours, base),
    count_owners(there, theirs, base),
  )
  if count != 1:
    return True
  return count_there != 1 and not (
    count_there is None and set(theirs) <= set(ours)
  )


def count_owners(
  inventory: Inventory, slots: list[str], base: str
) -> int | None:
  """Returns how many optimizers a family's slots have; None if unknown."""
  owners = inventory.find_owners(slots)
  if len(owners) == len(slots):
    return len({owner.number for owner in owners.values()})
  is_one = inventory.trains_once or len(slots) <= _MOST_SLOTS.get(base, 1)
  return 1 if is_one else None


def pair_slots(
  here: Inventory,
  there: Inventory,
  decided: Mapping[str, str],
  all_equal: bool,
) -> SlotPairs:
  """Pairs the slots of contested families.

  Args:
    here: The variables of the program.
    there: The variables of the checkpoint.
    decided: Slot of the program -> its name in the checkpoint, as the caller
      decided.
    all_equal: Whether the checkpoint has all names of the program, so that
      TensorFlow's Saver would restore it. Only then names may decide without
      evidence.

  Returns:
    The pairs.
  """
  result = SlotPairs()
  for family in find_contested(here, there):
    ours, theirs = here.families[family], there.families[family]
    owners, owners_there = here.find_owners(ours), there.find_owners(theirs)
    taken = {decided[slot] for slot in ours if slot in decided}
    if len(owners) == len(ours) and len(owners_there) == len(theirs):
      weights = here.weights & there.weights
      same = {slot: slot for slot in theirs}
      _pair_by_owners(
        result,
        list(_group(ours, owners, here.renamed, decided, weights)),
        list(_group(theirs, owners_there, {}, same, weights)),
      )
    elif all_equal and set(ours) == set(theirs) and not taken:
      result.keys.update((slot, slot) for slot in ours)
      result.unproven += ours
    else:
      left = [slot for slot in ours if slot not in decided]
      candidates = [slot for slot in theirs if slot not in taken]
      result.undecided.append((left, candidates))
  return result


@dataclasses.dataclass(eq=False)
class _Group:
  """The slots of one optimizer in a family.

  Attributes:
    slots: The slots, in the order of their creation.
    owner: The optimizer.
    trains: The weights that the optimizer trains, by the names that they have
      in the checkpoint.
    features: For each of `_PROOFS`, what may tell the optimizer from others.
  """

  slots: tuple[str, ...]
  owner: Owner
  trains: frozenset[str]
  features: tuple[Iterable[str], ...]


def _group(
  slots: Iterable[str],
  owners: Mapping[str, Owner],
  renamed: Mapping[str, str],
  decided: Mapping[str, str],
  weights: frozenset[str],
) -> Iterator[_Group]:
  """Yields the slots of each optimizer.

  Args:
    slots: The slots.
    owners: Slot -> its optimizer.
    renamed: Name -> the name in the checkpoint, if it differs.
    decided: Slot -> its name in the checkpoint, as far as it is decided.
    weights: The weights that both sides have.
  """
  for members in names.group(slots, lambda slot: owners[slot].number).values():
    owner = owners[members[0]]
    trains, reads = (
      weights.intersection(renamed.get(name, name) for name in found)
      for found in (owner.trains, owner.reads)
    )
    reads |= owner.feeds
    features: tuple[Iterable[str], ...] = (
      [decided[slot] for slot in members if slot in decided],
      trains,
      [", ".join(sorted(trains))],
      reads,
      [", ".join(sorted(reads))],
      [] if owner.scope is None else [owner.scope],
    )
    yield _Group(tuple(members), owner, trains, features)


def _pair_by_owners(
  result: SlotPairs,
  here: list[_Group],
  there: list[_Group],
) -> None:
  """Pairs the slots of a family by the steps of the module's docstring.

  Args:
    result: The pairs to add to.
    here: The slots of each optimizer of the program.
    there: The slots of each optimizer of the checkpoint.
  """
  trained, trained_there = (
    {name for group in side for name in group.trains} for side in (here, there)
  )
  left, left_there = list(here), list(there)

  def differ(a: _Group, b: _Group) -> bool:
    return bool(
      (a.trains - b.trains) & trained_there or (b.trains - a.trains) & trained
    )

  def add(a: _Group, b: _Group, proof: str) -> None:
    left.remove(a)
    left_there.remove(b)
    for slot, key in zip(a.slots, b.slots):
      result.keys[slot] = key
      if slot != key:
        result.proofs[slot] = proof

  conflict = False
  for step, proof in enumerate(_PROOFS):
    votes = _vote(left, left_there, step)
    for (a, b), feature in votes.items():
      rivals = [pair for pair in votes if (pair[0] is a) != (pair[1] is b)]
      conflict |= bool(rivals)
      fits = len(a.slots) == len(b.slots) and not differ(a, b)
      if not rivals and (fits or not step):  # The mapping is not doubted.
        add(a, b, proof.format(feature))
  if len(left) == len(left_there) == 1 and not conflict:
    (a,), (b,) = left, left_there
    if len(a.slots) == len(b.slots) and not differ(a, b):
      add(a, b, "the only candidate")
  names_there = {group.slots: group for group in left_there}
  same = [(a, names_there[a.slots]) for a in left if a.slots in names_there]
  if (
    len(same) == len(left) == len(left_there)
    and not conflict
    and not any(differ(*pair) for pair in same)
    and not _is_denied(same)
  ):
    for a, b in same:
      add(a, b, "")
  for a in list(left):
    if all(differ(a, b) for b in left_there):
      left.remove(a)
      result.keys.update(dict.fromkeys(a.slots))
  if left:
    ours = [slot for group in left for slot in group.slots]
    theirs = [slot for group in left_there for slot in group.slots]
    result.undecided.append((ours, theirs))


def _vote(
  here: Sequence[_Group], there: Sequence[_Group], step: int
) -> dict[tuple[_Group, _Group], str]:
  """Returns the pairs that alone share a feature of a step -> the feature."""
  holders: tuple[dict[str, list[_Group]], ...] = ({}, {})
  for side, groups in zip(holders, (here, there)):
    for group in groups:
      for feature in group.features[step]:
        side.setdefault(feature, []).append(group)
  votes: dict[tuple[_Group, _Group], str] = {}
  for feature in sorted(holders[0], key=lambda text: (len(text), text)):
    found, found_there = holders[0][feature], holders[1].get(feature, [])
    if len(found) == len(found_there) == 1:
      votes.setdefault((found[0], found_there[0]), feature)
  return votes


def _is_denied(pairs: list[tuple[_Group, _Group]]) -> bool:
  """Returns whether settings or ops suggest other pairs than these.

  Settings and ops may change from one program to the next. So they deny pairs
  only if each group has those of another group on the other side.
  """

  def are_others(get: Callable[[_Group], _T]) -> bool:
    here, there = ([get(pair[i]) for pair in pairs] for i in (0, 1))
    return (
      len(set(here)) == len(pairs) and set(here) == set(there) and here != there
    )

  return are_others(lambda group: group.owner.settings) or are_others(
    lambda group: group.owner.types
  )
