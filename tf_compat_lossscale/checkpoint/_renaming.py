# SPDX-License-Identifier: Apache-2.0
"""Gives variables the names that they have in another API or control flow.

The table of names is in `names`. The steps, each for the variables that the
steps before left:

1. The caller's mapping decides. What it gives its own name is the program's
   own, whatever it is called.
2. Loss scales get their names in the other API, and are converted.
3. Variables that optimizers make while they apply gradients get the scopes of
   the table: powers, and what is in a cond beside them.
4. All other variables keep their names.

If names do not tell, nothing is written, and the error lists the candidates.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from tf_compat_lossscale.checkpoint import _targets
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint import pairs
from tf_compat_lossscale.checkpoint._targets import Source
from tf_compat_lossscale.checkpoint._targets import Undecided
from tf_compat_lossscale.checkpoint.names import ScaleNames
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import CheckpointError


@dataclasses.dataclass(frozen=True)
class Options:
  """What decides on names: the layout, and arguments of `convert`.

  Attributes:
    api: The API whose names loss scales get; None if they are left out.
    is_v1: Whether powers lie in the conds of TensorFlow 1's control flow.
    scale: The new value of every loss scale; None if they keep theirs.
  """

  api: str | None
  is_v1: bool
  scale: float | None
  mapping: Mapping[str, str | None]
  same_order: bool


def rename(
  checkpoint: Checkpoint, options: Options
) -> tuple[dict[str, Source], list[str], list[str]]:
  """Returns new name -> source, the names of what was set, and notes."""
  path = checkpoint.prefix
  sources = _targets.list_sources(checkpoint)
  renamed = pairs.rename(path, sources, options.mapping)
  renaming = _Renaming(path, options, renamed)
  if options.scale is not None:
    renaming.set_scales(options.scale)
  renaming.apply_mapping()
  left = [n for n in renamed.sources if not names.is_power(n)]
  new = dict.fromkeys([*left, *renamed.mapping])
  pairs.check_shared_slots(path, renamed.mapping, new, renamed.sources)
  renaming.rename_scales()
  renaming.rename_created()
  for name in list(renaming.left):
    renaming.add(name, name)
  if renaming.undecided:
    raise _targets.make_error(
      path, "nothing was written", (), renaming.undecided
    )
  result, is_set = renaming.result, options.scale is not None
  changed = [n for n, s in result.items() if is_set and not s.key]
  return result, changed, renamed.notes


class _Renaming:
  """The new names of a checkpoint's variables, of which each step gives some.

  Attributes:
    result: New name -> source.
    tensors: The variables of a loss scale in the API.
    sources: Name -> the tensor, or what replaces the tensor.
    left: The variables that have no new name so far.
    origins: New name -> name.
    is_new: Whether a loss scale is added.
  """

  def __init__(
    self, path: str, options: Options, renamed: pairs.Renamed
  ) -> None:
    self.path, self.api, self.is_v1 = path, options.api, options.is_v1
    self.same_order = options.same_order
    self.tensors = names.SCALE_TENSORS.get(self.api or "", {})
    self.sources, self.mapping, self.notes = renamed
    self.result: dict[str, Source] = {}
    self.origins: dict[str, str] = {}
    self.undecided: list[Undecided] = []
    self.found = names.find_scales(
      {n: s.spec for n, s in self.sources.items() if self.mapping.get(n) != n}
    )
    self.scales = [*self.found.known, *self.found.likely]
    self.is_new = False
    for each in self.found.likely:
      specs = names.SCALE_TENSORS[each.api].values()
      for name, spec in zip(each.names, specs):
        self.sources.setdefault(name, Source("", spec, 0))
    self.left = dict.fromkeys(self.sources)

  def add(self, new: str, old: str, source: Source | None = None) -> None:
    """Gives the variable `old` the name `new`, and perhaps another source."""
    if new in self.mapping and new in self.result:
      raise pairs.make_collision(self.path, new, self.mapping[new], old)
    if new in self.result:
      both = sorted({self.origins.get(new, new), old})
      self.undecided.append(Undecided([new], both))
    self.result[new] = source or self.sources[old]
    self.origins[new] = old
    self.left.pop(old, None)

  def doubt(
    self,
    here: Sequence[str],
    there: Sequence[str],
    likely: Mapping[str, str],
  ) -> None:
    """Takes what is likely if the caller says so, or notes an `Undecided`."""
    if self.same_order and likely:
      for new, old in likely.items():
        self.add(new, old)
      return
    self.undecided.append(Undecided(here, there, likely))
    for name in there:
      self.left.pop(name, None)

  def set_scales(self, value: float) -> None:
    """Sets every loss scale, and adds one if there is none."""
    self.refuse_scales(self.found.unclear, True)
    if not self.scales:
      api = self.api or names.COMPAT
      self.scales = [ScaleNames(api, "", tuple(names.SCALE_TENSORS[api]))]
      self.is_new = True
      taken = self.sources.keys() & set(self.scales[0].names)
      if taken:
        raise CheckpointError(
          f"{self.path}: it has no loss scale, and none can be added: the "
          f"model has a variable of its own that is called {min(taken)}"
        )
    for scale in self.scales:
      specs = names.SCALE_TENSORS[scale.api].values()
      for number, (name, spec) in enumerate(zip(scale.names, specs)):
        self.sources[name] = Source("", spec, 0 if number else value)
      for name in scale.counts:
        self.sources[name] = Source("", names.COUNT, 0)
      self.left.update(dict.fromkeys(scale.all))

  def apply_mapping(self) -> None:
    """Gives variables the names that the caller decided on.

    A mapping of one power decides on the other power of the same Adam, and a
    mapping of one variable of a loss scale on the rest of the loss scale. What
    gets the name of a loss scale is one.
    """
    pairs.check_names(self.path, self.mapping, self.sources)
    for new, old in self.mapping.items():
      source = self.sources[old]
      wanted = self.tensors.get(names.get_base(new), source.spec)
      if wanted.shape == source.spec.shape and new != old:
        source = dataclasses.replace(source, spec=wanted)
      self.add(new, old, source)
    for new, old in self.mapping.items():
      other = names.get_other_power(old)
      if names.is_power(old) and other in self.left:
        self.add(names.get_other_power(new), other)
      scope, last = names.split_scope(new)
      base, number = names.split_number(last)
      scale = next((each for each in self.scales if old in each.names), None)
      if scale is None and new != old and base == next(iter(self.tensors), ""):
        scale = ScaleNames(self.api or "", "", (old,))
      if scale is not None and base in self.tensors:
        self.convert(scale, scope, number)
      elif scale is not None:  # The program's own: all of it stays.
        for name in self.left.keys() & set(scale.all):
          self.add(name, name)

  def rename_scales(self) -> None:
    """Gives loss scales their names in the API; fp32 leaves them out."""
    left = [scale for scale in self.scales if scale.names[0] in self.left]
    unclear = self.found.unclear
    if any(names.get_base(name) not in self.tensors for name in unclear):
      self.refuse_scales(unclear, True)
    for scale in self.found.likely:
      if scale in left and scale.api != self.api:
        self.refuse_scales(scale.names, False)
    if len({s.api for s in left} | {self.api for _ in unclear}) > 1:
      self.refuse_scales({n for s in left for n in s.names} | unclear, True)
    if left and left[0].api == self.api:
      for scale in left:  # They keep their names, in a scope `cond`, too.
        for name in scale.all:
          self.add(name, name)
      return
    powers = names.group(
      (n for n, s in self.sources.items() if names.is_power(n, s.spec)),
      names.get_base,
    )
    most = max(map(len, powers.values()), default=len(left))
    for scope, scales in names.group(left, lambda each: each.scope).items():
      known = {name for scale in scales for name in scale.names}
      alike = {
        name
        for name in self.left
        if names.split_scope(name)[0] == scope
        and names.is_named_like_scale(name, self.sources[name].spec)
      }
      is_taken = any(names.get_base(n) in self.tensors for n in alike - known)
      # A program may have variables that look like one more loss scale.
      if is_taken or (len(scales) > 1 and len(self.scales) > most):
        self.refuse_scales(alike | known, is_taken)
      for number, scale in enumerate(scales):
        self.convert(scale, scope, number)
    if self.api == names.CONTRIB and powers and not self.scales:
      self.notes.append(
        "it has no dynamic loss scale, so all names stay; beside a fixed one, "
        "tf.contrib has powers in the scope cond: mapping (--map) moves them"
      )

  def refuse_scales(self, alike: Collection[str], is_taken: bool) -> None:
    """Refuses variables, if there are any, of which some may be loss scales.

    The caller may say that all are, unless `is_taken`: they cannot all be.
    """
    if not alike or (self.same_order and not is_taken):
      return
    kept = {name: name for name in sorted(alike)}
    order = "; same_order=True (--same-order) says that all are"
    raise CheckpointError(
      f"{self.path}: nothing was written: names do not tell which of "
      f"{', '.join(kept)} are loss scales and which are the program's own: "
      f"keep all by {_targets.show_choice(kept)}; leave out the pairs of loss "
      f"scales{'' if is_taken else order}"
    )

  def convert(self, scale: ScaleNames, scope: str, number: int) -> None:
    """Gives a loss scale its names in the API; new counts are 0.

    From another API, what means the same there is taken over.
    """
    counts = scale.counts if scale.api == self.api else ()
    tensors = self.tensors | {names.get_base(n): names.COUNT for n in counts}
    for base, spec in tensors.items():
      new = scope + names.add_number(base, number)
      old = scale.parts.get(names.get_meaning(base))
      if self.origins.get(new) in scale.names:
        continue
      if old is not None:
        self.add(new, old, dataclasses.replace(self.sources[old], spec=spec))
      elif new not in self.result:  # Or the mapping gives it a variable.
        self.result[new] = Source("", spec, 0)
        self.origins[new] = scale.names[0]
    for name in scale.all:
      self.left.pop(name, None)

  def rename_created(self) -> None:
    """Gives variables that optimizers make the scopes of the table."""
    powers = [
      n
      for n in self.left
      if names.is_power(n, self.sources[n].spec)
      and (names.get_other_power(n) in self.sources or _is_in_cond(n))
    ]
    groups, loose = self.group_created(powers)
    for base, members in loose.items():
      self.rename_loose(base, members, groups)
    stems = names.group(powers, lambda name: names.split_number(name)[0])
    for stem, members in groups.items():
      if set(members) == set(stems.get(stem, ())):
        for name in members:  # The names are numbered so already.
          self.add(name, name)
        continue
      ordered = names.sort_by_creation(members) if members[1:] else members
      new_names = [names.add_number(stem, i) for i in range(len(members))]
      if ordered is None:
        self.doubt(new_names, sorted(members), {})
      else:
        for each, name in zip(new_names, ordered):
          self.add(each, name)

  def group_created(
    self, powers: Collection[str]
  ) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Returns new name without number -> names, and base name -> loose powers.

    Loose are those without a cond and without a scope. Variables whose scope is
    in doubt are decided on here.
    """
    conds = {names.split_scope(n)[0] for n in powers if _is_in_cond(n)}
    # A scope of weights that is called `cond` is the model's.
    own = {names.split_scope(w)[0] for _, w in names.find_slots(self.sources)}
    groups: dict[str, list[str]] = {}
    loose: dict[str, list[str]] = {}
    for name in list(self.left):
      scope, last = names.split_scope(name)
      base = names.split_number(last)[0] if name in powers else last
      is_scalar = not self.sources[name].spec.shape
      if name not in powers and scope in own:
        continue
      if _is_in_cond(name) and (scope in conds or is_scalar):
        new, is_sure = self.find_scope(name)
        if is_sure and scope in conds:
          groups.setdefault(new + base, []).append(name)
        elif new + base != name:
          self.doubt([new + base], [name], {new + base: name})
      elif name in powers and not scope:
        loose.setdefault(base, []).append(name)
      elif name in powers and self.is_new:  # Its optimizer may get it or not.
        new = self.make_scope(scope, names.FIRST_COND[self.scales[0].api])
        self.doubt([new + base], [name], {new + base: name})
      elif name in powers:  # Its optimizer has no loss scale.
        groups.setdefault(scope + base, []).append(name)
    return groups, loose

  def find_scope(self, name: str) -> tuple[str, bool]:
    """Returns the new scope of a variable in a cond, and whether it is sure."""
    first = names.FIRST_COND[self.api or names.COMPAT]
    without, number = names.split_cond(name)
    outer = names.split_scope(without)[0]
    if self.is_new or not (self.scales or self.found.unclear):
      # The cond is tf.contrib's with a fixed loss scale, or the program's.
      if self.api == names.CONTRIB:
        return names.split_scope(name)[0], True
      return (self.make_scope(outer, first) if self.is_new else outer), False
    apis = {s.api for s in self.scales} | {self.api for _ in self.found.unclear}
    api, *others = sorted(filter(None, apis))
    number = (number or 0) + first - names.FIRST_COND.get(api, first)
    is_around = any(outer.startswith(s.scope) for s in self.scales)
    is_sure = not others and number >= 0 and (is_around or not self.mapping)
    return self.make_scope(outer, max(0, number)), is_sure

  def make_scope(self, outer: str, number: int) -> str:
    """Returns the scope of what an optimizer makes that applies in `outer`.

    The number is that of its cond, if the API has conds.
    """
    if self.is_v1:
      return f"{outer}{names.add_number('cond', number)}/"
    return outer if self.api is None else ""

  def rename_loose(
    self, base: str, members: list[str], groups: dict[str, list[str]]
  ) -> None:
    """Gives powers without a cond their scopes, as far as names tell.

    They are of optimizers without a loss scale, or of those with one under
    TensorFlow 2's control flow. The groups are extended by them.
    """
    first = names.FIRST_COND[self.api or names.COMPAT]
    unclear = {names.split_scope(name)[0] for name in self.found.unclear}
    scopes = [*(scale.scope for scale in self.scales), *sorted(unclear)]
    here = [
      self.make_scope(scope, first + 2 * scopes[:i].count(scope)) + base
      for i, scope in enumerate(scopes)
    ]
    moved = [new for new, old in self.origins.items() if new != old]
    others = [n for n in (*self.left, *moved) if names.get_base(n) == base]
    others = [name for name in others if name not in members]
    served = [] if self.is_new else [*filter(_is_in_cond, others)]
    served += [name for name in others if name in moved]
    if len(served) >= len(scopes) or {*here} == {base}:
      groups.setdefault(base, []).extend(members)
    elif len(members) == 1 and scopes == [""] and not others and not unclear:
      self.notes.append(
        f"assumed that {members[0]} is of the optimizer with the only loss "
        "scale"
      )
      groups.setdefault(here[0], []).append(members[0])
    else:
      ordered = names.sort_by_creation(members) or members
      is_likely = len(ordered) == len(here) and len(set(scopes)) == 1
      likely = dict(zip(here, ordered)) if is_likely else {}
      self.doubt(list(dict.fromkeys(here)), ordered, likely)


def _is_in_cond(name: str) -> bool:
  """Returns whether the last scope of a name is a cond's."""
  return names.get_base(names.split_scope(name)[0][:-1]) == "cond"
