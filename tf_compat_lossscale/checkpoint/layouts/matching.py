"""Finds the tensor of a checkpoint for each variable.

Names decide, with one exception. The names of Adam's powers and of loss scales
depend on the control flow, and on which optimizers have a loss scale. They
decide if all of them are equal on both sides; otherwise each variable needs a
proof of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping

from tf_compat_lossscale.checkpoint import report
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec
from tf_compat_lossscale.checkpoint.files.sources import Literal
from tf_compat_lossscale.checkpoint.files.sources import Source
from tf_compat_lossscale.checkpoint.layouts import bridging as layouts
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts import pairing as _pairing
from tf_compat_lossscale.checkpoint.layouts import problems
from tf_compat_lossscale.checkpoint.layouts import side
from tf_compat_lossscale.checkpoint.layouts.side import Side

_COUNT = names.LAYOUTS[names.CONTRIB]["bad_steps"]
_CONVERTED = "of the loss scale of another API"
_MAPPED = "the mapping says so"


class _Matcher:
  """Finds a source for each variable, one kind after the other."""

  def __init__(
    self, here: Side, there: Side, variables: layouts.Variables
  ) -> None:
    self.here, self.there = here, there
    self.scales, self.scales_there = here.scales, there.scales
    self.variables = variables
    self.result = layouts.Match()
    self.wanted = dict(here.tensors)
    self.given = dict.fromkeys(variables)
    self.missing: list[str] = []
    self.undecided: list[problems.Undecided] = []
    self.misfits: list[str] = []
    self.has_mapped_scale = False

  def take(self, name: str, source: Source | None, proof: str = "") -> None:
    """Gives a variable its source; None if it has none."""
    tensor = self.wanted.pop(name)
    if source is None:
      self.missing.append(name)
      return
    self.given.pop(layouts.origin(source), None)
    if source.spec != tensor:
      self.misfits.append(f"{name} is {tensor} but {source.spec} in it")
      return
    self.result.sources[name] = source
    if proof:
      self.result.proofs[name] = proof

  def excuse(self, excused: Mapping[str, str]) -> None:
    """Leaves out variables: name -> why they are to be initialized."""
    for name, why in excused.items():
      self.wanted.pop(name, None)
      self.result.initialized[name] = why

  def apply_mapping(self, mapping: Mapping[str, str | None]) -> None:
    """Does what the caller decided."""
    ours = {n: s for s in self.scales.known for n in s.names}
    theirs = {n: s for s in self.scales_there.known for n in s.names}
    for name, key in mapping.items():
      if name not in self.here.tensors:
        near = problems.nearest(name, self.here.tensors)
        raise ValueError(f"mapping names {name!r}{near}, which is no variable.")
      if key is not None and key not in self.variables:
        near = problems.nearest(key, self.variables)
        raise ValueError(
          f"mapping has {key!r}{near} for {name!r}, which is not in the "
          "checkpoint."
        )
    for name, key in mapping.items():
      if name not in self.wanted:
        continue
      if key is None:
        self.excuse({name: _MAPPED})
        continue
      source = self.variables[key]
      if names.is_like_scale(name, self.wanted[name]):
        source = layouts.as_counter(source, self.wanted[name])
      same = name == key and source is self.variables[key]
      self.take(name, source, "" if same else _MAPPED)
      if name != key:
        self.here.renamed[name] = key
      twin, other = names.partner(name), names.partner(key)
      if (
        names.is_power(name, self.here.tensors[name])
        and twin in self.wanted
        and twin not in mapping
        and other in self.given
      ):
        self.take(twin, self.variables[other], _MAPPED * (twin != other))
    self.has_mapped_scale = any(mapping.get(name) for name in ours)
    for state in {ours[name] for name in mapping if name in ours}:
      # One of its variables decides for those that the mapping leaves out.
      left = [name for name in state.names if name in self.wanted]
      if mapping.get(state.names[0], "") is None:
        self.excuse(dict.fromkeys(left, _MAPPED))
        continue
      keys = {mapping.get(name) for name in state.names} & set(theirs)
      others = {theirs[key] for key in keys if key}
      if left and len(others) == 1:
        self._take_scale(state, others.pop(), _MAPPED, left)
      elif len(left) < len(state.names):  # Of which compat.v1 has no more.
        for name in [n for n in left if names.base(n) == "bad_steps"]:
          self.take(name, Literal(_COUNT.dtype, 0), report.NOT_COUNTED)

  def match_names(self) -> None:
    """Gives what has its own name, unless names depend on more than that."""
    own = self._own_bases()
    for name, tensor in list(self.wanted.items()):
      if name not in self.given or names.is_special(name, tensor):
        continue
      if names.base(name) not in own or self.here.is_users(name):
        self.take(name, self.variables[name])

  def _own_bases(self) -> set[str]:
    """What is called like variables that optimizers create in conds."""
    return {
      names.base(name)
      for side, members in ((self.here, self.wanted), (self.there, self.given))
      for name in members
      if side.is_own(name) and not names.is_special(name, side.tensors[name])
    }

  def match_scales(self) -> None:
    """Gives loss scales theirs."""
    like = [n for n, t in self.wanted.items() if names.is_like_scale(n, t)]
    like_there = [
      n for n in self.given if names.is_like_scale(n, self.variables[n].spec)
    ]
    # Of a loss scale here, some variables may not be wanted.
    ours = [s for s in self.scales.known if not set(s.names).isdisjoint(like)]
    theirs = [
      s for s in self.scales_there.known if set(s.names) <= set(like_there)
    ]
    found = side.pair(
      self.here,
      self.there,
      [self.here.item(s.names, is_scale=True) for s in ours],
      [self.there.item(s.names, is_scale=True) for s in theirs],
      keeps_scope=not any(self.here.is_alone(s.names[0]) for s in ours),
      are_scales=True,
    )
    if self._are_equal(like, like_there) and (
      found.is_exact
      if {s.names for s in ours} == {s.names for s in theirs}
      else not (self.here.has_evidence and self.there.has_evidence)
    ):
      for name in like:
        self.take(name, self.variables[name])
      return
    unclear = self.scales.unclear | self.scales_there.unclear
    if like and unclear.intersection([*like, *like_there]):
      self._leave_open(like, like_there)
      return
    states = {s.names: s for s in [*ours, *theirs]}
    for a, (b, proof) in found.pairs.items():
      self._take_scale(states[a.names], states[b.names], proof)
    for a in found.missing:
      wanted = [name for name in a.names if name in self.wanted]
      if self.has_mapped_scale and found.left:
        # The mapping gave another one what is proven to be this one's.
        self._leave_open(wanted, [n for b in found.left for n in b.names])
      self.excuse({n: report.NO_SCALE for n in wanted if n in self.wanted})
    self._leave_undecided(found)
    scales: set[str] = set()
    if self.here.has_evidence:  # Otherwise a name may be a part of a scale.
      scales.update(name for state in theirs for name in state.names)
    self._match_plain(
      [n for n in like if n in self.wanted],
      [n for n in like_there if n in self.given and n not in scales],
    )

  def _are_equal(self, ours: list[str], theirs: list[str]) -> bool:
    """Returns whether variables are called the same, and are of one kind."""
    return set(ours) == set(theirs) and all(
      self.wanted[name] == self.variables[name].spec for name in ours
    )

  def _take_scale(
    self,
    state: names.State,
    other: names.State,
    proof: str,
    only: Collection[str] | None = None,
  ) -> None:
    found = layouts.scale_of(self.variables, other, state.api)
    for name in other.names:
      self.given.pop(name, None)
    for name, source in zip(state.names, found):
      if name not in (self.wanted if only is None else only):
        continue
      same = layouts.origin(source) == name and not isinstance(source, Literal)
      how = (
        (proof or _CONVERTED) if layouts.origin(source) else report.NOT_COUNTED
      )
      self.take(name, source, "" if same else how)

  def match_powers(self) -> None:
    """Gives optimizers' powers theirs."""
    kinds: dict[str, list[str]] = {}
    for name, tensor in self.wanted.items():
      if names.is_power(name, tensor):
        kinds.setdefault(names.base(name), []).append(name)
    for base, ours in kinds.items():
      theirs = [
        name
        for name in self.given
        if names.base(name) == base
        and names.is_power(name, self.variables[name].spec)
      ]
      # What serves nothing is a variable of the user's.
      plain = [n for n in ours if self.here.is_users(n)]
      plain_there = [n for n in theirs if self.there.is_users(n)]
      certain = self.here.has_evidence and self.there.has_evidence
      if set(ours) == set(theirs) and (
        set(plain) == set(plain_there) or not certain
      ):
        self._match_alike(ours, theirs)
      elif (plain or plain_there) and not certain:
        self._leave_open(ours, theirs)
      else:
        self._match_alike(
          [n for n in ours if n not in plain],
          [n for n in theirs if n not in plain_there],
        )
        self._match_plain(plain, plain_there)

  def match_rest(self) -> None:
    """Gives what is left to variables whose names differ in their conds."""
    for base in self._own_bases():
      # An optimizer's own variables: a graph proves whose they are.
      ours = [n for n in self.wanted if names.base(n) == base]
      theirs = [n for n in self.given if names.base(n) == base]
      found = self._pair(ours, theirs, keeps_scope=True)
      for a, (b, proof) in found.pairs.items():
        if found.is_exact or a.serves & b.serves:
          self.take(a.names[0], self.variables[b.names[0]], proof)
      for item in found.undecided:
        (name,) = item.names
        if any(other.names == item.names for other in found.candidates(item)):
          self.take(name, self.variables[name])
    families: dict[str, list[str]] = {}
    for name in self.wanted:
      families.setdefault(self.here.without_conds(name), []).append(name)
    families_there: dict[str, list[str]] = {}
    for name in self.given:
      family = self.there.without_conds(name)
      families_there.setdefault(family, []).append(name)
    for family, ours in families.items():
      self._match_alike(ours, families_there.get(family, []))

  def _pair(
    self, ours: list[str], theirs: list[str], keeps_scope: bool
  ) -> _pairing.Pairing:
    return side.pair(
      self.here,
      self.there,
      [self.here.item((name,)) for name in ours],
      [self.there.item((name,)) for name in theirs],
      keeps_scope,
    )

  def _match_alike(self, ours: list[str], theirs: list[str]) -> None:
    """Gives variables those of their kind."""
    found = self._pair(ours, theirs, keeps_scope=False)
    for a, (b, proof) in found.pairs.items():
      self.take(a.names[0], self.variables[b.names[0]], proof)
    for a in found.missing:
      self.take(a.names[0], None)
    self._leave_undecided(found)

  def _match_plain(self, ours: list[str], theirs: list[str]) -> None:
    """Gives variables of the user's that are called like an optimizer's."""

    def key(name: str, tensor: TensorSpec) -> tuple[str, str, TensorSpec]:
      return names.split_scope(name)[0], names.base(name), tensor

    for name in ours:
      source = self.variables.get(name)
      if name in theirs and source and source.spec == self.wanted[name]:
        self.take(name, source)
    kinds: dict[tuple[str, str, TensorSpec], list[str]] = {}
    for name in [name for name in ours if name in self.wanted]:
      kinds.setdefault(key(name, self.wanted[name]), []).append(name)
    for kind, mine in kinds.items():
      others = [
        name
        for name in theirs
        if name in self.given and key(name, self.variables[name].spec) == kind
      ]
      if len(mine) == len(others) == 1:
        source = self.variables[others[0]]
        self.take(mine[0], source, "the only other variable of that name")
      elif others:
        self._leave_open(mine, others)
      else:
        for name in mine:
          self.take(name, None)

  def _leave_undecided(self, found: _pairing.Pairing) -> None:
    """Notes what the evidence does not decide."""
    if not found.undecided:
      return
    ours = names.in_order(a.names[0] for a in found.undecided)
    theirs = names.in_order(
      {b.names[0] for a in found.undecided for b in found.candidates(a)}
    )
    groups = {a.names[0]: a.names for a in found.undecided}
    others = {b.names[0]: b.names for b in found.left}
    likely = [
      pair for a, b in zip(ours, theirs) for pair in zip(groups[a], others[b])
    ]
    self._leave_open(
      [n for a in ours for n in groups[a]],
      [n for b in theirs for n in others[b]],
      likely if len(ours) == len(theirs) else (),
    )

  def _leave_open(
    self,
    ours: list[str],
    theirs: list[str],
    likely: Iterable[tuple[str, str]] = (),
  ) -> None:
    for name in ours:
      self.wanted.pop(name, None)
    for name in theirs:
      self.given.pop(name, None)
    self.undecided.append(problems.Undecided(ours, theirs, dict(likely)))


def match(
  here: Side,
  there: Side,
  variables: layouts.Variables,
  path: str,
  *,
  excused: Mapping[str, str] | None = None,
  mapping: Mapping[str, str | None] | None = None,
  missing: str = "error",
) -> layouts.Match:
  """Finds a tensor for every variable.

  Args:
    here: The variables to restore.
    there: Those of the checkpoint.
    variables: The same, name -> where the tensor is.
    path: The checkpoint, for messages.
    excused: Those that are not to be restored -> why.
    mapping: Variable -> its name in the checkpoint, or None to initialize it,
      as the caller decided.
    missing: 'error', or 'initialize' for variables that are not there.

  Returns:
    What is found.

  Raises:
    CheckpointError: There is nothing for a variable, it is of another dtype or
      shape, or nothing proves which one it is.
    ValueError: The mapping has a name that is not there.
  """
  side.look_at_both(here, there)
  matcher = _Matcher(here, there, variables)
  matcher.excuse(excused or {})
  matcher.apply_mapping(mapping or {})
  matcher.match_names()
  matcher.match_scales()
  matcher.match_powers()
  matcher.match_rest()
  if missing == "initialize":
    matcher.excuse(dict.fromkeys(matcher.missing, report.NOT_THERE))
    matcher.missing = []
  if matcher.missing or matcher.misfits or matcher.undecided:
    raise problems.unmatched(
      path,
      [
        f"{name} in it is proven to be another optimizer's"
        if name in variables
        else f"{name}{problems.nearest(name, variables)} is not in it"
        for name in matcher.missing[: problems.MOST]
      ]
      + matcher.misfits,
      len(matcher.missing) + len(matcher.misfits),
      matcher.undecided,
      there.has_evidence,
    )
  return matcher.result
