# SPDX-License-Identifier: Apache-2.0
"""Finds the value of each variable in a checkpoint by its name.

Some names depend on the API or on conds (see `names`): they may be another
optimizer's in the checkpoint. These are variables of one kind: loss scales,
`beta1_power`, `beta2_power`, and others that optimizers make in conds. A kind
is decided on as a whole, by the first rule that applies:

1. Program and checkpoint have the same names of that kind: equal names.
2. There is one target and one candidate, or one of each in every scope.
3. There is an error. It lists targets and candidates, and the mapping in the
   order of creation. If the caller says `same_order`, that mapping is used.

`_targets.check_powers` looks at the values, and refuses another optimizer's.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import itertools

from tf_compat_lossscale.checkpoint import _targets
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint import pairs as _pairs
from tf_compat_lossscale.checkpoint._targets import Source
from tf_compat_lossscale.checkpoint._targets import Target
from tf_compat_lossscale.checkpoint._targets import Undecided
from tf_compat_lossscale.checkpoint._targets import Wishes
from tf_compat_lossscale.checkpoint.names import ScaleNames
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import MOST
from tf_compat_lossscale.checkpoint.reading import TensorSpec

_PARTIAL = "the checkpoint has a loss scale without its variable"
_NOT_COUNTED = "that loss scale has no such count; it starts from 0"
_SAME_ORDER = "same_order says so"
_ONLY = "the only {} in the checkpoint"
_ONLY_IN_SCOPE = "the only {} in its scope"


class Matching:
  """A search for sources, whose steps each decide on some targets.

  The steps are in `run`: what the caller's mapping says, loss scales, powers of
  Adam, and the rest. A target is taken, starts from its initial value, is
  missing, does not fit, or is undecided. The last three end in one error.

  Attributes:
    here: The names of the targets that nothing is decided about yet.
    there: The same of the checkpoint.
  """

  def __init__(
    self,
    checkpoint: Checkpoint,
    targets: Sequence[Target],
    sources: Mapping[str, Source],
    wishes: Wishes,
    others: Iterable[Target] = (),
    order: Iterable[str] = (),
  ) -> None:
    """Makes a search; targets that are decided on keep what they have.

    `others` are not to be filled, but may have the better claim to a tensor;
    `order` has the names of all targets in the order of creation, if known.
    """
    self.checkpoint = checkpoint
    self.targets = {target.name: target for target in targets}
    self.sources, self.wishes = sources, wishes
    self.order = {name: i for i, name in enumerate(order)}
    self.here = {
      target.name: target.spec
      for target in (*self.targets.values(), *others)
      if not target.is_decided
    }
    self.there = {name: source.spec for name, source in sources.items()}
    self.missing: list[str] = []
    self.misfits: list[str] = []
    self.undecided: list[Undecided] = []
    self.program = {*self.here}
    self.scales = names.find_scales(self.here)
    self.scales_there = names.find_scales(self.there)

  def run(self) -> list[str]:
    """Decides on all targets, and checks powers of Adam; returns notes."""
    path, mapping = self.checkpoint.prefix, self.wishes.mapping
    self.apply_mapping()
    notes = _pairs.check_shared_slots(path, mapping, self.targets, self.sources)
    self.pair_scales()
    powers = [n for n, spec in self.here.items() if names.is_power(n, spec)]
    for base, ours in names.group(powers, names.get_base).items():
      theirs = [
        name
        for name, spec in self.there.items()
        if names.get_base(name) == base and names.is_power(name, spec)
      ]
      self.pair_kind(ours, theirs)
    self.pair_rest()
    if self.wishes.missing == "initialize":
      for name in self.missing:
        self.targets[name].why = _targets.NOT_THERE
      self.missing = []
    if self.missing or self.misfits or self.undecided:
      self.fit_powers()
      listed = []
      for name in self.missing[:MOST]:
        spec = self.targets[name].spec
        alike = {n for n, each in self.sources.items() if each.spec == spec}
        near = _targets.suggest(name, self.sources, alike)
        listed.append(f"{name}{near} is not in it")
      raise _targets.make_error(
        path,
        "it does not fit, and nothing was restored",
        [*listed, *self.missing[MOST:], *self.misfits],
        self.undecided,
      )
    _targets.check_powers(self.checkpoint, self.targets.values(), mapping)
    return [] if self.wishes.same_order else notes

  def fit_powers(self) -> None:
    """Corrects the mapping that the error prints, by the values of powers."""
    doubts = [each for each in self.undecided if names.is_power(each.here[0])]
    listed = [(n, each) for each in doubts for n in each.here]
    known = [n for n, _ in listed if n in self.targets]
    betas = {n: self.targets[n].beta for n in known if self.targets[n].beta}
    keys = {key for each in doubts for key in each.there}
    values = {
      key: self.sources[key].read(self.checkpoint).item()
      for key in keys
      if self.sources[key].value is None
    }
    likely = {n: each.likely.get(n) or "" for n, each in listed}
    taken = {n: values[likely[n]] for n in betas if likely[n] in values}
    wrong = _targets.find_wrong_powers(betas, taken)
    fit = _targets.find_fit(betas, values)
    if wrong or (fit and taken.keys() != betas.keys()):
      for each in doubts:
        own = {name: fit[name] for name in each.here if name in fit}
        why = (_targets.BY_VALUE,)
        self.undecided.remove(each)
        self.undecided.append(Undecided(each.here, each.there, own, why, False))

  def take(self, name: str, source: Source, why: str = "") -> None:
    del self.here[name]
    if name in self.targets:
      misfit = self.targets[name].take(source, why, self.wishes.cast)
      self.misfits += [misfit] if misfit else []

  def pair(
    self, name: str, key: str, why: str = "", is_shared: bool = False
  ) -> None:
    """Gives a target a tensor that no other gets, unless it is shared."""
    if not is_shared:
      self.there.pop(key, None)
    self.take(name, self.sources[key], "" if name == key else why)

  def initialize(self, name: str, why: str) -> None:
    """Decides that a variable starts from its initial value."""
    if self.here.pop(name, None) is not None and name in self.targets:
      self.targets[name].why = why

  def miss(self, name: str) -> None:
    """Notes a target for which the checkpoint has nothing."""
    del self.here[name]
    if name in self.targets:
      self.missing.append(name)

  def apply_mapping(self) -> None:
    """Gives targets the sources that the caller decided on.

    A mapping of one variable of a loss scale decides on the rest of it.
    """
    mapping = self.complete_mapping()
    if not mapping:
      return
    theirs = {
      name: scale
      for scale in names.find_scales(self.there).known
      for name in scale.names
    }
    for name, key in mapping.items():
      if name not in self.here:
        continue
      if key is None:
        self.initialize(name, _targets.TO_NONE)
      else:
        self.pair(name, key, _targets.MAPPED, self.may_share(key))
    for scale in self.scales.known:
      if mapping.get(scale.names[0], "") is None:
        for name in scale.parts.values():
          self.initialize(name, _targets.TO_NONE)
      elif not mapping.keys().isdisjoint(scale.names):
        keys = (mapping.get(name) or "" for name in scale.names)
        found = {theirs[key] for key in keys if key in theirs}
        only = found.pop() if len(found) == 1 else None
        self.fill_scale(scale, only, _targets.MAPPED)

  def complete_mapping(self) -> dict[str, str | None]:
    """Checks the caller's mapping, and adds the other powers of each Adam."""
    mapping = dict(self.wishes.mapping)
    _pairs.check_names(
      self.checkpoint.prefix, mapping, self.sources, self.targets
    )
    for name, key in self.wishes.mapping.items():
      if key and names.is_power(name, self.targets[name].spec):
        other, other_key = map(names.get_other_power, (name, key))
        if other in self.here and other_key in self.sources:
          mapping.setdefault(other, other_key)
    return mapping

  def may_share(self, key: str) -> bool:
    """Returns whether a tensor's name does not depend on the optimizers."""
    spec = self.sources[key].spec
    return not (
      names.is_power(key, spec)
      or names.is_named_like_scale(key, spec)
      or names.has_cond(key)
    )

  def pair_scales(self) -> None:
    """Decides on loss scales, and the user's variables with such names."""
    ours, theirs = (
      {n: s for n, s in side.items() if names.is_named_like_scale(n, s)}
      for side in (self.here, self.there)
    )
    here, there = map(names.find_scales, (self.here, self.there))
    known = {name for scale in there.known for name in scale.names}
    mine = {scale.names[0]: scale for scale in here.known}
    others = {scale.names[0]: scale for scale in there.known}
    if not ours:
      return
    if ours == theirs:
      for name, scale in mine.items():
        self.fill_scale(scale, others.get(name), "")
      known = set()
    elif here.unclear or there.unclear:
      kinds = _group_scalars(theirs)
      for kind, alike in _group_scalars(ours).items():
        self.doubt(Undecided(alike, kinds.get(kind, [])))
    else:
      # What may be more loss scales gets equal names alone.
      likely = {scale.names[0]: scale for scale in there.likely if others}
      heads = [*others, *likely]
      found, why = self.pair_by_scope([*mine], heads, False, "loss scale")
      pairs: Mapping[str, str | None] | None = found
      if pairs is None:
        why, scales = _SAME_ORDER, (others | likely).items()
        pairs = self.choose(
          {name: scale.names for name, scale in mine.items()},
          {name: scale.names for name, scale in scales},
        )
        for scale in mine.values() if not pairs else ():
          for name in scale.counts:
            self.here.pop(name, None)
      for name, scale in mine.items():
        self.fill_scale(scale, others.get(pairs.get(name) or ""), why)
    left = {name: spec for name, spec in ours.items() if name in self.here}
    self.pair_likenesses(left, known)

  def pair_likenesses(
    self, ours: Mapping[str, TensorSpec], known: Collection[str]
  ) -> None:
    """Decides on variables that are named like the known loss scales'."""
    for name, spec in ours.items():
      if name not in self.here:
        continue
      alike = [
        n
        for n, other in self.there.items()
        if names.get_base(n) == names.get_base(name) and other == spec
      ]
      if self.there.get(name) == spec and name not in known:
        self.pair(name, name)
      elif alike:
        self.doubt(Undecided([name], alike))
      else:
        self.miss(name)

  def fill_scale(
    self, scale: ScaleNames, source: ScaleNames | None, why: str
  ) -> None:
    """Gives a loss scale the values of another, perhaps of another API.

    If the checkpoint has no whole one, what it has by equal names is restored.
    """
    parts = source.parts if source else {}
    ours = scale.parts.items()
    is_own = source is None or source.names[0] == scale.names[0]
    equal = {
      n for _, n in ours if is_own and self.there.get(n) == self.here.get(n)
    } & self.here.keys()
    is_partial = equal or not all(name in self.here for _, name in ours)
    lost = _PARTIAL if is_partial else _targets.NO_SCALE
    for meaning, name in ours:
      if name not in self.here:
        continue
      if source and source.api == scale.api and meaning in parts:
        self.pair(name, parts[meaning], why)
      elif meaning in parts:
        self.take(name, self.sources[parts[meaning]], _targets.OTHER_API)
      elif name in equal:
        self.pair(name, name)
      elif source and scale.api == names.CONTRIB:
        self.take(name, Source("", self.here[name], 0), _NOT_COUNTED)
      else:
        self.initialize(name, _targets.NO_COUNT if source else lost)
    for key in parts.values():
      self.there.pop(key, None)

  def pair_kind(self, ours: list[str], theirs: list[str]) -> None:
    """Decides on variables of one kind, by the rules of the module."""
    if not theirs:
      for name in ours:
        self.miss(name)
      return
    found, why = self.pair_by_scope(ours, theirs, True, names.get_base(ours[0]))
    if found is None:
      self.choose_alone(ours, theirs)
    else:
      for name, key in found.items():
        self.pair(name, key, why)

  def pair_by_scope(
    self, ours: list[str], theirs: list[str], may_lose_scope: bool, what: str
  ) -> tuple[dict[str, str] | None, str]:
    """Pairs equal names, or the only candidate and target in each scope.

    A variable of which the scope may be lost is in its scope on one side, and
    may be in the root scope on the other. Then all scopes must fit, as far as
    the root scope is among them. Otherwise, targets without a candidate in
    their scope are left out.

    Returns:
      Target -> candidate, and the reason; None if names do not tell.
    """
    if set(ours) == set(theirs):
      return {name: name for name in ours}, ""
    groups, lone, left = _group(
      {name: self.get_scope(name) for name in ours},
      {name: names.get_scope(name) for name in theirs},
    )
    pairs = {targets[0]: candidates[0] for targets, candidates in groups}
    at_root = [name for name in theirs if not names.get_scope(name)]
    if not may_lose_scope:
      are_clear = not lone or not left
    elif len(lone) == len(left) == 1:  # The only one left, at the root.
      has_root = left[0] in at_root or not self.get_scope(lone[0])
      are_clear = has_root or not self.has_scope(lone[0])
      pairs[lone[0]] = left[0]
    else:  # A target at the root may be of a scope that is left.
      are_clear = not lone and not (left and at_root)
    why = _ONLY if len(ours) == len(theirs) == 1 else _ONLY_IN_SCOPE
    is_told = are_clear and all(len(t) == len(c) == 1 for t, c in groups)
    return (pairs, why.format(what)) if is_told else (None, "")

  def has_scope(self, name: str) -> bool:
    """Returns whether a target's name shows a scope."""
    return name not in self.targets or self.targets[name].has_scope

  def get_scope(self, name: str) -> str:
    """Returns a target's scope; what is no scope in TensorFlow if unknown."""
    return names.get_scope(name) if self.has_scope(name) else f"of {name}"

  def choose_alone(self, ours: list[str], theirs: list[str]) -> None:
    """Chooses among variables to which no others belong."""
    found = self.choose({n: [n] for n in ours}, {n: [n] for n in theirs})
    for name, key in found.items():
      if key is None:
        self.initialize(name, _targets.NOT_THERE)
      else:
        self.pair(name, key, _SAME_ORDER)

  def choose(
    self,
    ours: Mapping[str, Sequence[str]],
    theirs: Mapping[str, Sequence[str]],
  ) -> dict[str, str | None]:
    """Chooses among several candidates, if the caller says `same_order`.

    Both sides have the variables that belong to a variable, and itself.

    Returns:
      Variable -> candidate, or None if the checkpoint has fewer; {} if the
      variables are noted as undecided.
    """
    pairs, is_in_order = self.find_likely(ours, theirs)
    has_fewer = None in pairs.values()
    if pairs.keys() == ours.keys() and (
      (is_in_order and self.wishes.same_order)
      or (has_fewer and self.wishes.missing == "initialize")
    ):
      return pairs
    here, there = (
      [name for first in firsts or side for name in side[first]]
      for firsts, side in (
        (self.sort_by_creation(ours), ours),
        (names.sort_by_creation(theirs, mixed=True), theirs),
      )
    )
    likely = {
      name: key
      for first, other in pairs.items()
      for name, key in itertools.zip_longest(
        ours[first], theirs[other][: len(ours[first])] if other else ()
      )
    }
    is_equal = is_in_order and len(here) == len(there)
    right_if = (_targets.IN_ORDER, _targets.FIRST)[: 2 - is_equal]
    self.doubt(Undecided(here, there, likely, right_if, is_in_order))
    return {}

  def doubt(self, undecided: Undecided) -> None:
    """Notes targets for which names do not tell the source."""
    for name in undecided.here:
      self.here.pop(name, None)
    if not self.targets.keys().isdisjoint(undecided.here):
      self.undecided.append(undecided)

  def find_likely(
    self, ours: Collection[str], theirs: Collection[str]
  ) -> tuple[dict[str, str | None], bool]:
    """Pairs targets with candidates, as far as scopes and the order tell.

    A scope that has as many candidates as targets is a group, and what is left
    is one more.

    Returns:
      Target -> candidate, None if there are fewer; and whether that is right if
      both programs make their optimizers in one order.
    """
    is_scale = names.MEANINGS.keys() >= set(map(names.get_base, ours))
    if not is_scale and not self.are_conds_clear(ours, theirs):
      return {}, False
    get_scope = _get_whole_scope if is_scale else names.get_scope
    there = {name: get_scope(name) for name in theirs}
    here = {n: get_scope(n) if self.has_scope(n) else n for n in ours}
    if not is_scale:
      here |= self.find_homes(ours, there.values())
    pairs: dict[str, str | None] = {}
    for targets, candidates in _group(here, there)[0]:
      if len(targets) == len(candidates):
        pairs |= self.pair_in_order(targets, candidates)
    left = [name for name in ours if name not in pairs]
    free = [name for name in theirs if name not in pairs.values()]
    if len({there[name] for name in free}) > 1:
      return pairs, True
    rest = self.pair_in_order(left, free)
    # One of two optimizers had a loss scale, or has one. What is called like a
    # power, and lacks the other of an optimizer, is a user's variable.
    are_powers = all(
      names.get_other_power(name) in known
      for listed, known in ((left, self.program), (free, self.sources))
      for name in listed
    )
    are_alike = len(set(map(names.has_cond, left))) == 1
    mixed = not rest and are_powers and are_alike
    return pairs | (rest or self.pair_in_order(left, free, mixed)), not mixed

  def are_conds_clear(
    self, ours: Collection[str], theirs: Collection[str]
  ) -> bool:
    """Returns whether the conds in names are those that optimizers made.

    A program may have a scope called `cond`. There is a loss scale or one more
    cond in it then, or there are more conds than loss scales beside names
    without a cond. In one scope, whatever it is called, numbers tell the order.
    """
    if len(set(map(_get_whole_scope, theirs))) == 1:
      return True
    are_mixed = are_many = False
    for listed, scales in ((ours, self.scales), (theirs, self.scales_there)):
      inside = list(filter(names.has_cond, listed))
      made = [scale.names[0] for scale in (*scales.known, *scales.likely)]
      around = [names.split_cond(name)[0] for name in inside]
      if any(map(names.has_cond, (*made, *around))):
        return False
      are_mixed |= 0 < len(inside) < len(listed)
      are_many |= len(inside) > len(made)
    return not (are_mixed and are_many)

  def pair_in_order(
    self, ours: list[str], theirs: list[str], mixed: bool = False
  ) -> dict[str, str | None]:
    """Pairs targets and candidates in the order of creation, if it is known."""
    if len(ours) == len(theirs) == 1:
      return {ours[0]: theirs[0]}
    here = self.sort_by_creation(ours)
    there = names.sort_by_creation(theirs, mixed)
    if here is None or there is None:
      return {}
    return dict(itertools.zip_longest(here, there[: len(here)]))

  def find_homes(
    self, ours: Collection[str], scopes: Collection[str]
  ) -> dict[str, str]:
    """Returns the scopes of the optimizers whose powers lie at the root.

    TensorFlow 2's control flow leaves them there, without a cond. There are as
    many loss scales, or the last one made before a power is its optimizer's.
    """
    roots = [
      name for name in self.sort_by_creation(ours) or () if "/" not in name
    ]
    made = {
      self.order[name]: names.get_scope(name)
      for name in (scale.names[0] for scale in self.scales.known)
      if names.get_scope(name) in scopes and name in self.order
    }
    if not self.order or any(map(names.has_cond, ours)):
      return {}
    if len(made) == len(roots):
      return {name: made[i] for name, i in zip(roots, sorted(made))}
    homes: dict[int, str] = {}
    for name in roots:
      last = max((i for i in made if i < self.order[name]), default=-1)
      homes.setdefault(last, name)
    return {name: made[i] for i, name in homes.items() if i in made}

  def sort_by_creation(self, ours: Iterable[str]) -> list[str] | None:
    """Sorts targets in the order of creation, if it is known."""
    ours = list(ours)
    if all(name in self.order for name in ours):
      return sorted(ours, key=self.order.__getitem__)
    return (
      names.sort_by_creation(ours) if all(map(self.has_scope, ours)) else None
    )

  def pair_rest(self) -> None:
    """Decides on all that is left: equal names, then those made in conds.

    What optimizers make in conds is a scalar, and one kind of variables. Of
    weights, names are pairs that differ in their conds alone.
    """
    scalars, scalars_there = map(_group_scalars, (self.here, self.there))
    for kind, ours in scalars.items():
      theirs = scalars_there.get(kind, [])
      loose = set(ours) ^ set(theirs)
      if not set(ours) <= set(theirs) and any(map(names.has_cond, loose)):
        self.pair_kind(ours, theirs)
    for name in list(self.here):
      if name in self.there:
        self.pair(name, name)
    left, left_there = (
      names.group(side, names.remove_conds) for side in (self.here, self.there)
    )
    for stem, ours in left.items():
      theirs = left_there.get(stem, [])
      if len(ours) == len(theirs) == 1:
        self.pair(ours[0], theirs[0], "equal but for conds")
      elif theirs:
        self.choose_alone(ours, theirs)
      else:
        for name in ours:
          self.miss(name)


def _get_whole_scope(name: str) -> str:
  return names.split_scope(name)[0]


def _group(
  here: Mapping[str, Hashable], there: Mapping[str, Hashable]
) -> tuple[list[tuple[list[str], list[str]]], list[str], list[str]]:
  """Groups names by their scopes.

  Returns:
    The names here and there of each scope that both sides have; and the names
    of other scopes, here and there.
  """
  ours, theirs = names.group(here, here.get), names.group(there, there.get)
  return (
    [(ours[scope], theirs[scope]) for scope in ours if scope in theirs],
    [name for name, scope in here.items() if scope not in theirs],
    [name for name, scope in there.items() if scope not in ours],
  )


def _group_scalars(
  tensors: Mapping[str, TensorSpec],
) -> dict[tuple[str, str], list[str]]:
  """Returns the scalars by name without scope and number, and by dtype."""
  return names.group(
    (name for name, spec in tensors.items() if not spec.shape),
    lambda name: (names.get_base(name), tensors[name].dtype),
  )
