# SPDX-License-Identifier: Apache-2.0
"""Finds the source of each variable's value in a checkpoint by name.

For example, a program with TensorFlow 2's control flow restores a checkpoint
that a program with TensorFlow 1's wrote:

    program             checkpoint          how the pair is found
    w                   w                   1. equal names
    w/Adam              w/Adam              1. equal names
    current_loss_scale  loss_scale          2. the only loss scale
    good_steps          good_steps          2. the only loss scale (int32)
    beta1_power         cond/beta1_power    3. updates of w depend on it

The steps, each for the variables that the steps before left:

0. The caller decides: variables not to be restored, and the mapping. A mapping
   of one variable also decides on the variables that belong to it: on the other
   power of the same Adam (`beta1_power: beta1_power_1` also maps `beta2_power`
   to `beta2_power_1`), and on the other variables of the same loss scale.
1. Equal names are pairs, except for ambiguous names (see `layouts/names.py`),
   for names of variables that optimizers create in conds, and for slots of
   several optimizers of one name, which `layouts/slots.py` tells apart.
2. Loss scales, with the variables of `layouts/policy_weights.py`, then
3. Adam's powers, are paired as `layouts/pairing.py` describes.
4. Of the rest, names are pairs that differ in their conds alone.

A variable that the user named like a power or like a loss scale's variable is
restored by its name. If nothing proves which variable is which, the error lists
the candidates and asks for a mapping.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping

from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec
from tf_compat_lossscale.checkpoint.files.values import Literal
from tf_compat_lossscale.checkpoint.files.values import Sources
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts import policy_weights
from tf_compat_lossscale.checkpoint.layouts import problems
from tf_compat_lossscale.checkpoint.layouts import slots
from tf_compat_lossscale.checkpoint.layouts.inventory import Inventory
from tf_compat_lossscale.checkpoint.layouts.inventory import pair_items
from tf_compat_lossscale.checkpoint.layouts.match import Match
from tf_compat_lossscale.checkpoint.layouts.match import PartialMatch
from tf_compat_lossscale.checkpoint.layouts.match import Wishes
from tf_compat_lossscale.checkpoint.layouts.pairing import is_possible
from tf_compat_lossscale.checkpoint.layouts.pairing import Pairing
from tf_compat_lossscale.checkpoint.layouts.scale_bridges import convert_counter

_MAPPED = "the mapping says so"
_BAD_STEPS = names.SCALE_TENSORS[names.CONTRIB]["bad_steps"]


def match_variables(
  here: Inventory,
  there: Inventory,
  sources: Sources,
  path: str,
  wishes: Wishes,
) -> Match:
  """Finds the source of every variable's value.

  Args:
    here: The variables to restore.
    there: The variables of the checkpoint.
    sources: The same variables: name -> tensor.
    path: The checkpoint, for messages.
    wishes: What the caller decided.

  Returns:
    The sources, and the variables to initialize.

  Raises:
    CheckpointError: The checkpoint has nothing for a variable, or a tensor of
      another dtype or shape, or several candidates.
    ValueError: The mapping has a name that does not exist.
  """
  _gather_evidence(here, there)
  unused = {source.origin for source in sources.values()}
  sources = dict(sources)
  there.complete_scales(sources)
  match = PartialMatch(here, there, sources)
  match.initialize(wishes.excused)
  _apply_mapping(match, wishes.mapping)
  _match_slots(match)
  further = policy_weights.find_further(here.tensors, match.scales.known)
  kept = {name for members in further.values() for name in members.values()}
  _match_names(match, kept)
  _match_scales(match)
  policy_weights.match_further(match, further)
  _match_powers(match)
  _match_rest(match)
  if wishes.missing == "initialize":
    match.initialize(dict.fromkeys(match.missing, problems.NOT_THERE))
    match.missing = []
  if match.missing or match.misfits or match.undecided:
    raise _make_error(match, path)
  unused -= {source.origin for source in match.match.sources.values()}
  match.match.unused = tuple(sorted(unused))
  return match.match


def _gather_evidence(here: Inventory, there: Inventory) -> None:
  """Gathers the evidence of both inventories if names alone do not decide."""
  if _do_names_decide(here, there):
    return
  bases = {
    names.get_base(name)
    for side in (here, there)
    for name in side.tensors
    if names.get_cond_number(name) is not None
  }
  here.gather_evidence(bases)
  there.gather_evidence(bases)


def _do_names_decide(here: Inventory, there: Inventory) -> bool:
  """Returns whether equal names are enough.

  Equal names are enough if every name exists there, if each power and each
  variable of a loss scale is the only variable of its kind, and if no variable
  may have slots of several optimizers of one name.
  """
  ours, theirs = (
    [n for n, t in side.tensors.items() if names.is_ambiguous(n, t)]
    for side in (here, there)
  )
  bases = {names.get_base(name) for name in ours}
  scales = [n for n in ours if not names.is_power(n, here.tensors[n])]
  return (
    here.tensors.keys() <= there.tensors.keys()
    and set(ours) == set(theirs)
    and len(bases) == len(ours)
    and (here.trains_once or not scales)
    and not slots.find_contested(here, there)
  )


def _make_error(match: PartialMatch, path: str) -> CheckpointError:
  listed = [
    f"{name} in it is proven to be another optimizer's"
    if name in match.sources
    else f"{name}{problems.suggest_names(name, match.sources)} is not in it"
    for name in match.missing[: problems.MOST]
  ]
  listed += [*match.missing[problems.MOST :], *match.misfits]
  return problems.make_unmatched_error(
    path, listed, match.undecided, match.there.has_evidence
  )


def _apply_mapping(
  match: PartialMatch, mapping: Mapping[str, str | None]
) -> None:
  """Gives variables the sources that the caller decided on.

  Args:
    match: The match to fill.
    mapping: Variable -> its name in the checkpoint, or None to initialize it.

  Raises:
    ValueError: The mapping has a name that does not exist.
  """
  _check_mapping(match, mapping)
  for name, key in mapping.items():
    if name in match.wanted:
      if key is None:
        match.initialize({name: _MAPPED})
      else:
        _map_variable(match, name, key, mapping)
  _map_rest_of_scales(match, mapping)


def _check_mapping(
  match: PartialMatch, mapping: Mapping[str, str | None]
) -> None:
  for name, key in mapping.items():
    if name not in match.here.tensors:
      near = problems.suggest_names(name, match.here.tensors)
      raise ValueError(f"mapping names {name!r}{near}, which is no variable.")
    if key is not None and key not in match.sources:
      near = problems.suggest_names(key, match.sources)
      raise ValueError(
        f"mapping has {key!r}{near} for {name!r}, which is not in the "
        "checkpoint."
      )


def _map_variable(
  match: PartialMatch, name: str, key: str, mapping: Mapping[str, str | None]
) -> None:
  """Maps one variable and, if the variable is a power, the other power."""
  stored = match.sources[key]
  source = stored
  if names.is_named_like_scale(name, match.wanted[name]):
    source = convert_counter(stored, match.wanted[name])
  same = name == key and source is stored
  match.set_source(name, source, "" if same else _MAPPED)
  if name != key:
    match.here.renamed[name] = key
  other, other_key = names.get_other_power(name), names.get_other_power(key)
  if (
    names.is_power(name, match.here.tensors[name])
    and other in match.wanted
    and other not in mapping
    and other_key in match.given
  ):
    proof = _MAPPED if other != other_key else ""
    match.set_source(other, match.sources[other_key], proof)


def _map_rest_of_scales(
  match: PartialMatch, mapping: Mapping[str, str | None]
) -> None:
  """Maps the variables of mapped loss scales that the mapping leaves out."""
  ours = {n: scale for scale in match.scales.known for n in scale.names}
  theirs = {n: scale for scale in match.scales_there.known for n in scale.names}
  match.has_mapped_scale = any(mapping.get(name) for name in ours)
  for scale in {ours[name] for name in mapping if name in ours}:
    left = [name for name in scale.names if name in match.wanted]
    if mapping.get(scale.names[0], "") is None:
      match.initialize(dict.fromkeys(left, _MAPPED))
      continue
    keys = {mapping.get(name) for name in scale.names} & theirs.keys()
    sources = {theirs[key] for key in keys if key}
    if left and len(sources) == 1:
      match.set_scale(scale, sources.pop(), _MAPPED, left)
    elif len(left) < len(scale.names):
      for name in left:
        # compat.v1 does not count bad steps.
        if names.get_base(name) == "bad_steps":
          match.set_source(
            name, Literal(_BAD_STEPS.dtype, 0), problems.NOT_COUNTED
          )


def _match_slots(match: PartialMatch) -> None:
  """Pairs the slots of several optimizers of one name on one variable."""
  decided = {
    name: source.origin for name, source in match.match.sources.items()
  }
  all_equal = match.here.tensors.keys() <= match.there.tensors.keys()
  found = slots.pair_slots(match.here, match.there, decided, all_equal)
  for name, key in found.keys.items():
    if name in match.wanted:
      source = None if key is None else match.sources.get(key)
      match.set_source(name, source, found.proofs.get(name, ""))
    if key is not None and key != name:
      match.here.renamed[name] = key
  match.match.unproven = [n for n in found.unproven if n in match.match.sources]
  for ours, theirs in found.undecided:
    wanted = [name for name in ours if name in match.wanted]
    given = [name for name in theirs if name in match.given]
    if wanted:
      likely = zip(wanted, given) if len(wanted) == len(given) else ()
      match.add_undecided(wanted, given, likely)


def _match_names(match: PartialMatch, kept: Collection[str]) -> None:
  """Pairs equal names that depend on the model alone; leaves out `kept`."""
  created = _find_created_bases(match)
  for name, tensor in list(match.wanted.items()):
    if name not in match.given or name in kept:
      continue
    if names.is_ambiguous(name, tensor):
      continue
    if names.get_base(name) not in created or match.here.belongs_to_user(name):
      match.set_source(name, match.sources[name])


def _find_created_bases(match: PartialMatch) -> set[str]:
  """Returns the names of further variables that optimizers create in conds.

  Returns:
    The names without scope and number, of both sides.
  """
  return {
    names.get_base(name)
    for side, members in (
      (match.here, match.wanted),
      (match.there, match.given),
    )
    for name in members
    if side.belongs_to_optimizer(name)
    and not names.is_ambiguous(name, side.tensors[name])
  }


def _match_scales(match: PartialMatch) -> None:
  """Pairs loss scales, and the user's variables with such names."""
  here, there, sources = match.here, match.there, match.sources
  # All variables called like a loss scale's.
  ours = [n for n, t in match.wanted.items() if names.is_named_like_scale(n, t)]
  theirs = [
    n for n in match.given if names.is_named_like_scale(n, sources[n].spec)
  ]
  # The program may want only some variables of a loss scale.
  scales = [s for s in match.scales.known if not set(s.names).isdisjoint(ours)]
  scales_there = [
    s for s in match.scales_there.known if set(s.names) <= set(theirs)
  ]
  found = pair_items(
    here,
    there,
    [here.make_item(s.names, is_scale=True) for s in scales],
    [there.make_item(s.names, is_scale=True) for s in scales_there],
    keeps_scope=not any(here.serves_every_weight(s.names[0]) for s in scales),
    are_scales=True,
  )
  same_scales = {s.names for s in scales} == {s.names for s in scales_there}
  if _have_equal_names(match, ours, theirs) and (
    found.is_exact
    if same_scales
    else not (here.has_evidence and there.has_evidence)
  ):
    for name in ours:
      match.set_source(name, sources[name])
    return
  unclear = match.scales.unclear | match.scales_there.unclear
  if ours and unclear.intersection([*ours, *theirs]):
    match.add_undecided(ours, theirs)
    return
  _doubt_last_candidates(match, found, ours)
  by_names = {s.names: s for s in [*scales, *scales_there]}
  for item, (other, proof) in found.pairs.items():
    match.set_scale(by_names[item.names], by_names[other.names], proof)
  # With evidence, the variables of a loss scale are not the user's.
  parts = {n for s in scales_there for n in s.names if here.has_evidence}
  unpaired = {
    n for item in [*found.missing, *found.undecided] for n in item.names
  }
  _match_users_variables(
    match,
    [n for n in ours if n in match.wanted and n not in unpaired],
    [n for n in theirs if n in match.given and n not in parts],
  )
  _take_incomplete_scales(match, found)


def _have_equal_names(
  match: PartialMatch, ours: list[str], theirs: list[str]
) -> bool:
  """Returns whether names, dtypes and shapes are equal on both sides."""
  return set(ours) == set(theirs) and all(
    match.wanted[name] == match.sources[name].spec for name in ours
  )


def _doubt_last_candidates(
  match: PartialMatch, found: Pairing, ours: list[str]
) -> None:
  """Takes back unproven pairs of loss scales if there is another candidate.

  An incomplete loss scale in the checkpoint is such a candidate.
  """
  if not any(
    match.there.is_likely_scale(scale) and scale.names[0] in match.given
    for scale in match.scales_there.incomplete
    if scale.names[0] not in ours
    or not match.here.has_evidence
    or not match.here.belongs_to_user(scale.names[0])
  ):
    return
  for item, (other, _) in list(found.pairs.items()):
    if item.names != other.names and not item.serves & other.serves:
      del found.pairs[item]
      found.undecided.append(item)
      found.left.append(other)


def _take_incomplete_scales(match: PartialMatch, found: Pairing) -> None:
  """Decides on the loss scales without a pair.

  The checkpoint may have some of a loss scale's variables, but not all: they
  are restored by equal names.
  """
  parts = {n for scale in match.scales_there.known for n in scale.names}
  loose = match.scales_there.counters.union(
    *(scale.names for scale in match.scales_there.incomplete)
  )
  for item in found.missing:
    wanted = [name for name in item.names if name in match.wanted]
    if match.has_mapped_scale and found.left:
      # The mapping gave the proven source of this loss scale to another.
      match.add_undecided(wanted, [n for b in found.left for n in b.names])
      continue
    for name in list(wanted):
      source = match.sources.get(name)
      if (
        source
        and name in match.given
        and name not in parts
        and source.spec == match.wanted[name]
        and not match.there.belongs_to_user(name)
      ):
        match.set_source(name, source)
        wanted.remove(name)
    is_partial = bool(match.given.keys() & loose) or any(
      name in match.match.sources for name in item.names
    )
    why = problems.PARTIAL if is_partial else problems.NO_SCALE
    match.initialize(dict.fromkeys(wanted, why))
  match.add_undecided_items(found)


def _match_powers(match: PartialMatch) -> None:
  """Pairs Adam's powers, each of the two by itself."""
  here, there = match.here, match.there
  powers = [n for n, t in match.wanted.items() if names.is_power(n, t)]
  bases = names.group(powers, names.get_base)
  for base, ours in bases.items():
    theirs = [
      name
      for name in match.given
      if names.get_base(name) == base
      and names.is_power(name, match.sources[name].spec)
    ]
    users = [n for n in ours if here.belongs_to_user(n)]
    users_there = [n for n in theirs if there.belongs_to_user(n)]
    certain = here.has_evidence and there.has_evidence
    if set(ours) == set(theirs) and (
      set(users) == set(users_there) or not certain
    ):
      _match_group(match, ours, theirs)
    elif (users or users_there) and not certain:
      match.add_undecided(ours, theirs)
    else:
      _match_group(
        match,
        [n for n in ours if n not in users],
        [n for n in theirs if n not in users_there],
      )
      _match_users_variables(match, users, users_there)


def _match_rest(match: PartialMatch) -> None:
  """Pairs names that differ in their conds alone."""
  for base in _find_created_bases(match):
    ours = [n for n in match.wanted if names.get_base(n) == base]
    theirs = [n for n in match.given if names.get_base(n) == base]
    found = _pair(match, ours, theirs, keeps_scope=True)
    for item, (other, proof) in found.pairs.items():
      if found.is_exact or item.serves & other.serves:
        match.set_source(item.names[0], match.sources[other.names[0]], proof)
    left = {other.names: other for other in found.left}
    for item in found.undecided:
      (name,) = item.names
      if item.names in left and is_possible(item, left[item.names]):
        match.set_source(name, match.sources[name])
  groups = names.group(match.wanted, match.here.remove_conds)
  groups_there = names.group(match.given, match.there.remove_conds)
  for key, ours in groups.items():
    _match_group(match, ours, groups_there.get(key, []))


def _pair(
  match: PartialMatch, ours: list[str], theirs: list[str], keeps_scope: bool
) -> Pairing:
  return pair_items(
    match.here,
    match.there,
    [match.here.make_item((name,)) for name in ours],
    [match.there.make_item((name,)) for name in theirs],
    keeps_scope,
  )


def _match_group(
  match: PartialMatch, ours: list[str], theirs: list[str]
) -> None:
  """Pairs variables of one kind; notes missing and undecided variables."""
  found = _pair(match, ours, theirs, keeps_scope=False)
  for item, (other, proof) in found.pairs.items():
    match.set_source(item.names[0], match.sources[other.names[0]], proof)
  for item in found.missing:
    match.set_source(item.names[0], None)
  match.add_undecided_items(found)


def _match_users_variables(
  match: PartialMatch, ours: list[str], theirs: list[str]
) -> None:
  """Pairs the user's variables that are called like an optimizer's.

  Equal names are pairs first. Then variables are pairs that have the same name
  but for the number, and are the only ones: `good_steps` and `good_steps_1`.
  """

  def key(name: str, tensor: TensorSpec) -> tuple[str, str, TensorSpec]:
    return names.split_scope(name)[0], names.get_base(name), tensor

  for name in ours:
    source = match.sources.get(name)
    if name in theirs and source and source.spec == match.wanted[name]:
      match.set_source(name, source)
  groups = names.group(
    (name for name in ours if name in match.wanted),
    lambda name: key(name, match.wanted[name]),
  )
  for group, mine in groups.items():
    others = [
      name
      for name in theirs
      if name in match.given and key(name, match.sources[name].spec) == group
    ]
    if len(mine) == len(others) == 1:
      source = match.sources[others[0]]
      match.set_source(mine[0], source, "the only other variable of that name")
    elif others:
      match.add_undecided(mine, others)
    else:
      for name in mine:
        match.set_source(name, None)
