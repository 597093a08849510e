# SPDX-License-Identifier: Apache-2.0
"""Gives variables the names that they have in another API or control flow.

The table of names is in `names`. The steps, each for the variables that the
steps before left:

1. The caller's mapping decides.
2. Loss scales get their names in the other API, and are converted.
3. Variables that optimizers make while they apply gradients get the scopes of
   the table: powers, and what is in a cond beside them.
4. All other variables keep their names.

If names do not tell, nothing is written, and the error lists the candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint import places
from tf_compat_lossscale.checkpoint.names import ScaleNames
from tf_compat_lossscale.checkpoint.places import Source
from tf_compat_lossscale.checkpoint.places import Undecided
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import CheckpointError

_UNKNOWN = "SCOPE/"  # What an error has for a scope that nothing tells.
_APIS = {"contrib": names.CONTRIB, "fp32": None}
_CONDS = (names.CONTRIB, names.COMPAT)  # By whether a cond's number is odd.


def rename(
  checkpoint: Checkpoint,
  to: str,
  scale: float | None,
  mapping: Mapping[str, str],
  same_order: bool,
) -> tuple[dict[str, Source], tuple[str, ...], tuple[str, ...]]:
  """Renames the variables of a checkpoint.

  Args:
    checkpoint: The checkpoint.
    to: The layout: 'saver', 'saver-v2', 'contrib' or 'fp32'.
    scale: The new value of every loss scale, if it is to be set.
    mapping: New name -> name, as the caller decided.
    same_order: Whether what is likely decides if names do not.

  Returns:
    New name -> source; the names of what was set; and what the user should
    know.

  Raises:
    CheckpointError: Two variables would have one name, or names do not tell
      which variable a name belongs to.
  """
  renaming = _Renaming(checkpoint, to, same_order, mapping)
  if scale is not None:
    renaming.set_scales(scale)
  renaming.apply_mapping(mapping)
  renaming.rename_scales()
  renaming.rename_created()
  for name in list(renaming.left):
    renaming.add(name, name)
  if renaming.undecided:
    raise places.make_error(
      checkpoint.prefix, "nothing was written", (), renaming.undecided
    )
  changed = [n for n, s in renaming.result.items() if not s.key]
  return (
    renaming.result,
    tuple(changed if scale is not None else ()),
    tuple(renaming.notes),
  )


class _Renaming:
  """A renaming that its methods do step by step.

  Attributes:
    sources: Name -> the tensor, or what replaces the tensor.
    result: New name -> source, so far.
    left: The variables that have no new name so far.
    undecided: The new names that may be those of several variables.
    mapping: New name -> name, as the caller decided.
    scales: The loss scales.
    notes: What the user should know.
    was_scaled: Whether the checkpoint has a loss scale.
    is_new: Whether a loss scale is added.
  """

  def __init__(
    self,
    checkpoint: Checkpoint,
    to: str,
    same_order: bool,
    mapping: Mapping[str, str],
  ) -> None:
    """Starts with all variables left."""
    self.path, self.same_order = checkpoint.prefix, same_order
    self.mapping = mapping
    self.api = _APIS.get(to, names.COMPAT)
    self.is_v1 = to in ("saver", "contrib")
    self.sources = {
      name: Source(key, checkpoint.specs[key])
      for name, key in names.list_keys(checkpoint).items()
    }
    self.left = dict.fromkeys(self.sources)
    self.result: dict[str, Source] = {}
    self.origins: dict[str, str] = {}
    self.undecided: list[Undecided] = []
    self.notes: list[str] = []
    specs = {name: source.spec for name, source in self.sources.items()}
    self.found = names.find_scales(specs)
    if self.found.unclear.intersection(mapping.values()):
      for name in mapping.values():  # Which loss scales the others are.
        specs.pop(name, None)
      self.found = names.find_scales(specs)
    self.scales = self.found.known
    self.was_scaled = bool(
      self.scales or self.found.likely or self.found.unclear
    )
    self.is_new = False

  def add(self, new: str, old: str, source: Source | None = None) -> None:
    """Gives the variable `old` the name `new`, and perhaps another source."""
    if new in self.mapping and new in self.result:
      raise CheckpointError(
        f"{self.path}: nothing was written: the mapping gives "
        f"{self.mapping[new]} the name {new}, which {old} would have, too: "
        f"give that another name, {places.show_map('NAME', old)}"
      )
    if new in self.result:
      both = sorted({self.origins.get(new, new), old})
      self.undecided.append(Undecided([new], both))
    self.result[new] = source or self.sources[old]
    self.origins[new] = old
    self.left.pop(old, None)

  def doubt(
    self, here: list[str], there: list[str], likely: Mapping[str, str]
  ) -> None:
    """Takes what is likely if the caller says so, or notes that it is unclear.

    Args:
      here: The new names.
      there: The names in the checkpoint.
      likely: New name -> likely name; {} if nothing is.
    """
    if self.same_order and likely:
      for new, old in likely.items():
        self.add(new, old)
      return
    self.undecided.append(Undecided(here, there, likely))
    for name in there:
      self.left.pop(name, None)

  def set_scales(self, value: float) -> None:
    """Sets every loss scale, and adds one if there is none."""
    self._refuse_scales(self.found.unclear, True)
    self.scales = self.scales + self.found.likely
    if not self.scales:
      api = self.api or names.COMPAT
      new = ScaleNames(api, "", tuple(names.SCALE_TENSORS[api]))
      taken = sorted(self.sources.keys() & set(new.names))
      if taken:
        raise CheckpointError(
          f"{self.path}: it has no loss scale, and none can be added: the "
          f"model has a variable of its own that is called {taken[0]}"
        )
      self.scales = [new]
      self.is_new = True
    self.was_scaled = True
    for scale in self.scales:
      specs = names.SCALE_TENSORS[scale.api].values()
      for number, (name, spec) in enumerate(zip(scale.names, specs)):
        self.sources[name] = Source("", spec, 0 if number else value)
      for name in scale.counts:
        self.sources[name] = Source("", names.COUNT, 0)
      self.left.update(dict.fromkeys((*scale.names, *scale.counts)))

  def apply_mapping(self, mapping: Mapping[str, str]) -> None:
    """Gives variables the names that the caller decided on.

    A mapping of one power decides on the other power of the same Adam, and a
    mapping of one variable of a loss scale on the rest of the loss scale.
    """
    tensors = names.SCALE_TENSORS.get(self.api or "", {})
    self.scales = [  # What keeps all its names stays as it is.
      scale
      for scale in self.scales
      if any(mapping.get(name) != name for name in scale.names)
    ]
    for new, old in mapping.items():
      if old not in self.sources:
        near = places.suggest(str(old), self.sources)
        raise CheckpointError(
          f"{self.path}: the mapping has {old!r}{near} for {new!r}, which is "
          "not in it"
        )
      if not new or not isinstance(new, str):
        raise CheckpointError(
          f"{self.path}: the mapping has no name for {old!r}, but {new!r}"
        )
      source = self.sources[old]
      wanted = tensors.get(names.get_base(new), source.spec)
      is_own = new == old and not any(old in s.names for s in self.scales)
      if wanted.shape == source.spec.shape and not is_own:
        source = dataclasses.replace(source, spec=wanted)
      self.add(new, old, source)
    for new, old in mapping.items():
      other = names.get_other_power(old)
      if names.is_power(old) and other in self.left:
        self.add(names.get_other_power(new), other)
    for scale in list(self.scales):
      mapped = {n: o for n, o in mapping.items() if o in scale.names}
      if mapped:
        self.scales = [each for each in self.scales if each is not scale]
        self._add_rest(scale, next(iter(mapped)))
    first = next(iter(tensors), None)
    for new in mapping:  # A variable that gets a loss scale's name is one.
      scope, last = names.split_scope(new)
      base, number = names.split_number(last)
      if base == first:
        for each, spec in tensors.items():
          name = scope + names.add_number(each, number)
          if name not in self.left and name not in self.result:
            self.result[name] = Source("", spec, 0)

  def _add_rest(self, scale: ScaleNames, new: str) -> None:
    """Gives the rest of a loss scale names like that of its mapped variable."""
    scope, last = names.split_scope(new)
    base, number = names.split_number(last)
    tensors = names.SCALE_TENSORS.get(self.api or "", {})
    for name in (*scale.names, *scale.counts):
      if name in self.left and base not in tensors:
        self.add(name, name)  # The program's own: all of it stays.
    if base in tensors:
      self._convert(scale, scope, number)

  def rename_scales(self) -> None:
    """Gives loss scales their names in the API; fp32 leaves them out."""
    tensors = names.SCALE_TENSORS.get(self.api or "", {})
    for scale in self.found.likely:
      self._complete(scale)
    for name in self.found.unclear:
      if _find_api(name) not in (None, self.api):
        self._refuse_scales(self.found.unclear, True)
    by_scope = names.group(self.scales, lambda scale: scale.scope)
    powers = names.group(
      (n for n, s in self.sources.items() if names.is_power(n, s.spec)),
      names.get_base,
    )
    most = max(map(len, powers.values()), default=len(self.scales))
    for scope, scales in sorted(by_scope.items()):
      known = {name for scale in scales for name in scale.names}
      alike = {
        name
        for name in self.left
        if names.split_scope(name)[0] == scope
        and names.is_named_like_scale(name, self.sources[name].spec)
      }
      apis = {scale.api for scale in scales}
      if self.api in apis and len(apis) == 1:
        continue  # They keep their names.
      others = {n for n in alike - known if names.get_base(n) in tensors}
      # A program may have variables that look like one more loss scale.
      is_clear = len(apis) == 1 and (
        len(scales) == 1 or len(self.scales) <= most
      )
      if not is_clear or (others and self.api is not None):
        self._refuse_scales(alike | known, bool(others))
      for number, scale in enumerate(scales):
        self._convert(scale, scope, number)
    if self.api == names.CONTRIB and powers and not self.was_scaled:
      self.notes.append(
        "it has no dynamic loss scale, so all names stay; beside a fixed one, "
        "tf.contrib has powers in the scope cond: mapping (--map) moves them"
      )

  def _complete(self, scale: ScaleNames) -> None:
    """Adds counters of 0 to what is likely a loss scale without them."""
    if scale.names[0] not in self.left:
      return
    specs = names.SCALE_TENSORS[scale.api].values()
    new = {n: s for n, s in zip(scale.names, specs) if n not in self.sources}
    if self.api == scale.api:
      self.result |= {name: Source("", spec, 0) for name, spec in new.items()}
      return
    self._refuse_scales(self.left.keys() & set(scale.names), False)
    self.sources |= {name: Source("", spec, 0) for name, spec in new.items()}
    self.scales = [*self.scales, scale]

  def _refuse_scales(self, alike: set[str], is_taken: bool) -> None:
    """Raises an error for variables that may be loss scales.

    Args:
      alike: The variables.
      is_taken: Whether they cannot all be loss scales.
    """
    if not alike or (self.same_order and not is_taken):
      return
    kept = {name: name for name in sorted(alike)}
    maps = " ".join(places.show_map(name, name) for name in kept)
    order = "; same_order=True (--same-order) says that all are"
    raise CheckpointError(
      f"{self.path}: nothing was written: names do not tell which of "
      f"{', '.join(kept)} are loss scales and which are the program's own: "
      f"{places.show_mapping(kept)} or {maps} keep all; leave out the pairs of "
      f"loss scales{'' if is_taken else order}"
    )

  def _convert(self, scale: ScaleNames, scope: str, number: int) -> None:
    """Gives a loss scale its names in the API; new counts are 0."""
    tensors = names.SCALE_TENSORS.get(self.api or "", {})
    for i, (base, spec) in enumerate(tensors.items()):
      new = scope + names.add_number(base, number)
      if self.origins.get(new) in scale.names:
        continue
      if i < 2:
        source = dataclasses.replace(self.sources[scale.names[i]], spec=spec)
        self.add(new, scale.names[i], source)
      elif new not in self.result:  # Or the mapping gives it a variable.
        self.result[new] = Source("", spec, 0)
        self.origins[new] = scale.names[0]
    for name in (*scale.names, *scale.counts):
      self.left.pop(name, None)

  def rename_created(self) -> None:
    """Gives variables that optimizers make the scopes of the table."""
    powers = [
      n
      for n in self.left
      if names.is_power(n, self.sources[n].spec)
      and (names.get_other_power(n) in self.sources or _is_in_cond(n))
    ]
    scopes = {names.split_scope(n)[0] for n in powers if _is_in_cond(n)}
    groups: dict[str, list[str]] = {}  # New name without number -> names.
    unsure: dict[str, dict[str, str]] = {}  # Base name -> name -> new name.
    for name in list(self.left):
      scope, last = names.split_scope(name)
      is_known = name in powers or scope in scopes
      is_scalar = not self.sources[name].spec.shape
      if not is_known and not (is_scalar and _is_in_cond(name)):
        continue
      new, is_sure = self._find_scope(name, powers)
      base = names.split_number(last)[0] if name in powers else last
      if is_sure and is_known:
        groups.setdefault(new + base, []).append(name)
      elif new + base != name or len(self._find_apis(name)) > 1:
        unsure.setdefault(base, {})[name] = new
    for base, found in unsure.items():
      self._doubt_scopes(base, found)
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

  def _doubt_scopes(self, base: str, scopes: Mapping[str, str]) -> None:
    """Notes variables that optimizers make in scopes that are not known.

    Args:
      base: The new name without its scope.
      scopes: Name -> the likely scope, which ends in that of a cond if several
        have the same one.
    """
    pairs: dict[str, str] = {}
    for name in names.sort_by_creation(scopes) or sorted(scopes):
      scope = scopes[name]
      while scope + base in pairs:  # The next optimizer's cond.
        outer, cond = names.split_scope(scope[:-1])
        stem, number = names.split_number(cond)
        scope = f"{outer}{names.add_number(stem, number + 2)}/"
      pairs[scope + base] = name
    is_likely = not any(name.startswith(_UNKNOWN) for name in pairs)
    self.doubt(list(pairs), list(pairs.values()), pairs if is_likely else {})

  def _find_apis(self, name: str) -> set[str]:
    """Returns the APIs of the loss scales in a variable's scope, or of all."""
    outer = names.split_scope(names.remove_innermost_cond(name))[0]
    pairs = [(scale.scope, scale.api) for scale in self.scales]
    pairs += [
      (names.split_scope(each)[0], api)
      for each in self.found.unclear
      if (api := _find_api(each))
    ]
    here = {api for scope, api in pairs if scope == outer}
    return here or {api for _, api in pairs} or {names.COMPAT}

  def _find_scope(self, name: str, powers: Sequence[str]) -> tuple[str, bool]:
    """Returns a variable's new scope, and whether that is sure."""
    scope = names.split_scope(name)[0]
    cond = names.get_cond_number(name)
    first = names.FIRST_COND[self.api or names.COMPAT]
    if cond is not None:
      outer = names.split_scope(names.remove_innermost_cond(name))[0]
      if not self.was_scaled or self.is_new:
        # The cond is tf.contrib's with a fixed loss scale, or the program's.
        new = (
          f"{outer}{names.add_number('cond', first)}/" if self.is_new else outer
        )
        return (scope, True) if self.api == names.CONTRIB else (new, False)
      if self.api is None:
        return outer, True
      if not self.is_v1:
        return "", True
      apis = self._find_apis(name)
      # In one scope, an optimizer of each API takes two conds.
      api = min(apis) if len(apis) == 1 else _CONDS[cond % 2]
      number = cond + first - names.FIRST_COND[api]
      new = f"{outer}{names.add_number('cond', max(0, number))}/"
      return new, len(apis) == 1 and number >= 0
    if not self.was_scaled:
      return scope, True
    alike = [n for n in powers if names.get_base(n) == names.get_base(name)]
    in_conds = [n for n in alike if names.get_cond_number(n) is not None]
    count = max(1, len(self.scales))
    is_only = len(alike) == count == 1
    if not self.is_new and (len(in_conds) >= count or scope):
      return scope, True  # Its optimizer has no loss scale.
    if self.api is None or not self.is_v1:
      if self.is_new:
        return "", is_only or not scope
      scopes = {scale.scope for scale in self.scales}
      if self.api is None and scopes not in (set(), {""}):
        return (min(scopes) if is_only else _UNKNOWN), False
      return scope, True
    own = scope if self.is_new or not self.scales else self.scales[0].scope
    if is_only:
      self.notes.append(
        f"assumed that {name} is of the optimizer with the only loss scale"
      )
    if len(alike) != count or (count > 1 and any(s.scope for s in self.scales)):
      return _UNKNOWN, False  # Some optimizer may have no loss scale.
    new = f"{own}{names.add_number('cond', first)}/"
    return new, is_only and own == scope


def _find_api(name: str) -> str | None:
  """Returns the API that alone has loss scales with a variable of that name."""
  base = names.get_base(name)
  apis = [api for api, each in names.SCALE_TENSORS.items() if base in each]
  return apis[0] if len(apis) == 1 else None


def _is_in_cond(name: str) -> bool:
  """Returns whether a variable is directly in a scope called like a cond."""
  return names.get_base(names.split_scope(name)[0][:-1]) == "cond"
