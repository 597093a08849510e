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
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import itertools
from typing import NamedTuple
from typing import TypeAlias

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

  def get_candidates(self, item: Item) -> list[Item]:
    """Returns the items left in the checkpoint that `item` may be."""
    return [other for other in self.left if _is_possible(item, other)]


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
    same = [(item, by_names[item.names]) for item in here]
    if not any(_differ(*pair, there, trained) for pair in same):
      return Pairing({a: (b, "") for a, b in same}, [], [], [])
  result = Pairing({}, [], list(here), list(there))

  def may_be_equal(here: Item, there: Item) -> bool:
    return not _differ(here, there, (), trained)

  _pair_by_served_variables(result, may_be_equal)
  _pair_by_scope(result, may_be_equal)
  _pair_last_two(result, may_be_equal, keeps_scope)
  for item in list(result.undecided):
    if not result.get_candidates(item):
      result.undecided.remove(item)
      result.missing.append(item)
  return result


def _differ(
  here: Item,
  there: Item,
  others: Iterable[Item],
  trained: tuple[frozenset[str], frozenset[str]],
) -> bool:
  """Returns whether two items are proven to belong to different optimizers.

  There are two proofs. One item serves a variable that the other side trains
  without the other item. Or one of `others` serves exactly what `here` serves.
  """
  if not here.serves or not there.serves or here.serves == there.serves:
    return False
  return any(other.serves == here.serves for other in others) or bool(
    (there.serves - here.serves) & trained[0]
    or (here.serves - there.serves) & trained[1]
  )


def _is_possible(here: Item, there: Item) -> bool:
  """Returns whether two items serve a common variable, as far as is known."""
  if not here.serves or not there.serves:
    return True
  return bool(here.serves & there.serves)


def _pair_by_served_variables(
  result: Pairing, may_be_equal: _Predicate
) -> None:
  """Pairs items that serve the same variables, then some of the same."""
  left = _group(result.left, lambda item: item.serves)
  _pair_similar(result, lambda item: left.get(item.serves, []))
  _pair_similar(
    result,
    lambda item: [
      other
      for other in result.left
      if item.serves & other.serves and may_be_equal(item, other)
    ],
  )


def _pair_similar(
  result: Pairing, find_similar: Callable[[Item], list[Item]]
) -> None:
  """Pairs items that serve variables and are similar to each other alone."""
  similar = {
    item: find_similar(item) for item in result.undecided if item.serves
  }
  counts = Counter(itertools.chain(*similar.values()))
  for item, found in similar.items():
    if len(found) == 1 and counts[found[0]] == 1:
      some = min(item.serves & found[0].serves, key=lambda n: (len(n), n))
      _add_pair(result, item, found[0], f"the updates of {some} depend on it")


def _pair_by_scope(result: Pairing, may_be_equal: _Predicate) -> None:
  """Pairs items that are the only ones in their scope on both sides."""
  left = _group(result.left, lambda item: item.scope)
  for scope, here in _group(result.undecided, lambda item: item.scope).items():
    there = left.get(scope, [])
    if scope is None or not len(here) == len(there) == 1:
      continue
    if may_be_equal(here[0], there[0]):
      where = f"in the scope {scope}" if scope else "outside of scopes"
      _add_pair(result, here[0], there[0], f"the only one {where}")


def _group(
  items: Iterable[Item], key: Callable[[Item], Hashable]
) -> dict[Hashable, list[Item]]:
  """Groups items by a key."""
  groups: dict[Hashable, list[Item]] = {}
  for item in items:
    groups.setdefault(key(item), []).append(item)
  return groups


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
    _add_pair(result, here, there, "the only candidate")


def _add_pair(result: Pairing, here: Item, there: Item, proof: str) -> None:
  result.pairs[here] = (there, proof if here.names != there.names else "")
  result.undecided.remove(here)
  result.left.remove(there)
