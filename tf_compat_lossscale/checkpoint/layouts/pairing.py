# SPDX-License-Identifier: Apache-2.0
"""Pairs items of the program with items of the checkpoint, each with a proof.

An item is one variable whose name does not decide, or the variables of one loss
scale. For example, a program has two optimizers with a loss scale, and its
checkpoint was written under the other control flow:

    program        serves       checkpoint            serves
    beta1_power    w0, w0/Adam  gen/cond_1/beta1_power   w1
    beta1_power_1  w1, w1/Adam  disc/cond_1/beta1_power  w0

The names suggest pairs in the order of the lines. But the updates of `w1`
depend on `beta1_power_1` in the program, and on `gen/cond_1/beta1_power` in the
checkpoint. So these two are a pair. The method:

1. If both sides have the same names, and no evidence speaks against it, equal
   names are pairs.
2. Otherwise items are pairs that serve the same variables, or some of the same.
3. Of the rest, items are pairs that are the only ones in a scope.
4. If one item is left on each side, these two are a pair.
5. An item that is left is undecided if it has candidates, and missing if not.

Evidence always wins: items that are proven to differ are no pair in any step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
from typing import NamedTuple
from typing import TypeAlias

from tf_compat_lossscale.checkpoint.layouts import names

_Predicate: TypeAlias = "Callable[[Item, Item], bool]"


class Item(NamedTuple):
  """One variable, or the variables of one loss scale.

  Attributes:
    names: The names of the variables.
    scope: The scope in which the optimizer or the loss scale was used; None if
      the names do not tell.
    serves: The weights and slots whose updates depend on the item; empty if
      nothing is known.
  """

  names: tuple[str, ...]
  scope: str | None
  serves: frozenset[str] = frozenset()


@dataclasses.dataclass
class Pairing:
  """The pairs that were found, and the items without a pair.

  Attributes:
    pairs: Item of the program -> (item of the checkpoint, the proof). The proof
      is empty if the names are equal.
    missing: The items of the program for which the checkpoint has nothing.
    undecided: The items of the program with several candidates, or with one
      candidate that several items want.
    left: The items of the checkpoint without a pair.
  """

  pairs: dict[Item, tuple[Item, str]]
  missing: list[Item]
  undecided: list[Item]
  left: list[Item]

  @property
  def is_exact(self) -> bool:
    """Whether every item of the program has a pair with its own names."""
    return (
      not self.missing
      and not self.undecided
      and all(
        item.names == other.names for item, (other, _) in self.pairs.items()
      )
    )

  def list_candidates(self) -> list[Item]:
    """Returns the items left in the checkpoint that an undecided one may be."""
    return _filter_possible(self.left, self.undecided)

  def add(self, found: Mapping[Item, tuple[Item, str]]) -> None:
    """Adds pairs, as `pairs` has them, of items that are left."""
    for here, (there, proof) in found.items():
      self.pairs[here] = (there, proof if here.names != there.names else "")
    taken = {there for there, _ in found.values()}
    self.undecided = [item for item in self.undecided if item not in found]
    self.left = [item for item in self.left if item not in taken]


def find_pairs(
  here: Sequence[Item],
  there: Sequence[Item],
  trained: tuple[frozenset[str], frozenset[str]],
  keeps_scope: bool,
) -> Pairing:
  """Finds the pairs, by the steps that the module's docstring lists.

  Args:
    here: The items of the program.
    there: The items of the checkpoint.
    trained: The variables that the program trains, and those that the program
      that wrote the checkpoint trained.
    keeps_scope: Whether the scope of an item is the same in every layout, so
      that the last two items are no pair if their scopes differ.

  Returns:
    The pairs, and the items without a pair.
  """
  by_names = {item.names: item for item in there}
  if {item.names for item in here} == set(by_names):
    same = {item: by_names[item.names] for item in here}
    # Equal names are no pair if another name serves the same variables there.
    served = {item.serves for item in there}
    if not any(
      _differ(a, b, trained) or (a.serves != b.serves and a.serves in served)
      for a, b in same.items()
      if a.serves and b.serves
    ):
      return Pairing({a: (b, "") for a, b in same.items()}, [], [], [])
  result = Pairing({}, [], list(here), list(there))

  def may_be_equal(here: Item, there: Item) -> bool:
    return not _differ(here, there, trained)

  _pair_by_served_variables(result, may_be_equal)
  _pair_by_scope(result, may_be_equal)
  _pair_last_two(result, may_be_equal, keeps_scope)
  possible = dict.fromkeys(_filter_possible(result.undecided, result.left))
  result.missing = [item for item in result.undecided if item not in possible]
  result.undecided = list(possible)
  return result


def _differ(
  here: Item, there: Item, trained: tuple[frozenset[str], frozenset[str]]
) -> bool:
  """Returns whether two items are proven to belong to different optimizers.

  The proof: one item serves a variable that the other side trains without the
  other item.
  """
  if not here.serves or not there.serves:
    return False
  return bool(
    (there.serves - here.serves) & trained[0]
    or (here.serves - there.serves) & trained[1]
  )


def is_possible(here: Item, there: Item) -> bool:
  """Returns whether two items serve a common variable, as far as is known."""
  if not here.serves or not there.serves:
    return True
  return bool(here.serves & there.serves)


def _filter_possible(items: list[Item], others: list[Item]) -> list[Item]:
  """Returns the items that may be one of `others`."""
  # It is enough to compare with one item that serves all that `others` serve.
  if others and all(other.serves for other in others):
    served = frozenset().union(*(other.serves for other in others))
  else:
    served = frozenset()
  all_of_them = Item((), None, served)
  return [i for i in items if others and is_possible(i, all_of_them)]


def _pair_by_served_variables(
  result: Pairing, may_be_equal: _Predicate
) -> None:
  """Pairs items that serve the same variables, then some of the same."""
  left = names.group(result.left, lambda item: item.serves)
  _pair_similar(result, lambda item: set(left.get(item.serves, ())))
  servants: dict[str, list[Item]] = {}
  for other in result.left:
    for name in other.serves:
      servants.setdefault(name, []).append(other)
  _pair_similar(
    result,
    lambda item: {
      other
      for name in item.serves
      for other in servants.get(name, ())
      if may_be_equal(item, other)
    },
  )


def _pair_similar(
  result: Pairing, find_similar: Callable[[Item], set[Item]]
) -> None:
  """Pairs items that serve variables and are similar to each other alone."""
  similar = {
    item: find_similar(item) for item in result.undecided if item.serves
  }
  counts = Counter(itertools.chain(*similar.values()))
  found = {}
  for item, others in similar.items():
    if len(others) == 1 and counts[other := others.pop()] == 1:
      some = min(item.serves & other.serves, key=lambda n: (len(n), n))
      found[item] = (other, f"the updates of {some} depend on it")
  result.add(found)


def _pair_by_scope(result: Pairing, may_be_equal: _Predicate) -> None:
  """Pairs items that are the only ones in their scope on both sides."""
  left = names.group(result.left, lambda item: item.scope)
  found = {}
  groups = names.group(result.undecided, lambda item: item.scope)
  for scope, here in groups.items():
    there = left.get(scope, [])
    if scope is None or not len(here) == len(there) == 1:
      continue
    if may_be_equal(here[0], there[0]):
      where = f"in the scope {scope}" if scope else "outside of scopes"
      found[here[0]] = (there[0], f"the only one {where}")
  result.add(found)


def _pair_last_two(
  result: Pairing, may_be_equal: _Predicate, keeps_scope: bool
) -> None:
  """Pairs the last two items, if one item is left on each side."""
  if len(result.undecided) != 1 or len(result.left) != 1:
    return
  (here,), (there,) = result.undecided, result.left
  if keeps_scope and here.scope != there.scope:
    return
  if may_be_equal(here, there):
    result.add({here: (there, "the only candidate")})
