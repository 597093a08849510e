"""Pairs variables of the program with variables of the checkpoint.

A pair needs a proof. Without a proof the variable stays undecided.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
from typing import NamedTuple
from typing import TypeAlias

_Predicate: TypeAlias = "Callable[[Item, Item], bool]"


class Item(NamedTuple):
  """A loss scale's variables, or one variable.

  Attributes:
    names: Their names.
    scope: The scope in which the optimizer or the loss scale was used; None if
      the names do not tell.
    serves: The model's variables whose updates depend on it, and their slots.
      Empty if nothing is known.
  """

  names: tuple[str, ...]
  scope: str | None
  serves: frozenset[str] = frozenset()


@dataclasses.dataclass
class Pairing:
  """What is known of items.

  Attributes:
    pairs: Item here -> (item there, the proof); an empty proof stands for
      equal names.
    missing: The items here that have no counterpart there.
    undecided: The items here with several candidates, or whose candidate fits
      several items here.
    left: The items there without a counterpart here.
  """

  pairs: dict[Item, tuple[Item, str]]
  missing: list[Item]
  undecided: list[Item]
  left: list[Item]

  @property
  def is_exact(self) -> bool:
    """Whether every item here has its own name there."""
    return (
      not self.missing
      and not self.undecided
      and all(
        item.names == other.names for item, (other, _) in self.pairs.items()
      )
    )

  def candidates(self, item: Item) -> list[Item]:
    """Returns the items there that an undecided one may be."""
    return [other for other in self.left if _is_possible(item, other)]


def pair(
  here: Sequence[Item],
  there: Sequence[Item],
  trained: tuple[frozenset[str], frozenset[str]],
  keeps_scope: bool,
) -> Pairing:
  """Finds the counterparts of items.

  Equal names count if all of them are equal on both sides and nothing speaks
  against it. Otherwise what counts is, in this order: the variables that an
  item serves; its scope, if there is one item in it on either side; that it is
  the only one.

  Args:
    here: Those of the program.
    there: Those of the checkpoint.
    trained: The variables that are trained here, and there.
    keeps_scope: Whether items stay in their scope, whatever the control flow.

  Returns:
    What is known.
  """
  by_names = {item.names: item for item in there}
  if {item.names for item in here} == set(by_names):
    same = [(item, by_names[item.names]) for item in here]
    if not any(_differ(*pair, there, trained) for pair in same):
      return Pairing({a: (b, "") for a, b in same}, [], [], [])
  result = Pairing({}, [], list(here), list(there))

  def are_alike(here: Item, there: Item) -> bool:
    return not _differ(here, there, (), trained)

  _pair_by_serves(result, are_alike)
  _pair_by_scope(result, are_alike)
  _pair_the_only(result, are_alike, keeps_scope)
  for item in list(result.undecided):
    if not result.candidates(item):
      result.undecided.remove(item)
      result.missing.append(item)
  return result


def _differ(
  here: Item,
  there: Item,
  others: Iterable[Item],
  trained: tuple[frozenset[str], frozenset[str]],
) -> bool:
  """Returns whether two items are proven to be of different optimizers.

  They are if what only one of them serves is trained without it on the other
  side, or if another item serves just the same as the one here.
  """
  if not here.serves or not there.serves or here.serves == there.serves:
    return False
  return any(other.serves == here.serves for other in others) or bool(
    (there.serves - here.serves) & trained[0]
    or (here.serves - there.serves) & trained[1]
  )


def _is_possible(here: Item, there: Item) -> bool:
  """Returns whether nothing proves that two items differ."""
  if not here.serves or not there.serves:
    return True
  return bool(here.serves & there.serves)


def _pair_by_serves(result: Pairing, are_alike: _Predicate) -> None:
  """Pairs items that serve the same variables, or some of the same."""
  for are_akin in (
    lambda a, b: a.serves == b.serves,
    lambda a, b: bool(a.serves & b.serves) and are_alike(a, b),
  ):
    akin = {
      item: [
        other for other in result.left if item.serves and are_akin(item, other)
      ]
      for item in result.undecided
    }
    for item, found in akin.items():
      if len(found) != 1:
        continue
      (other,) = found
      if sum(other in others for others in akin.values()) == 1:
        some = min(item.serves & other.serves, key=lambda n: (len(n), n))
        _add(result, item, other, f"the updates of {some} depend on it")


def _pair_by_scope(result: Pairing, are_alike: _Predicate) -> None:
  """Pairs items that are the only ones in their scope."""
  for scope in {item.scope for item in result.undecided} - {None}:
    here = [item for item in result.undecided if item.scope == scope]
    there = [item for item in result.left if item.scope == scope]
    if len(here) == len(there) == 1 and are_alike(here[0], there[0]):
      where = f"in the scope {scope}" if scope else "outside of scopes"
      _add(result, here[0], there[0], f"the only one {where}")


def _pair_the_only(
  result: Pairing, are_alike: _Predicate, keeps_scope: bool
) -> None:
  """Pairs what is left if it is one item here and one there."""
  if len(result.undecided) != 1 or len(result.left) != 1:
    return
  (here,), (there,) = result.undecided, result.left
  if keeps_scope and here.scope != there.scope:
    return
  if are_alike(here, there):
    _add(result, here, there, "the only candidate")


def _add(result: Pairing, here: Item, there: Item, proof: str) -> None:
  result.pairs[here] = (there, proof if here.names != there.names else "")
  result.undecided.remove(here)
  result.left.remove(there)
