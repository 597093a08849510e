# SPDX-License-Identifier: Apache-2.0
"""Renames variables of a checkpoint by name for another API or control flow.

An optimizer creates some variables while it applies gradients. Their names
depend on the cond around that step, and are numbered in the order of creation.
In a scope `s`:

                        TensorFlow 1's control flow   TensorFlow 2's
    compat.v1           s/cond_1/beta1_power          beta1_power
    tf.contrib          s/cond/beta1_power            beta1_power
    without loss scale  s/beta1_power                 s/beta1_power

The steps, each for the variables that the steps before left:

1. The caller's mapping decides.
2. Loss scales get their names in the other API, and are converted.
3. Variables that optimizers create get the names of the table. The row depends
   on whether the optimizer has a loss scale.
4. All other variables keep their names.
5. A loss scale that lacks counters gets them; they start from 0.

If nothing proves a new name, the error lists the candidates and asks for a
mapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from typing import NoReturn

from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.files.values import Literal
from tf_compat_lossscale.checkpoint.files.values import Source
from tf_compat_lossscale.checkpoint.files.values import Sources
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts import policy_weights
from tf_compat_lossscale.checkpoint.layouts import problems
from tf_compat_lossscale.checkpoint.layouts.inventory import Inventory
from tf_compat_lossscale.checkpoint.layouts.names import ScaleNames
from tf_compat_lossscale.checkpoint.layouts.scale_bridges import convert_counter
from tf_compat_lossscale.checkpoint.layouts.scale_bridges import convert_scale

# API -> the number of the cond in which a scope's first optimizer applies
# gradients. In compat.v1, the loss scale is updated in a cond before that.
_FIRST_COND = {names.COMPAT: 1, names.CONTRIB: 0}
# The names of averages, which no optimizer trains.
_UNTRAINED = {"moving_mean", "moving_variance", names.AVERAGE}


def rename_variables(
  sources: Sources,
  inventory: Inventory,
  api: str | None,
  control_flow: str,
  path: str,
  mapping: Mapping[str, str | None] | None = None,
) -> Sources:
  """Gives variables the names that they have in another API or control flow.

  Args:
    sources: Name -> tensor.
    inventory: The same variables, with the evidence about them.
    api: COMPAT or CONTRIB; None for a model without loss scaling.
    control_flow: 'v1' or 'v2'.
    path: The checkpoint, for messages.
    mapping: New name -> name, as the caller decided.

  Returns:
    New name -> source.

  Raises:
    CheckpointError: Two variables would have one name, or nothing proves which
      variable a name belongs to.
  """
  if not inventory.has_evidence:
    inventory.gather_evidence()
  sources = dict(sources)
  inventory.complete_scales(sources)
  renaming = _Renaming(inventory, sources, path)
  renaming.apply_mapping(mapping or {}, api)
  renaming.rename_scales(api)
  renaming.rename_created(api, control_flow)
  for name in list(renaming.left):
    renaming.add(name, name)
  if api is not None:
    renaming.complete_scales(api, mapping or {})
  return renaming.result


class _Creation(NamedTuple):
  """The circumstances in which an optimizer creates a variable.

  Attributes:
    scope: The scope in which gradients are applied, with its slash.
    cond: The number of the cond around that step; None without a cond.
    is_wrapped: Whether the optimizer has a loss scale that may skip steps; None
      if unknown.
    is_own: Whether the cond is the program's own.
  """

  scope: str
  cond: int | None
  is_wrapped: bool | None
  is_own: bool = False


class _Renaming:
  """A renaming that its methods do step by step.

  Attributes:
    result: New name -> source, so far.
    origins: New name -> name, so far.
    left: The variables that have no new name so far.
    scales: The loss scales that the mapping does not decide on.
    unclear: The variables that may belong to a loss scale.
    counters: The variables that may be counters of loss scales that are not in
      the checkpoint.
    was_scaled: Whether the checkpoint has a loss scale.
  """

  def __init__(self, inventory: Inventory, sources: Sources, path: str) -> None:
    """Starts with all variables left."""
    self.inventory, self.sources, self.path = inventory, sources, path
    self.result: Sources = {}
    self.origins: dict[str, str] = {}
    self.left = dict.fromkeys(sources)
    self.scales, self.unclear, incomplete, self.counters = inventory.scales
    lone = {
      name
      for scale in incomplete
      if not inventory.is_constant(scale.names[0])
      or inventory.is_likely_scale(scale)
      for name in scale.names
    }
    self.unclear |= lone & sources.keys()
    self.was_scaled = bool(self.scales or self.unclear)

  def add(self, new: str, old: str, source: Source | None = None) -> None:
    """Gives the variable `old` the name `new`, and perhaps another source."""
    if new in self.result:
      both = sorted({self.origins[new], old})
      self._give_up([new], both, f"which variable is called {new}", {})
    self.result[new] = source or self.sources[old]
    self.origins[new] = old
    self.left.pop(old, None)

  def apply_mapping(
    self, mapping: Mapping[str, str | None], api: str | None
  ) -> None:
    """Gives variables the names that the caller decided on.

    Args:
      mapping: New name -> name.
      api: The API of the new checkpoint, for the dtypes of counters.
    """
    tensors = names.SCALE_TENSORS.get(api or "", {})
    for new, old in mapping.items():
      if old is None or old not in self.left:
        self._refuse_mapping(new, old)
      source = self.sources[old]
      wanted = tensors.get(names.get_base(new), source.spec)
      self.add(new, old, convert_counter(source, wanted))
    # A mapping of one variable of a loss scale decides on the loss scale.
    used = set(mapping.values())
    self.unclear -= used
    for scale in self.scales:
      if used & set(scale.names):
        self._add_rest_of_scale(scale, mapping, api)
        for name in scale.names:
          if api is None or names.get_base(name) == "bad_steps":
            self.left.pop(name, None)
    self.scales = [s for s in self.scales if not used & set(s.names)]
    self.was_scaled = self.was_scaled or bool(used)

  def _add_rest_of_scale(
    self, scale: ScaleNames, mapping: Mapping[str, str | None], api: str | None
  ) -> None:
    """Gives the rest of a loss scale names like that of its mapped variable."""
    tensors = names.SCALE_TENSORS.get(api or "", {})
    for new, old in mapping.items():
      scope, last = names.split_scope(new)
      base, number = names.split_number(last)
      if old not in scale.names or base not in tensors:
        continue
      found = convert_scale(self.sources, scale, api or "")
      for base, source in zip(tensors, found):
        name = scope + names.add_number(base, number)
        origin = source.origin or scale.names[0]
        if name not in self.result and origin not in mapping.values():
          self.add(name, origin, source)

  def complete_scales(
    self, api: str, mapping: Mapping[str, str | None]
  ) -> None:
    """Adds the counters that loss scales lack.

    Args:
      api: COMPAT or CONTRIB.
      mapping: New name -> name. A variable that the caller gave the name of a
        loss scale is one.
    """
    tensors = names.SCALE_TENSORS[api]
    specs = {name: source.spec for name, source in self.result.items()}
    found = [
      scale.names
      for scale in names.find_scales(specs).incomplete
      if scale.api == api
      and not self.inventory.belongs_to_user(self.origins[scale.names[0]])
    ]
    for name in mapping:
      scope, last = names.split_scope(name)
      base, number = names.split_number(last)
      if base == next(iter(tensors)) and specs[name] == tensors[base]:
        found.append(
          tuple(scope + names.add_number(each, number) for each in tensors)
        )
    for members in found:
      for name, spec in zip(members, tensors.values()):
        self.result.setdefault(name, Literal(spec.dtype, 0))

  def _refuse_mapping(self, new: str, old: str | None) -> NoReturn:
    if old in self.sources:
      near, why = "", "mapped twice"
    else:
      near, why = problems.suggest_names(str(old), self.sources), "not in it"
    raise CheckpointError(
      f"{self.path}: the mapping has {old!r}{near} for {new!r}, which is {why}"
    )

  def rename_scales(self, api: str | None) -> None:
    """Gives loss scales their names in an API; None leaves out loss scales."""
    tensors = names.SCALE_TENSORS.get(api or "", {})
    counters = sorted(name for name in self.counters if name in self.left)
    if counters:
      what = "whether they count for a loss scale, which is missing"
      self._give_up(counters, counters, what)
    if api is None or any(
      names.get_base(name) not in tensors for name in self.unclear
    ):
      unclear = sorted(name for name in self.unclear if name in self.left)
      if unclear:
        self._give_up(unclear, unclear, "which are a loss scale's", {})
    left = [scale for scale in self.scales if scale.names[0] in self.left]
    for name in policy_weights.list_dropped(self.sources, left, api):
      self.left.pop(name, None)
    scopes = names.group(left, lambda scale: scale.scope)
    named = names.group(  # Scope -> all that are named like scales.
      (name for name in self.sources if names.get_base(name) in tensors),
      lambda name: names.split_scope(name)[0],
    )
    order = self.inventory.order
    for scope, scales in sorted(scopes.items()):
      if api and any(scale.api != api for scale in scales):
        self._rename_scales_in(scope, scales, api, named.get(scope, []), order)

  def _rename_scales_in(
    self,
    scope: str,
    scales: list[ScaleNames],
    api: str,
    named: list[str],
    order: Mapping[str, int],
  ) -> None:
    """Gives the loss scales of a scope their names, numbered from 0.

    Loss scales of one API keep their order. Between APIs, only evidence shows
    the order.

    Args:
      scope: The scope, with its slash.
      scales: Its loss scales.
      api: The API.
      named: The variables of the scope that are called like a loss scale's.
      order: Variable -> its position in the order of creation.
    """
    known = {name for scale in scales for name in scale.names}
    others = [name for name in named if name not in known]
    apis = {scale.api for scale in scales}
    is_ordered = all(scale.names[0] in order for scale in scales)
    if others or (len(apis) > 1 and not is_ordered):
      new_names = [
        scope + names.add_number(base, i)
        for i in range(len(scales))
        for base in names.SCALE_TENSORS[api]
      ]
      self._give_up(
        new_names, sorted([*known, *others]), "how loss scales are numbered", {}
      )
    if len(apis) > 1:
      scales = sorted(scales, key=lambda scale: order[scale.names[0]])
    for number, scale in enumerate(scales):
      found = convert_scale(self.sources, scale, api)
      for name in scale.names:
        self.left.pop(name, None)
      for base, source in zip(names.SCALE_TENSORS[api], found):
        new = scope + names.add_number(base, number)
        self.add(new, scale.names[0], source)

  def rename_created(self, api: str | None, control_flow: str) -> None:
    """Gives variables that optimizers create the names of the module's table.

    Args:
      api: COMPAT or CONTRIB; None without a loss scale.
      control_flow: 'v1' or 'v2'.
    """
    creations = self._find_creations()
    groups: dict[str, list[str]] = {}  # New name without number -> names.
    for name, creation in creations.items():
      last = names.split_scope(name)[1]
      base = names.split_number(last)[0] if names.is_power(name) else last
      scope = self._make_scope(name, creation, api, control_flow)
      groups.setdefault(scope + base, []).append(name)
    stems: dict[str, set[str]] = {}
    for name in creations:
      stems.setdefault(names.split_number(name)[0], set()).add(name)
    for stem, found in groups.items():
      if set(found) == stems.get(stem):  # The names are numbered so already.
        for name in found:
          self.add(name, name)
        continue
      ordered = self._sort_by_creation(found, creations, stem)
      for number, name in enumerate(ordered):
        self.add(names.add_number(stem, number), name)

  def _find_creations(self) -> dict[str, _Creation]:
    """Finds the powers, and other variables that optimizers create in conds."""
    has_evidence = self.inventory.has_evidence
    powers = [
      n
      for n in self.left
      if names.is_power(n, self.sources[n].spec)
      and not self.inventory.belongs_to_user(n)
      and (has_evidence or names.get_other_power(n) in self.sources)
    ]
    # Without evidence, a cond is an optimizer's if a power is created in it.
    scopes = {
      names.split_scope(n)[0]
      for n in powers
      if names.get_cond_number(n) is not None
    }
    bases = {names.get_base(name) for name in powers}
    wrapped = {base: self._is_wrapped(base) for base in bases}
    by_power = {name: wrapped[names.get_base(name)] for name in powers}
    creations = {}
    for name in self.left:
      if has_evidence:
        in_cond = self.inventory.belongs_to_optimizer(name)
      else:
        in_cond = names.split_scope(name)[0] in scopes
      if name in by_power or in_cond:
        creations[name] = self._find_creation(name, in_cond, by_power, scopes)
    return creations

  def _find_creation(
    self,
    name: str,
    in_cond: bool,
    powers: Mapping[str, bool | None],
    scopes: set[str],
  ) -> _Creation:
    """Finds the circumstances in which a variable is created.

    Args:
      name: The variable.
      in_cond: Whether the variable is created in a cond of TensorFlow 1.
      powers: Power -> whether its optimizer has a loss scale; None if unknown.
      scopes: The scopes of conds in which powers are created.
    """
    if in_cond:
      scope = names.split_scope(names.remove_innermost_cond(name))[0]
      number = names.get_cond_number(name)
      is_own = number is not None and self._is_unscaled(name)
      return _Creation(scope, number, number is not None, is_own)
    cond = self.inventory.get_cond(name) if name in powers else None
    if cond is not None:  # TensorFlow 2's control flow.
      scope, last = names.split_scope(cond)
      number = names.get_cond_number(f"{last}/")
      return _Creation(scope, number, True, self._is_unscaled(name))
    scope = names.split_scope(name)[0]
    wrapped: bool | None = False
    if self.inventory.has_new_scale:
      wrapped = powers[name]
    if not wrapped and not scope and not self.inventory.has_evidence:
      wrapped = not scopes and powers[name]
    return _Creation(scope, None, wrapped)

  def _is_unscaled(self, name: str) -> bool:
    """Returns whether no loss scale is proven to serve the optimizer."""
    served = self.inventory.get_served(name)
    by_scales = [self.inventory.get_served(s.names[0]) for s in self.scales]
    if not self.was_scaled:
      return True
    return (
      bool(served and self.scales and not self.unclear)
      and None not in by_scales
      and not any(served & each for each in by_scales if served and each)
    )

  def _is_wrapped(self, base: str) -> bool | None:
    """Returns whether names show that the optimizer of powers has a loss scale.

    Returns True if there is one optimizer and one loss scale, False if there is
    no loss scale, and None otherwise. There may be an optimizer without slots,
    which owns the loss scale, if a weight has no slots.
    """
    if not self.scales and not self.unclear:
      return False
    # Some optimizers have one power alone, so all are counted.
    alike = [
      n
      for n, source in self.sources.items()
      if names.get_base(n) == base
      and names.is_power(n, source.spec)
      and not self.inventory.belongs_to_user(n)
    ]
    slots = dict(names.find_slots(self.sources))
    kinds = {names.get_base(slot) for slot in slots}
    alone = len(alike) == len(self.scales) == 1 and len(kinds) < 2
    # A loss scale that was just added is for the only optimizer.
    are_trained = self.inventory.has_new_scale or all(
      name in slots or name in slots.values() or not self._may_be_weight(name)
      for name in self.sources
    )
    return True if alone and are_trained else None

  def _may_be_weight(self, name: str) -> bool:
    """Returns whether a variable may be a weight, as far as its name tells."""
    spec, base = self.sources[name].spec, names.get_base(name)
    return not (
      spec.dtype in names.INTEGERS
      or names.is_ambiguous(name, spec)
      or base in _UNTRAINED
    )

  def _make_scope(
    self, name: str, creation: _Creation, api: str | None, control_flow: str
  ) -> str:
    """Returns the scope of a variable's new name, with its slash."""
    if creation.is_wrapped is None:
      if api is None or control_flow == "v2":
        return names.split_scope(name)[0]  # Both rows have this name.
      self._give_up_on_wrapping(name, api)
    if creation.is_own and (
      api is None or (self.was_scaled and control_flow == "v1")
    ):
      return names.split_scope(name)[0]
    if creation.is_own and self.was_scaled:
      return ""
    if not creation.is_wrapped:
      return creation.scope
    if not self.was_scaled and api == names.CONTRIB and creation.cond == 0:
      return names.split_scope(name)[0]  # A fixed scale of tf.contrib.
    if not self.was_scaled or api is None:
      return creation.scope
    if control_flow == "v2":
      return ""
    number = _FIRST_COND[api]
    if creation.cond is not None:
      old_first = _FIRST_COND[self._find_api(name, api)]
      number = creation.cond + number - old_first
    cond = names.add_number("cond", max(0, number))
    return f"{creation.scope}{cond}/"

  def _give_up_on_wrapping(self, name: str, api: str) -> NoReturn:
    """Raises an error with the likely new names of all such powers."""
    base = names.get_base(name)
    alike = names.sort_names(
      n for n in self.sources if names.get_base(n) == base
    )
    conds = range(_FIRST_COND[api], 2 * len(alike) + 1, 2)
    likely = [
      f"{names.add_number('cond', i)}/{base}" for i, _ in zip(conds, alike)
    ]
    self._give_up(likely, alike, "which optimizers have a loss scale")

  def _find_api(self, name: str, default: str) -> str:
    """Finds the API of the loss scale of a variable's optimizer.

    Args:
      name: The variable.
      default: The API to return if no loss scale is known.
    """
    apis = {scale.api for scale in self.scales} or {default}
    if len(apis) > 1:
      served = self.inventory.get_served(name) or frozenset()
      apis = set()
      for scale in self.scales:
        by_scale = self.inventory.get_served(scale.names[0]) or frozenset()
        if name in by_scale or served & by_scale:
          apis.add(scale.api)
    if len(apis) != 1:
      self._give_up([name], [name], "the API of its loss scale", {})
    return apis.pop()

  def _sort_by_creation(
    self, found: list[str], creations: Mapping[str, _Creation], stem: str
  ) -> list[str]:
    """Sorts variables with one new name by their creation, for numbering."""
    if len(found) == 1:
      return found
    order = self.inventory.order
    if all(name in order for name in found):
      return sorted(found, key=lambda name: order[name])
    scopes = {creations[name].scope for name in found}
    conds = [creations[name].cond for name in found]
    if len(scopes) > 1 or None in conds or len(set(conds)) < len(conds):
      found = names.sort_names(found)
      new = [names.add_number(stem, i) for i in range(len(found))]
      self._give_up(new, found, "the order of creation")
    return sorted(found, key=lambda name: creations[name].cond or 0)

  def _give_up(
    self,
    here: list[str],
    there: list[str],
    what: str,
    likely: Mapping[str, str] | None = None,
  ) -> NoReturn:
    """Raises an error that asks for a mapping.

    Args:
      here: The new names.
      there: The names in the checkpoint.
      what: The question that has no answer.
      likely: New name -> likely name; by default in the order of the lists.
    """
    pairs = dict(zip(here, there)) if likely is None else likely
    undecided = problems.Undecided(here, there, pairs)
    raise problems.make_unnamed_error(self.path, what, undecided)
