# SPDX-License-Identifier: Apache-2.0
"""Knows what a pair of a mapping promises, for all that take a mapping.

A mapping has names of the program, each with the checkpoint's name for it:

    "w": "v"         `w` is called `v` there. Slots and averages go along:
                     `w/Adam` is `v/Adam`, and `s/s/w/Adam` is `s/s/v/Adam`
    "w": None        `w` and its slots get their initial values
    "new/": "old/"   all in the scope: weights, slots (also `new/new/w/Adam`),
                     averages, parts, powers and loss scales
    "": "old/"       the checkpoint has a scope around the program's names
    "new/": ""       the program has a scope around the checkpoint's names
    "new/": None     all in the scope gets initial values

A single name goes before a scope, a longer scope before a shorter one. Powers,
loss scales and steps may lie outside a scope that one side lacks.

`rename` gives the checkpoint's tensors the program's names before any other
rule looks at names: as if the old program had had the new scopes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import os
import re
from typing import Any
from typing import NamedTuple

from tf_compat_lossscale._core import slot_names
from tf_compat_lossscale.checkpoint import _targets
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint import reading
from tf_compat_lossscale.checkpoint._targets import Source
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import CheckpointError
from tf_compat_lossscale.checkpoint.reading import TensorSpec


class Renamed(NamedTuple):
  """A checkpoint whose scopes have the names of the program.

  The mapping has the single names, each with the name that `sources` has for
  it; the notes say what each scope matched.
  """

  sources: dict[str, Source]
  mapping: dict[str, Any]
  notes: list[str]


def rename(
  path: str,
  sources: Mapping[str, Source],
  mapping: Mapping[str, str | None],
  program: Mapping[str, TensorSpec] | None = None,
) -> Renamed:
  """Renames the tensors of a checkpoint; refuses scopes that match nothing.

  If the program's variables are known, one tensor may be for several of them.
  """
  scopes = _Scopes(sources, mapping, program)
  counts: Counter[str | None] = Counter()
  origins: dict[str, str] = {}
  firsts: dict[str, str] = {}

  def add(new: str, name: str) -> None:
    if origins.setdefault(new, name) != name:
      raise make_collision(path, new, origins[new], name)
    firsts.setdefault(name, new)

  for name in sources:
    for new in scopes.find_names(name):
      add(new, name)
      scope = _find_scope(new, mapping)
      is_told = scope is not None and scope == mapping[scope]
      is_moved = new != name or is_told
      counts[scope] += is_moved and scopes.is_wanted(new, name)
  singles: dict[str, str | None] = {}
  for here, there in mapping.items():
    if there and there in sources and there not in firsts:
      add(there, there)
    if not is_scope(here):
      singles[here] = firsts.get(there or "", there)
  scopes.check_singles(path)
  for name in scopes.find_fresh():
    singles.setdefault(name, None)
    counts[_find_scope(name, mapping)] += 1
  notes = []
  for here in filter(is_scope, mapping):
    shown = _targets.show_mapping({here: mapping[here]})
    if not counts[here]:
      raise CheckpointError(f"{path}: {shown} {scopes.explain(here)}")
    notes.append(f"{shown} decides on {counts[here]} variables")
  return Renamed(
    {
      new: sources[name]
      if new == name or program is None
      else dataclasses.replace(sources[name], why=_targets.MAPPED)
      for new, name in origins.items()
    },
    singles,
    notes,
  )


def preview(
  path: str | os.PathLike[str], mapping: Mapping[str, str | None]
) -> dict[str, str]:
  """Returns each new name that `convert` gives by a mapping -> the old name."""

  def attempt(checkpoint: Checkpoint) -> dict[str, str]:
    sources = _targets.list_sources(checkpoint)
    renamed = rename(checkpoint.prefix, sources, check(mapping))
    check_names(checkpoint.prefix, renamed.mapping, renamed.sources)
    for here, there in renamed.mapping.items():
      renamed.sources[here] = renamed.sources[there]
    return {n: s.key for n, s in renamed.sources.items() if n != s.key}

  return reading.read_consistently(path, attempt)


def check(
  mapping: Mapping[str, str | None] | None,
) -> Mapping[str, str | None]:
  """Returns a mapping, {} for None; raises an error if it is none."""
  if mapping is None:
    return {}
  wrong: Any = mapping
  if isinstance(mapping, Mapping):
    wrong = [
      (here, there)
      for here, there in mapping.items()
      if not isinstance(here, str)
      or not isinstance(there, (str, type(None)))
      or (there is not None and is_scope(here) != is_scope(there))
    ]
  if wrong or not isinstance(mapping, Mapping):
    raise CheckpointError(
      "mapping must be a dict from a variable's name to its name in the "
      "checkpoint, or from a scope to a scope (each ends in a slash or is ''), "
      f"or to None, but is or has {wrong!r}"
    )
  return mapping


def make_collision(path: str, new: str, old: str, other: str) -> Exception:
  """Returns the error for two variables that would have one name."""
  return CheckpointError(
    f"{path}: the mapping gives {old} the name {new}, which {other} would "
    f"have, too: give that another name, {_targets.show_map('NAME', other)}"
  )


def check_names(
  path: str,
  mapping: Mapping[str, str | None],
  there: Collection[str],
  here: Collection[str] | None = None,
) -> None:
  """Refuses names that the program, if it is known, or the file lacks."""
  for name, key in mapping.items():
    if here is not None and name not in here:
      near = _targets.suggest(name, here)
      raise CheckpointError(
        f"{path}: mapping names {name!r}{near}, which is no variable"
      )
    if key not in there and (here is None or key is not None):
      near = _targets.suggest(key or "", there)
      raise CheckpointError(
        f"{path}: mapping has {key!r}{near} for {name!r}, which is not in the "
        "checkpoint"
      )


def check_shared_slots(
  path: str,
  mapping: Mapping[str, str | None],
  here: Collection[str],
  there: Collection[str],
) -> list[str]:
  """Refuses a mapping by which optimizers change places without their slots.

  TensorFlow numbers slots of one name that several optimizers have for a
  weight: of two Adams, `w/Adam_2` and `w/Adam_3` are the second's. The mapping
  has single names, `here` and `there` are all names. Notes are returned.
  """
  moved: dict[int, int] = {}  # Number of an optimizer here -> there.
  for kind in ("beta1_power", "current_loss_scale", "loss_scale"):
    ours, theirs = (_sort_kind(kind, side) for side in (here, there))
    moved = moved or {
      i: theirs.index(key)
      for i, name in enumerate(ours)
      if (key := mapping.get(name)) in theirs
    }
  are_moved = any(i != j for i, j in moved.items())
  pairs: dict[str, str | None] = {}
  shared: dict[str, str] = {}
  named = names.group_slots(there)
  for weight, bases in names.group_slots(here).items():
    for base, ours in bases.items():
      theirs = named.get(weight, {}).get(base, [])
      roles = slot_names.ROLES.get(slot_names.ALIKE.get(base, base), ())
      most = max(map(len, roles), default=1)  # Of one optimizer.
      is_clear = len(ours) == len(theirs) == most * len(moved)
      loose = [i for i, name in enumerate(ours) if name not in mapping]
      if are_moved and max(len(ours), len(theirs)) > most:
        for i in loose:
          j = moved.get(i // most, 0) * most + i % most
          pairs[ours[i]] = theirs[j] if is_clear else "..."
      if roles and loose and len(ours) > most:
        shared[weight] = base
  if pairs:
    raise CheckpointError(
      f"{path}: the mapping lets optimizers change places, but not slots of "
      "weights that several of them train: give these, too, by "
      f"{_targets.show_choice(pairs)}"
    )
  return [
    f"several optimizers called {base} train "
    f"{', '.join(reading.shorten(listed, 3))}, and names do not tell their "
    "slots apart: they are right if the program "
    "that saved them made its optimizers in this order, else give the slots, "
    "powers and loss scales of each by mapping"
    for base, listed in names.group(sorted(shared), shared.get).items()
  ]


def _sort_kind(kind: str, listed: Iterable[str]) -> list[str]:
  """Returns the names of a kind in the order of creation, if that is known."""
  found = [name for name in listed if names.get_base(name) == kind]
  return names.sort_by_creation(found, mixed=True) or []


def is_scope(name: str) -> bool:
  """Returns whether a name of a mapping means all names in a scope."""
  return name[-1:] in ("", "/")


def find_there(name: str, mapping: Mapping[str, str | None]) -> str | None:
  """Returns what a mapping calls a variable; None if it is to start anew."""
  scope = _find_scope(name, mapping)
  if scope is None:
    return mapping.get(name, name)
  there = mapping[scope]
  return None if there is None else there + name[len(scope) :]


def _list_scopes(name: str) -> Iterator[str]:
  """Yields the scopes of a name, the longest first and "" at last."""
  while name:
    name = name[: name.rfind("/", 0, -1) + 1]
    yield name


def _find_scope(name: str, mapping: Mapping[str, str | None]) -> str | None:
  """Returns the scope in a mapping that decides on a name."""
  scopes = () if name in mapping else _list_scopes(name)
  return next((scope for scope in scopes if scope in mapping), None)


def _split_slot(name: str, weight: str) -> tuple[str, str]:
  """Returns what a slot's name has before and after its weight's name."""
  begin = name.rfind(f"{weight}/")
  return name[:begin], name[begin + len(weight) :]


def _get_end(name: str, weight: str) -> tuple[str, str]:
  """Returns a slot's weight, and the end of its name.

  The characters before the number of a part depend on the scope's length.
  """
  return weight, re.sub(
    r"/[part]*_?([0-9]+/)", r"/\1", _split_slot(name, weight)[1]
  )


def _is_made(name: str, spec: TensorSpec) -> bool:
  """Returns whether a variable is a power, a loss scale's, or a step."""
  is_step = not spec.shape and names.split_scope(name)[1] in names.STEPS
  is_scale = names.is_named_like_scale(name, spec)
  return is_step or is_scale or names.is_power(name, spec)


def _find_made(specs: Mapping[str, TensorSpec]) -> dict[str, str]:
  """Returns what is made besides models -> its scope, without conds."""
  made = (name for name, spec in specs.items() if _is_made(name, spec))
  return {name: names.get_scope(name) for name in made}


def _find_scopes(here: str, there: str) -> tuple[str, str]:
  """Returns the scopes of two names, without the parts that both end in."""
  ours, theirs = here.split("/")[:-1], there.split("/")[:-1]
  while ours and theirs and ours[-1] == theirs[-1]:
    ours.pop()
    theirs.pop()
  return "/".join([*ours, ""]), "/".join([*theirs, ""])


class _Scopes:
  """Finds the new names of tensors, by the rules of the module."""

  def __init__(
    self,
    sources: Mapping[str, Source],
    mapping: Mapping[str, str | None],
    program: Mapping[str, TensorSpec] | None,
  ) -> None:
    self._sources, self._mapping = sources, mapping
    self._is_known, self._program = program is not None, program or {}
    self._heres = names.group(
      filter(is_scope, mapping), lambda here: mapping[here]
    )
    self._owners = dict(names.find_slots(sources, averages=True))
    self._slots = dict(names.find_slots(self._program, averages=True))
    # The program's slots by weight and by the end of their names.
    self._ends = names.group(self._slots, lambda n: _get_end(n, self._slots[n]))
    self._made_in = set(_find_made(self._program).values())

  def find_names(self, name: str) -> list[str]:
    """Returns the new names of a tensor; [] if its name is another's now."""
    owner = self._owners.get(name)
    if owner is not None:
      news = list(self._move_slot(name, owner))
    else:
      news = self._move(name)
    if not self._is_known or len(news) < 2:
      return news
    likely = [new for new in news if new in self._program]
    if not likely and _is_made(name, self._sources[name].spec):
      likely = [new for new in news if names.get_scope(new) in self._made_in]
    return likely or news[:1]

  def _move(self, name: str) -> list[str]:
    """Returns the new names of what is no slot."""
    is_made = _is_made(name, self._sources[name].spec)
    if not self._is_known and name in self._mapping.values():
      return [name]  # It gets a single name.
    news: list[str] = []
    for there in _list_scopes(name):
      if self._is_known or not (news or (is_made and not there)):
        moved = (
          (h, h + name[len(there) :]) for h in self._heres.get(there, ())
        )
        news += [n for h, n in moved if _find_scope(n, self._mapping) == h]
    stays = not news and (is_made or not self._is_known)
    if self._is_known and _find_scope(name, self._mapping) is None:
      stays = True
    return news + [name] * stays

  def _move_slot(self, name: str, owner: str) -> Iterator[str]:
    """Yields the new names of a slot or an average: those of its weight."""
    mapping = self._mapping
    before, after = _split_slot(name, owner)
    is_doubled = before and owner.startswith(before)
    inside = names.split_scope(owner.removeprefix(before))[0]
    singles = [
      here
      for here, there in mapping.items()
      if there and owner in (there, self._owners.get(there, ""))
    ]
    weights = [new for new in self._move(owner) if new not in mapping]
    for weight in [
      *singles,
      *(weights if self._is_known or not singles else ()),
    ]:
      scope = names.split_scope(weight)[0]
      if is_doubled and f"/{scope}".endswith(f"/{inside}"):
        front = scope.removesuffix(inside)
      else:
        front = next(iter(self._shift(before)), before)
      new = front + weight + after
      others = self._ends.get((weight, _get_end(name, owner)[1]), ())
      if new not in self._program and len(others) == 1:
        new = others[0]
      if new not in mapping:
        yield new

  def _shift(self, scope: str) -> Iterator[str]:
    """Yields the new names of a scope."""
    for there in [scope, *_list_scopes(scope)]:
      for here in self._heres.get(there, ()) if there else ():
        yield here + scope[len(there) :]

  def is_wanted(self, new: str, name: str) -> bool:
    """Returns whether the program has, or may have, a variable of that name."""
    is_made = _is_made(name, self._sources[name].spec)
    return not self._is_known or is_made or new in self._program

  def find_fresh(self) -> Iterator[str]:
    """Yields the program's variables that are to start anew."""
    for name in self._program:
      owner = self._slots.get(name, name)
      ends = [find_there(each, self._mapping) for each in (name, owner)]
      if ends[0] is None or (ends[1] is None and name not in self._mapping):
        yield name

  def check_singles(self, path: str) -> None:
    """Refuses to take weights alone from a scope, if both have powers."""
    specs = {name: source.spec for name, source in self._sources.items()}
    made_there = _find_made(specs).values()
    made = _find_made(self._program if self._is_known else specs)
    for here, there in self._mapping.items():
      ours, theirs = _find_scopes(here, there or here)
      is_told = any(made.get(name) == ours for name in self._mapping)
      if ours == theirs or is_scope(here) or is_told:
        continue
      if ours in made.values() and theirs in made_there:
        raise CheckpointError(
          f"{path}: the mapping takes {here} from another scope, but not the "
          "powers and loss scales there: give these, too, or the scope, "
          f"{_targets.show_mapping({ours: theirs})}"
        )

  def explain(self, here: str) -> str:
    """Returns why a scope matches nothing, with the nearest scope."""
    there = self._mapping[here]
    for scope, known, what in (
      (there, self._sources, "the checkpoint"),
      (here, self._program or [here], "the program"),
    ):
      if scope and not any(name.startswith(scope) for name in known):
        scopes = {each for name in known for each in _list_scopes(name)}
        return (
          f"matches nothing: {what} has no scope {scope!r}"
          f"{_targets.suggest(scope, scopes - {''})}"
        )
    return "matches nothing: no name is in both scopes"
