# SPDX-License-Identifier: Apache-2.0
"""Finds the value of each variable in a checkpoint by its name.

A program with TensorFlow 2's control flow, for example, gets the values of one
with TensorFlow 1's:

    program             checkpoint           why
    w                   w                    equal names
    w/Adam              w/Adam               equal names
    current_loss_scale  loss_scale           the only loss scale
    good_steps          good_steps           the only loss scale (int32)
    beta1_power         cond/beta1_power     the only power of that name

Some names depend on the API or on conds (see `names`): they may be another
optimizer's in the checkpoint. These are variables of one kind: loss scales,
`beta1_power`, `beta2_power`, and others that optimizers make in conds. A kind
is decided on as a whole, by the first rule that applies:

1. Program and checkpoint have the same names of that kind: equal names.
2. There is one place and one candidate, or one of each in every scope.
3. There is an error. It lists places and candidates, and the mapping in the
   order of creation. If the caller says `same_order`, that mapping is used.

`check_powers` looks at the values, and refuses those of another optimizer.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import difflib
import math
import shlex

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint.names import ScaleNames
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import CheckpointError
from tf_compat_lossscale.checkpoint.reading import TensorSpec

MOST = 20  # The number of problems that a message lists at most.
_COMPARED = 300  # The number of names that a name is compared with at most.
# Reasons why a variable does not get a value of the checkpoint, for reports.
NO_SCALE = "the checkpoint has no loss scale for it"
NOT_THERE = "it is not in the checkpoint"
NO_COUNT = "the checkpoint's loss scale has no such variable"
PARTIAL = "the checkpoint has a loss scale without its variable"
NOT_COUNTED = "that loss scale has no such count; it starts from 0"
MAPPED = "the mapping says so"
_CONVERTED = "of the loss scale of another API"
_SAME_ORDER = "same_order says so"
_ONLY = "the only {} in the checkpoint"
_ONLY_IN_SCOPE = "the only {} in its scope"
_FLOATS = {"float16", "bfloat16", "float32", "float64"}
_COUNTERS = {"int32", "int64"}


@dataclasses.dataclass(frozen=True)
class Source:
  """The source of a variable's value.

  Attributes:
    key: The tensor in the checkpoint; "" if there is none.
    spec: The dtype and shape of the value. The tensor is cast if it has
      another dtype.
    value: The value, if it is not the tensor's.
    factor: What the tensor is multiplied by.
  """

  key: str
  spec: TensorSpec
  value: float | int | None = None
  factor: float = 1.0

  def read(self, checkpoint: Checkpoint) -> np.ndarray:
    """Returns the value.

    Raises:
      CheckpointError: The tensor is damaged, or does not fit the dtype.
    """
    if self.value is not None:
      dtype = tf.as_dtype(self.spec.dtype).as_numpy_dtype
      return np.full(self.spec.shape, self.value, dtype)
    return self.change(checkpoint.read(self.key), checkpoint.prefix)

  def change(self, value: np.ndarray, path: str) -> np.ndarray:
    """Returns the value that comes of a tensor, or of a slice of it.

    Args:
      value: The tensor.
      path: The checkpoint, for messages.

    Raises:
      CheckpointError: The tensor does not fit the dtype.
    """
    dtype = tf.as_dtype(self.spec.dtype).as_numpy_dtype
    if self.factor != 1:
      value = (value * self.factor).astype(value.dtype)
    if value.dtype == dtype:
      return value
    with np.errstate(over="ignore"):
      cast: np.ndarray = value.astype(dtype)
    if self.spec.dtype in _FLOATS:
      is_whole = np.array_equal(
        np.isfinite(cast.astype(np.float64)),
        np.isfinite(value.astype(np.float64)),
      )
    else:
      is_whole = np.array_equal(cast, value)
    if not is_whole:
      raise CheckpointError(
        f"{path}: {self.key} has values that {self.spec.dtype} cannot hold"
      )
    return cast


@dataclasses.dataclass(frozen=True)
class Wishes:
  """What the caller of a restore by name wants.

  Attributes:
    mapping: Variable -> its name in the checkpoint, or None to initialize it.
    missing: 'error', or 'initialize' for variables that the checkpoint lacks.
    same_order: Whether both programs make their optimizers in one order.
    cast: Whether weights may have another floating-point dtype.
    excused: Variables that are not to be restored -> the reason.
  """

  mapping: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
  missing: str = "error"
  same_order: bool = False
  cast: bool = False
  excused: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Match:
  """The source of each variable's value.

  Attributes:
    sources: Variable -> the source of its value.
    initialized: Variable -> why it starts from its initial value instead.
    reasons: Variable -> how its source was found, if not by its own name.
    unused: The tensors of the checkpoint that no variable gets, sorted.
    notes: What the user should know besides, in sentences.
  """

  sources: dict[str, Source] = dataclasses.field(default_factory=dict)
  initialized: dict[str, str] = dataclasses.field(default_factory=dict)
  reasons: dict[str, str] = dataclasses.field(default_factory=dict)
  unused: tuple[str, ...] = ()
  notes: tuple[str, ...] = ()

  @property
  def is_exact(self) -> bool:
    """Whether every variable gets the tensor of its own name, unchanged."""
    return not self.initialized and not self.reasons


@dataclasses.dataclass(frozen=True)
class Undecided:
  """Variables for which names do not tell which tensor is theirs.

  Attributes:
    here: The variables of the program, or of the new checkpoint.
    there: The candidates in the checkpoint.
    likely: The pairs if both sides were created in the same order; {} if the
      order is not known.
  """

  here: Sequence[str]
  there: Sequence[str]
  likely: Mapping[str, str] = dataclasses.field(default_factory=dict)


def match_names(
  wanted: Mapping[str, TensorSpec],
  sources: Mapping[str, Source],
  path: str,
  wishes: Wishes,
  others: Mapping[str, TensorSpec] | None = None,
  order: Iterable[str] = (),
) -> Match:
  """Finds the source of every variable's value.

  Args:
    wanted: Variable -> dtype and shape.
    sources: Name in the checkpoint -> the tensor.
    path: The checkpoint, for messages.
    wishes: What the caller decided.
    others: The program's further variables, in the same form. They are not
      restored, but may have the better claim to a tensor.
    order: All these variables in the order of creation, if it is known.

  Raises:
    CheckpointError: The checkpoint has nothing for a variable, or a tensor of
      another dtype or shape, or several candidates.
    ValueError: The mapping has a name that does not exist.
  """
  return _Matching(wanted, sources, path, wishes, others, order).run()


class _Matching:
  """A match whose steps each decide on some variables.

  Attributes:
    here: The program's variables that nothing is decided about yet.
    there: The same of the checkpoint.
  """

  def __init__(
    self,
    wanted: Mapping[str, TensorSpec],
    sources: Mapping[str, Source],
    path: str,
    wishes: Wishes,
    others: Mapping[str, TensorSpec] | None,
    order: Iterable[str],
  ) -> None:
    self.wanted, self.sources, self.path = wanted, sources, path
    self.wishes = wishes
    self.order = {name: i for i, name in enumerate(order)}
    self.here = {**wanted, **(others or {})}
    self.all_here = dict(self.here)
    self.there = {name: source.spec for name, source in sources.items()}
    self.match = Match()
    self.missing: list[str] = []
    self.misfits: list[str] = []
    self.undecided: list[Undecided] = []

  def run(self) -> Match:
    """Decides on all variables."""
    for name, why in self.wishes.excused.items():
      self.initialize(name, why)
    if self.wishes.mapping:
      self.apply_mapping()
    self.pair_scales()
    powers = names.group(
      (name for name, spec in self.here.items() if names.is_power(name, spec)),
      names.get_base,
    )
    for base, ours in powers.items():
      theirs = [
        name
        for name, spec in self.there.items()
        if names.get_base(name) == base and names.is_power(name, spec)
      ]
      self.pair_kind(ours, theirs)
    self.pair_rest()
    if self.wishes.missing == "initialize":
      self.match.initialized.update(dict.fromkeys(self.missing, NOT_THERE))
      self.missing = []
    if self.missing or self.misfits or self.undecided:
      raise self.make_error()
    used = {source.key for source in self.match.sources.values()}
    keys = {source.key for source in self.sources.values() if source.key}
    self.match.unused = tuple(sorted(keys - used))
    return self.match

  def assign(
    self, name: str, source: Source, why: str = "", is_mapped: bool = False
  ) -> None:
    """Decides on a variable's source, and says why if its name differs."""
    spec = self.here.pop(name)
    if name not in self.wanted:
      return
    if source.spec != spec:
      kinds = {source.spec.dtype, spec.dtype}
      is_count = kinds <= _COUNTERS and not spec.shape
      is_free = is_count and (
        is_mapped or names.is_named_like_scale(name, spec)
      )
      if source.spec.shape == spec.shape and (
        is_free or (self.wishes.cast and kinds <= _FLOATS)
      ):
        why = why or f"cast from {source.spec.dtype}"
        source = dataclasses.replace(source, spec=spec)
      else:
        hint = ""
        if source.spec.shape == spec.shape and kinds <= _FLOATS:
          hint = "; cast=True converts"
        self.misfits.append(
          f"{name} is {show_spec(spec)} but {show_spec(source.spec)} in it"
          f"{hint}"
        )
        return
    self.match.sources[name] = source
    if why:
      self.match.reasons[name] = why

  def pair(self, name: str, key: str, why: str) -> None:
    """Gives a variable a tensor that no other variable gets."""
    del self.there[key]
    self.assign(name, self.sources[key], "" if name == key else why)

  def initialize(self, name: str, why: str) -> None:
    """Decides that a variable starts from its initial value."""
    if self.here.pop(name, None) is not None and name in self.wanted:
      self.match.initialized[name] = why

  def choose(
    self,
    ours: Mapping[str, Sequence[str]],
    theirs: Mapping[str, Sequence[str]],
  ) -> dict[str, str]:
    """Chooses among several candidates, if the caller says `same_order`.

    Args:
      ours: Variable -> itself, and the variables that belong to it.
      theirs: The same of the candidates.

    Returns:
      Variable -> candidate; {} if the variables are noted as undecided.
    """
    ordered = self.sort_by_creation(ours)
    others = names.sort_by_creation(theirs)
    pairs: dict[str, str] = {}
    if ordered and others and len(ordered) == len(others):
      pairs = dict(zip(ordered, others))
    if self.wishes.same_order and pairs:
      return pairs
    here, there = (
      [name for first in firsts for name in groups[first]]
      for firsts, groups in (
        (ordered or sorted(ours), ours),
        (others or sorted(theirs), theirs),
      )
    )
    likely = {
      name: key
      for first, other in pairs.items()
      for name, key in zip(ours[first], theirs[other])
    }
    for name in here:
      self.here.pop(name, None)
    if any(name in self.wanted for name in here):
      self.undecided.append(Undecided(here, there, likely))
    return {}

  def sort_by_creation(self, ours: Iterable[str]) -> list[str] | None:
    """Sorts variables of the program in the order of creation, if known."""
    ours = list(ours)
    if all(name in self.order for name in ours):
      return sorted(ours, key=self.order.__getitem__)
    return names.sort_by_creation(ours)

  def apply_mapping(self) -> None:
    """Gives variables the sources that the caller decided on.

    A mapping of one power decides on the other power of the same Adam, and a
    mapping of one variable of a loss scale on the rest of the loss scale.
    """
    mapping = dict(self.wishes.mapping)
    for name, key in mapping.items():
      if name not in self.wanted:
        near = suggest(name, self.wanted)
        raise ValueError(f"mapping names {name!r}{near}, which is no variable.")
      if key is not None and key not in self.sources:
        near = suggest(key, self.sources)
        raise ValueError(
          f"mapping has {key!r}{near} for {name!r}, which is not in the "
          "checkpoint."
        )
    for name, key in self.wishes.mapping.items():
      if key and names.is_power(name, self.all_here[name]):
        other, other_key = map(names.get_other_power, (name, key))
        if other in self.here and other_key in self.sources:
          mapping.setdefault(other, other_key)
    mapped_scales = [
      scale
      for scale in names.find_scales(self.here).known
      if not mapping.keys().isdisjoint(scale.names)
    ]
    theirs = {
      name: scale
      for scale in names.find_scales(self.there).known
      for name in scale.names
    }
    for name, key in mapping.items():
      if name not in self.here:
        continue
      if key is None:
        self.initialize(name, MAPPED)
        continue
      if self.depends_on_optimizers(key):  # It can be one variable's only.
        self.there.pop(key, None)
      why = "" if name == key else MAPPED
      self.assign(name, self.sources[key], why, is_mapped=True)
    for scale in mapped_scales:
      self.map_rest_of_scale(scale, mapping, theirs)

  def depends_on_optimizers(self, key: str) -> bool:
    """Returns whether a name in the checkpoint depends on the optimizers."""
    spec = self.sources[key].spec
    return (
      names.is_power(key, spec)
      or names.is_named_like_scale(key, spec)
      or _is_in_cond(key)
    )

  def map_rest_of_scale(
    self,
    scale: ScaleNames,
    mapping: Mapping[str, str | None],
    theirs: Mapping[str, ScaleNames],
  ) -> None:
    """Decides on the variables of a loss scale that the mapping leaves out."""
    if mapping.get(scale.names[0], "") is None:
      for name in (*scale.names, *scale.counts):
        self.initialize(name, MAPPED)
      return
    keys = {mapping.get(name) or "" for name in scale.names}
    found = {theirs[key] for key in keys if key in theirs}
    if len(found) == 1:
      self.assign_scale(scale, found.pop(), MAPPED)
      return
    for name in scale.names:
      spec = self.here.get(name)
      if spec and _is_bad_steps(name, spec):
        self.assign(name, Source("", spec, 0), NOT_COUNTED)
      elif spec and self.there.get(name) == spec and not found:
        self.pair(name, name, "")
      elif not found:
        self.initialize(name, PARTIAL)
    self.assign_counts(scale, None, "")

  def pair_scales(self) -> None:
    """Decides on loss scales, and the user's variables with such names."""
    here, there = names.find_scales(self.here), names.find_scales(self.there)
    ours, theirs = (
      [n for n, spec in side.items() if names.is_named_like_scale(n, spec)]
      for side in (self.here, self.there)
    )
    if not ours:
      return
    if {n: self.here[n] for n in ours} == {n: self.there[n] for n in theirs}:
      counted = {scale.names[0]: scale for scale in there.known}
      for name in ours:
        self.pair(name, name, "")
      for scale in here.known:
        self.assign_counts(scale, counted.get(scale.names[0]), "")
      return
    if here.unclear or there.unclear:
      self._choose_alone(ours, theirs)
      return
    self.pair_known_scales(here.known, there.known, there.likely)
    mapped = {names.split_scope(name)[0] for name in self.wishes.mapping}
    known = {name for scale in there.known for name in scale.names}
    for name in ours:
      if name not in self.here:
        continue  # It is a loss scale's.
      spec = self.here[name]
      alike = [
        n
        for n, other in self.there.items()
        if names.get_base(n) == names.get_base(name) and other == spec
      ]
      is_mapped = names.split_scope(name)[0] in mapped
      if self.there.get(name) == spec and (is_mapped or name not in known):
        self.pair(name, name, "")
      elif alike:
        self._choose_alone([name], alike)
      elif is_mapped and _is_bad_steps(name, spec):
        self.assign(name, Source("", spec, 0), NOT_COUNTED)
      else:
        self.miss(name)

  def pair_known_scales(
    self,
    ours: list[ScaleNames],
    theirs: list[ScaleNames],
    incomplete: list[ScaleNames],
  ) -> None:
    """Pairs whole loss scales.

    Args:
      ours: Those of the program.
      theirs: Those of the checkpoint.
      incomplete: What may be more of them. Only equal names are restored.
    """
    mine = {scale.names[0]: scale for scale in ours}
    others = {scale.names[0]: scale for scale in theirs}
    if others:
      others |= {scale.names[0]: scale for scale in incomplete}
    found, why = _pair_by_scope(list(mine), list(others), False, "loss scale")
    if found is None:
      found, why = self._choose_scales(mine, others), _SAME_ORDER
    for name, scale in mine.items():
      if name in found and others[found[name]] not in incomplete:
        self.assign_scale(scale, others[found[name]], why)
      elif name in self.here:
        self.assign_parts(scale)

  def _choose_scales(
    self, ours: Mapping[str, ScaleNames], theirs: Mapping[str, ScaleNames]
  ) -> dict[str, str]:
    found = self.choose(
      {name: scale.names for name, scale in ours.items()},
      {name: scale.names for name, scale in theirs.items()},
    )
    for scale in [] if found else ours.values():
      for name in scale.counts:
        self.here.pop(name, None)
    return found

  def assign_scale(
    self, scale: ScaleNames, source: ScaleNames, why: str
  ) -> None:
    """Gives a loss scale the values of another, perhaps of another API."""
    for name, key in zip(scale.names, source.names):
      if name in self.here:
        self.there.pop(key, None)
        is_same = name == key and scale.api == source.api
        reason = why if scale.api == source.api else _CONVERTED
        self.assign(name, self.sources[key], "" if is_same else reason)
    if scale.api == names.CONTRIB and scale.names[2] in self.here:
      spec = self.here[scale.names[2]]
      self.assign(scale.names[2], Source("", spec, 0), NOT_COUNTED)
    for key in source.names:
      self.there.pop(key, None)
    self.assign_counts(scale, source, why)

  def assign_counts(
    self, scale: ScaleNames, source: ScaleNames | None, why: str
  ) -> None:
    """Decides on GrowthBackoff's counts beside a loss scale.

    Args:
      scale: The loss scale of the program.
      source: The loss scale that it gets; None if there is none.
      why: How the source was found, if not by its names.
    """
    keys = dict(zip(scale.counts, source.counts)) if source else {}
    if source and source.api == names.CONTRIB and scale.counts:
      keys[scale.counts[0]] = source.names[2]
    for name in scale.counts:
      if name not in self.here:
        continue
      key = keys.get(name, name)
      if key in self.sources and (name in keys or key in self.there):
        self.there.pop(key, None)
        reason = why if source and scale.api == source.api else _CONVERTED
        reason = reason if name != key else ""
        self.assign(name, self.sources[key], reason, is_mapped=True)
      else:
        self.initialize(name, NO_COUNT if source else NO_SCALE)

  def assign_parts(self, scale: ScaleNames) -> None:
    """Gives a loss scale what the checkpoint has of it, by equal names."""
    parts = [
      name
      for name in scale.names
      if name in self.here and self.there.get(name) == self.here[name]
    ]
    for name in parts:
      self.pair(name, name, "")
    self.assign_counts(scale, None, "")
    for name in scale.names:
      self.initialize(name, PARTIAL if parts else NO_SCALE)

  def pair_kind(self, ours: list[str], theirs: list[str]) -> None:
    """Decides on variables of one kind, by the rules of the module."""
    if not theirs:
      for name in ours:
        self.miss(name)
      return
    if set(ours) == set(theirs):
      for name in ours:
        self.pair(name, name, "")
      return
    found, why = _pair_by_scope(ours, theirs, True, names.get_base(ours[0]))
    if found is None:
      self._choose_alone(ours, theirs)
      return
    for name, key in found.items():
      self.pair(name, key, why)

  def _choose_alone(self, ours: list[str], theirs: list[str]) -> None:
    """Chooses among variables to which no others belong."""
    found = self.choose({n: [n] for n in ours}, {n: [n] for n in theirs})
    for name, key in found.items():
      self.pair(name, key, _SAME_ORDER)

  def pair_rest(self) -> None:
    """Decides on all that is left: equal names, then those made in conds.

    What optimizers make in conds is a scalar, and one kind of variables. Of
    weights, names are pairs that differ in their conds alone.
    """
    scalars, scalars_there = map(_group_scalars, (self.here, self.there))
    for kind, ours in scalars.items():
      theirs = scalars_there.get(kind, [])
      loose = set(ours) ^ set(theirs)
      if not set(ours) <= set(theirs) and any(map(_is_in_cond, loose)):
        self.pair_kind(ours, theirs)
    for name in list(self.here):
      if name in self.there:
        self.pair(name, name, "")
    left, left_there = (
      names.group(side, names.remove_conds) for side in (self.here, self.there)
    )
    for stem, ours in left.items():
      theirs = left_there.get(stem, [])
      if len(ours) == len(theirs) == 1:
        self.pair(ours[0], theirs[0], "equal but for conds")
      elif theirs:
        self._choose_alone(ours, theirs)
      else:
        for name in ours:
          self.miss(name)

  def miss(self, name: str) -> None:
    """Notes a variable for which the checkpoint has nothing."""
    del self.here[name]
    if name in self.wanted:
      self.missing.append(name)

  def make_error(self) -> CheckpointError:
    """Returns the error for all that is missing, misfits or is undecided."""
    listed = [
      f"{name}{suggest(name, self.sources)} is not in it"
      for name in self.missing[:MOST]
    ]
    listed += [*self.missing[MOST:], *self.misfits]
    return make_error(
      self.path,
      "it does not fit, and nothing was restored",
      listed,
      self.undecided,
    )


def _group_scalars(
  tensors: Mapping[str, TensorSpec],
) -> dict[tuple[str, str], list[str]]:
  """Returns the scalars by name without scope and number, and by dtype."""
  return names.group(
    (name for name, spec in tensors.items() if not spec.shape),
    lambda name: (names.get_base(name), tensors[name].dtype),
  )


def _get_scope(name: str) -> str:
  """Returns the scope of a variable, without conds."""
  return names.split_scope(names.remove_conds(name))[0]


def _is_in_cond(name: str) -> bool:
  """Returns whether a name has the scope of a cond."""
  return names.get_cond_number(name) is not None


def _is_bad_steps(name: str, spec: TensorSpec) -> bool:
  """Returns whether a variable counts bad steps, as tf.contrib alone does."""
  tensors = names.SCALE_TENSORS[names.CONTRIB]
  return names.get_base(name) == "bad_steps" and spec == tensors["bad_steps"]


def _pair_by_scope(
  ours: list[str],
  theirs: list[str],
  may_lose_scope: bool,
  what: str,
) -> tuple[dict[str, str] | None, str]:
  """Pairs the only candidate with the only place, in each scope.

  Args:
    ours: The places.
    theirs: The candidates.
    may_lose_scope: Whether a variable may be in its scope on one side, and in
      the root scope on the other. Then all scopes must fit, as far as the root
      scope is among them.
    what: What the places are called.

  Returns:
    Place -> candidate, and the reason; None if names do not tell. If scopes
    cannot be lost, places without a candidate in their scope are left out.
  """
  places = names.group(ours, _get_scope)
  candidates = names.group(theirs, _get_scope)
  lone = places.keys() - candidates.keys()
  left = candidates.keys() - places.keys()
  if may_lose_scope:
    if len(ours) == len(theirs) == 1 and "" in {*places, *candidates}:
      return {ours[0]: theirs[0]}, _ONLY.format(what)
    are_clear = not lone and not (left and "" in {*places, *left})
  else:
    are_clear = not lone or not left
  pairs = {}
  for scope in places.keys() & candidates.keys():
    if len(places[scope]) > 1 or len(candidates[scope]) > 1:
      are_clear = False
    pairs[places[scope][0]] = candidates[scope][0]
  return (pairs, _ONLY_IN_SCOPE.format(what)) if are_clear else (None, "")


def make_error(
  path: str,
  what: str,
  problems: Sequence[str],
  undecided: Sequence[Undecided] = (),
) -> CheckpointError:
  """Returns the error for variables that have no tensor, or may have several.

  Args:
    path: The checkpoint.
    what: What happened.
    problems: Problems, in words.
    undecided: The variables with several candidates.
  """
  listed = shorten(problems)
  advice = ""
  pairs: dict[str, str] = {}
  open_places: list[str] = []
  for each in undecided:
    places, candidates = (
      ", ".join(shorten(n)) for n in (each.here, each.there)
    )
    listed.append(
      f"names do not tell which of {candidates or 'nothing'} in the checkpoint "
      f"is for {places}"
    )
    pairs.update(each.likely)
    open_places += [name for name in each.here if name not in each.likely]
  if undecided:
    shown = [f"{name!r}: {key!r}" for name, key in pairs.items()]
    shown += [f"{name!r}: ..." for name in open_places]
    maps = [show_map(name, key) for name, key in pairs.items()]
    maps += [show_map(name, "...") for name in open_places]
    advice = (
      f": decide by mapping={{{', '.join(shown)}}} or, for convert, by "
      f"{' '.join(maps)}"
    )
    if pairs and not open_places:
      advice += (
        "; that is right if both programs make their optimizers in one order, "
        "which same_order=True (--same-order) says, too"
      )
    else:
      advice += (
        "; names do not show the order in which the optimizers were made, so "
        "you must know it"
      )
  elif problems:
    advice = (
      " (mapping={here: there} gives a variable another tensor, None "
      "initializes it; missing='initialize' initializes all that is missing)"
    )
  return CheckpointError(f"{path}: {what}: {'; '.join(listed)}{advice}")


def show_map(here: str, there: str) -> str:
  """Returns the option --map of the command line, quoted for a shell."""
  escaped = [
    name.replace("\\", "\\\\").replace("=", "\\=") for name in (here, there)
  ]
  return shlex.join(["--map", "=".join(escaped)])


def show_spec(spec: TensorSpec) -> str:
  """Returns a dtype and a shape in words: `float32 [2, 3]`."""
  return f"{spec.dtype} {list(spec.shape)}"


def shorten(problems: Iterable[str], most: int = MOST) -> list[str]:
  """Returns the first problems, and the number of the others."""
  listed = list(problems)
  more = len(listed) - most
  return [*listed[:most], *([f"and {more} more"] if more > 0 else [])]


def suggest(name: str, known: Iterable[str]) -> str:
  """Returns a hint at similar names, to be put behind a name."""
  # The time to compare names grows with their number and both lengths.
  last = names.get_base(name)
  near = [n for n in known if len(n) < 200]
  if len(near) > _COMPARED:
    near = [n for n in near if names.get_base(n) == last][:_COMPARED]
  same = [n for n in near if n.lower() == name.lower()]
  close = same or difflib.get_close_matches(name[:200], near, 3, 0.5)
  return f" (nearest: {', '.join(close)})" if close else ""


def check_powers(
  path: str,
  values: Mapping[str, float],
  betas: Mapping[str, float],
  keys: Mapping[str, str],
  eps: float = 2.0**-23,
) -> None:
  """Refuses powers of Adam that are another optimizer's.

  After n - 1 steps, Adam's power is beta ** n: a whole power of the initial
  value, and the same one for beta1 and beta2. Optimizers of one name that were
  made in another order have equal names. The check only refuses: it does not
  choose, and it says nothing about powers that are near 0 or 1.

  Args:
    path: The checkpoint.
    values: Power -> its value in the checkpoint.
    betas: Power -> its initial value in the program.
    keys: Power -> its name in the checkpoint.
    eps: The relative error of each step's product.

  Raises:
    CheckpointError: A power is no such power.
  """
  steps: dict[str, tuple[float, float]] = {}  # n, and its possible error.
  wrong: dict[str, str] = {}
  for name, value in values.items():
    beta = betas.get(name, 0.0)
    # Products below 1e-37 lose digits.
    if not (0 < beta < 1 and 1e-37 < value < 1):
      continue
    count = math.log(value) / math.log(beta)
    error = 1e-3 + eps * (count + 1) / -math.log(beta)
    steps[name] = count, error
    if error < 0.4 and abs(count - max(1, round(count))) > error:
      wrong[name] = f"{value:g} is no whole power of {beta:g}"
  for name, (count, error) in steps.items():
    other = steps.get(names.get_other_power(name))
    if other and abs(count - other[0]) > error + other[1] + 0.5:
      wrong.setdefault(
        name,
        f"{values[name]:g} is power {count:.0f} of {betas[name]:g}, but that "
        f"of the other beta is {other[0]:.0f}",
      )
  if not wrong:
    return
  listed = [
    f"{name} ({keys[name]} in it): {why}" for name, why in wrong.items()
  ]
  names_of_kind = {names.get_base(name) for name in wrong}
  shown = ", ".join(
    f"{name!r}: {key!r}"
    for name, key in keys.items()
    if names.get_base(name) in names_of_kind
  )
  raise CheckpointError(
    f"{path}: nothing was restored, since powers in it are another optimizer's "
    f"or of other betas: {'; '.join(shorten(listed))}. Make the optimizers in "
    "the order of the program that saved it, or give the variables of each "
    f"optimizer, also its slots, by mapping; mapping={{{shown}}} takes these "
    "powers as they are"
  )
