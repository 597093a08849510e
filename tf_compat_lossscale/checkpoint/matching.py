"""Which tensor of a checkpoint a variable is to get, by names and proofs.

Names decide, with one exception. The names of Adam's powers and of loss scales
depend on the control flow, and on which optimizers have a loss scale. They
decide if all of them are equal on both sides; otherwise each variable needs a
proof of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses

from tf_compat_lossscale.checkpoint import _errors
from tf_compat_lossscale.checkpoint import _pairing
from tf_compat_lossscale.checkpoint import layouts
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint._pairing import Item
from tf_compat_lossscale.checkpoint.bundle import Tensor
from tf_compat_lossscale.checkpoint.evidence import Evidence
from tf_compat_lossscale.checkpoint.evidence import Owners
from tf_compat_lossscale.checkpoint.writing import Literal
from tf_compat_lossscale.checkpoint.writing import Source

_NO_SCALE = "the checkpoint has no loss scale for it"
_NOT_THERE = "it is not in the checkpoint"
_NOT_COUNTED = "the loss scale in the checkpoint does not count them"
_CONVERTED = "of the loss scale of another API"
_ASKED = "as the mapping says"
_MAPPED = "the mapping says so"


@dataclasses.dataclass
class Match:
  """Variables and their tensors.

  Attributes:
    sources: Variable -> where its value comes from.
    initialized: Variable -> why it is to start from its initial value.
    proofs: Variable -> how its source was found, if not by its name.
  """

  sources: dict[str, Source] = dataclasses.field(default_factory=dict)
  initialized: dict[str, str] = dataclasses.field(default_factory=dict)
  proofs: dict[str, str] = dataclasses.field(default_factory=dict)

  @property
  def exact(self) -> bool:
    """Whether every variable gets what has its name, as it is."""
    return not self.initialized and all(
      origin(source) == name and not isinstance(source, Literal)
      for name, source in self.sources.items()
    )


def origin(source: Source) -> str:
  """The key that a value comes from."""
  return source.origin if isinstance(source, Literal) else source.name


class Side:
  """Variables by name, and what is known of them: of a graph or a checkpoint.

  Attributes:
    tensors: Name -> dtype and shape.
    has_evidence: Whether anything but names is known.
  """

  def __init__(
    self,
    tensors: Mapping[str, Tensor],
    find_evidence: Callable[[], Evidence | None],
  ) -> None:
    """Takes variables.

    Args:
      tensors: Name -> dtype and shape.
      find_evidence: Finds what proves whose the variables are. It is called
        when names do not decide.
    """
    self.tensors = dict(tensors)
    self._find_evidence = find_evidence
    self._evidence: Evidence | None = None
    self._owners = Owners()
    self.has_evidence = False

  def look(self, wanted: Iterable[str]) -> None:
    """Has evidence found for some variables."""
    self._evidence = self._find_evidence()
    self.has_evidence = self._evidence is not None
    if self._evidence:
      self._owners = self._evidence.owners(
        [name for name in wanted if name in self.tensors]
      )

  @property
  def trained(self) -> frozenset[str]:
    """The variables that are known to be trained."""
    return self._owners.trained

  def is_in_cond(self, name: str) -> bool:
    """Returns whether a variable is known to be created in a cond."""
    return bool(self._evidence and self._evidence.is_in_cond(name))

  def cond(self, name: str) -> str | None:
    """Returns the cond of TensorFlow 2 that a variable is updated in."""
    return self._owners.conds.get(name)

  @property
  def order(self) -> dict[str, int]:
    """Variable -> its place in the order of their creation, if known."""
    order = self._evidence.order if self._evidence else []
    return {name: i for i, name in enumerate(order)}

  def serves(self, name: str) -> frozenset[str] | None:
    """Returns what depends on a variable; None if that is not known."""
    return self._owners.serves.get(name)

  def item(self, found: tuple[str, ...], api: str = "") -> Item:
    """Returns variables as an item that can be paired."""
    name = found[0]
    scope: str | None = names.split_scope(names.without_conds(name))[0]
    cond = self._owners.conds.get(name)
    if not api and cond:
      # Variables that are made in a cond of TensorFlow 2 have no scope.
      scope = names.split_scope(cond)[0]
    elif not api and not scope and not self.has_evidence:
      scope = "" if names.innermost_cond(name) is not None else None
    serves = self._owners.serves.get(name, frozenset())
    firm = frozenset(
      n
      for n in serves
      if n in self.tensors
      and self.tensors[n].dtype not in names.INTEGERS
      and not names.is_special(n, self.tensors[n])
    )
    return Item(found, scope, firm, api)

  @property
  def scales(self) -> names.Scales:
    """The loss scales, and what could be one's."""
    others = [n for n, serves in self._owners.serves.items() if not serves]
    proven = self._owners.scales
    return names.loss_scales(self.tensors, proven, others if proven else ())

  def without_conds(self, name: str) -> str:
    """Returns a name without the conds that its variable was created in."""
    if self.has_evidence and not self.is_in_cond(name):
      return name
    return names.without_conds(name)


class _Matcher:
  """Finds a source for each variable, one kind after the other."""

  def __init__(
    self, here: Side, there: Side, variables: layouts.Variables
  ) -> None:
    self.here, self.there = here, there
    self.variables = variables
    self.result = Match()
    self.wanted = dict(here.tensors)
    self.given = dict.fromkeys(variables)
    self.missing: list[str] = []
    self.undecided: list[_errors.Undecided] = []
    self.misfits: list[str] = []

  def take(self, name: str, source: Source | None, proof: str = "") -> None:
    """Gives a variable its source; None if it has none."""
    tensor = self.wanted.pop(name)
    if source is None:
      self.missing.append(name)
      return
    self.given.pop(origin(source), None)
    if source.tensor != tensor:
      self.misfits.append(f"{name} is {tensor} but {source.tensor} in it")
      return
    self.result.sources[name] = source
    if proof:
      self.result.proofs[name] = proof

  def excuse(self, excused: Mapping[str, str]) -> None:
    """Leaves out variables: name -> why they are to be initialized."""
    for name, why in excused.items():
      self.wanted.pop(name, None)
      self.result.initialized[name] = why

  def map(self, mapping: Mapping[str, str | None]) -> None:
    """Does what the caller decided."""
    ours = {n: s for s in self.here.scales.known for n in s.names}
    theirs = {n: s for s in self.there.scales.known for n in s.names}
    for name, key in mapping.items():
      if name not in self.here.tensors:
        near = _errors.nearest(name, self.here.tensors)
        raise ValueError(f"mapping names {name!r}{near}, which is no variable.")
      if key is not None and key not in self.variables:
        near = _errors.nearest(key, self.variables)
        raise ValueError(
          f"mapping has {key!r}{near} for {name!r}, which is not in the "
          "checkpoint."
        )
    for name, key in mapping.items():
      state, other = ours.get(name), theirs.get(key or "")
      if name not in self.wanted:
        continue
      if key is None:
        self.excuse({name: _ASKED})
      elif state and other and not set(state.names) - {name} & set(mapping):
        self._take_scale(state, other, _MAPPED)
      elif state and other and state.api != other.api:
        found = layouts.scale_of(self.variables, other, state.api)
        index = state.names.index(name)
        self.take(name, found[index], _MAPPED)
      else:
        self.take(name, self.variables[key], _MAPPED * (name != key))

  def match_names(self) -> None:
    """Gives what has its own name, unless names depend on more than that."""
    for name, tensor in list(self.wanted.items()):
      if names.is_special(name, tensor) or name not in self.given:
        continue
      if not self.here.is_in_cond(name) and not self.there.is_in_cond(name):
        self.take(name, self.variables[name])

  def match_scales(self) -> None:
    """Gives loss scales theirs."""
    like = [n for n, t in self.wanted.items() if names.is_like_scale(n, t)]
    like_there = [
      n for n in self.given if names.is_like_scale(n, self.variables[n].tensor)
    ]
    sides = ((self.here, like), (self.there, like_there))
    ours, theirs = (
      [s for s in side.scales.known if set(s.names) <= set(members)]
      for side, members in sides
    )
    found = self._pair(
      [self.here.item(s.names, s.api) for s in ours],
      [self.there.item(s.names, s.api) for s in theirs],
      keeps_scope=True,
    )
    if self._are_equal(like, like_there) and (
      found.is_exact
      if {s.names for s in ours} == {s.names for s in theirs}
      else not (self.here.has_evidence and self.there.has_evidence)
    ):
      for name in like:
        self.take(name, self.variables[name])
      return
    if like and any(side.scales.unclear & set(them) for side, them in sides):
      self._leave_open(like, like_there)
      return
    states = {s.names: s for s in [*ours, *theirs]}
    for a, (b, proof) in found.pairs.items():
      self._take_scale(states[a.names], states[b.names], proof)
    for a in found.missing:
      self.excuse(dict.fromkeys(a.names, _NO_SCALE))
    self._leave_undecided(found)
    scales = {name for state in theirs for name in state.names}
    self._match_plain(
      [n for n in like if n in self.wanted],
      [n for n in like_there if n in self.given and n not in scales],
    )

  def _are_equal(self, ours: list[str], theirs: list[str]) -> bool:
    """Returns whether variables are called the same, and are of one kind."""
    return set(ours) == set(theirs) and all(
      self.wanted[name] == self.variables[name].tensor for name in ours
    )

  def _take_scale(
    self, state: names.State, other: names.State, proof: str
  ) -> None:
    found = layouts.scale_of(self.variables, other, state.api)
    for name in other.names:
      self.given.pop(name, None)
    for name, source in zip(state.names, found):
      if not origin(source):
        self.excuse({name: _NOT_COUNTED})
        continue
      same = origin(source) == name and not isinstance(source, Literal)
      self.take(name, source, "" if same else proof or _CONVERTED)

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
        and names.is_power(name, self.variables[name].tensor)
      ]
      # What serves nothing is a variable of the user's.
      plain = [n for n in ours if self.here.serves(n) == frozenset()]
      plain_there = [n for n in theirs if self.there.serves(n) == frozenset()]
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
    in_conds = [n for n in self.wanted if self.here.is_in_cond(n)]
    in_conds_there = [n for n in self.given if self.there.is_in_cond(n)]
    for base in {names.base(n) for n in [*in_conds, *in_conds_there]}:
      # An optimizer's own variables: a graph proves whose they are.
      ours = [n for n in self.wanted if names.base(n) == base]
      theirs = [n for n in self.given if names.base(n) == base]
      if not set(ours) <= set(in_conds):
        theirs = [n for n in theirs if n in in_conds_there]
      found = self._pair(*self._items(ours, theirs), keeps_scope=True)
      for a, (b, proof) in found.pairs.items():
        if found.is_exact or a.serves & b.serves:
          self.take(a.names[0], self.variables[b.names[0]], proof)
    families: dict[str, list[str]] = {}
    for name in self.wanted:
      families.setdefault(self.here.without_conds(name), []).append(name)
    for family, ours in families.items():
      self._match_alike(
        ours, [n for n in self.given if self.there.without_conds(n) == family]
      )

  def _items(
    self, ours: list[str], theirs: list[str]
  ) -> tuple[list[Item], list[Item]]:
    return (
      [self.here.item((name,)) for name in ours],
      [self.there.item((name,)) for name in theirs],
    )

  def _match_alike(self, ours: list[str], theirs: list[str]) -> None:
    """Gives variables those of their kind."""
    found = self._pair(*self._items(ours, theirs), keeps_scope=False)
    for a, (b, proof) in found.pairs.items():
      self.take(a.names[0], self.variables[b.names[0]], proof)
    for a in found.missing:
      self.take(a.names[0], None)
    self._leave_undecided(found)

  def _match_plain(self, ours: list[str], theirs: list[str]) -> None:
    """Gives variables of the user's that are called like an optimizer's."""
    for name in [n for n in ours if n in theirs]:
      self.take(name, self.variables[name])
    for name in [n for n in ours if n not in theirs]:
      family = names.split_scope(name)[0], names.base(name)
      alike = [
        [n for n in side if (names.split_scope(n)[0], names.base(n)) == family]
        for side in ([n for n in ours if n in self.wanted], theirs)
      ]
      alike[1] = [n for n in alike[1] if n in self.given]
      if len(alike[1]) > 1 or len(alike[0]) > len(alike[1]) > 0:
        self._leave_open([name], alike[1])
      else:
        source = self.variables[alike[1][0]] if alike[1] else None
        self.take(name, source, "the only other variable of that name")

  def _pair(
    self, ours: list[Item], theirs: list[Item], keeps_scope: bool
  ) -> _pairing.Pairing:
    common = set(self.here.tensors) & set(self.there.tensors)

    def shared(item: Item) -> Item:
      return item._replace(serves=item.serves & common)

    return _pairing.pair(
      list(map(shared, ours)),
      list(map(shared, theirs)),
      (self.here.trained & common, self.there.trained & common),
      keeps_scope,
    )

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
      likely,
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
    self.undecided.append(_errors.Undecided(ours, theirs, dict(likely)))


def match(
  here: Side,
  there: Side,
  variables: layouts.Variables,
  path: str,
  *,
  excused: Mapping[str, str] | None = None,
  mapping: Mapping[str, str | None] | None = None,
  missing: str = "error",
) -> Match:
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
  matcher = _Matcher(here, there, variables)
  if _needs_evidence(here.tensors, there.tensors):
    fragile = [
      name
      for side in (here, there)
      for name, tensor in side.tensors.items()
      if names.is_special(name, tensor)
      or name not in here.tensors
      or name not in there.tensors
    ]
    here.look(fragile)
    there.look(fragile)
  matcher.excuse(excused or {})
  matcher.map(mapping or {})
  matcher.match_names()
  matcher.match_scales()
  matcher.match_powers()
  matcher.match_rest()
  if missing == "initialize":
    matcher.excuse(dict.fromkeys(matcher.missing, _NOT_THERE))
    matcher.missing = []
  problems = [
    f"{name}{_errors.nearest(name, variables)} is not in it"
    for name in matcher.missing
  ] + matcher.misfits
  if problems or matcher.undecided:
    raise _errors.unmatched(path, problems, matcher.undecided)
  return matcher.result


def _needs_evidence(
  here: Mapping[str, Tensor], there: Mapping[str, Tensor]
) -> bool:
  """Returns whether names alone do not decide."""
  if not set(here) <= set(there):
    return True
  special = [n for n, tensor in here.items() if names.is_special(n, tensor)]
  others = [n for n, tensor in there.items() if names.is_special(n, tensor)]
  powers = [names.base(name) for name in special if names.is_power(name)]
  return (
    set(special) != set(others)
    or len(powers) != len(set(powers))
    or any(not names.is_power(name) for name in special)
  )
