"""Renames variables for another API or control flow.

What an optimizer creates while it applies gradients is named by the cond in
which it does so, and numbered in the order of creation:

```
                    TensorFlow 1's control flow      TensorFlow 2's
compat.v1           s/cond_1/beta1_power             beta1_power
tf.contrib          s/cond/beta1_power               beta1_power
without loss scale  s/beta1_power                    s/beta1_power
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from typing import NoReturn

from tf_compat_lossscale.checkpoint.files import errors as _errors
from tf_compat_lossscale.checkpoint.files.errors import CheckpointError
from tf_compat_lossscale.checkpoint.files.writer import Source
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts.inventory import Inventory
from tf_compat_lossscale.checkpoint.layouts.sources import convert_counter
from tf_compat_lossscale.checkpoint.layouts.sources import convert_scale
from tf_compat_lossscale.checkpoint.layouts.sources import Sources

_FIRST = {names.COMPAT: 1, names.CONTRIB: 0}  # The cond that they apply in.


class _Place(NamedTuple):
  """Where an optimizer creates a variable.

  Attributes:
    scope: The scope in which gradients are applied, with its slash.
    cond: The number of the cond; None if there is none.
    is_wrapped: Whether the optimizer has a loss scale that may skip steps;
      None if that is not known.
  """

  scope: str
  cond: int | None
  is_wrapped: bool | None


class _Renaming:
  """Gives variables their names in another layout, one kind after the other."""

  def __init__(self, side: Inventory, variables: Sources, path: str) -> None:
    self.side, self.path = side, path
    self.variables = variables
    self.result: Sources = {}
    self.origins: dict[str, str] = {}
    self.left = dict.fromkeys(variables)
    self.states, self.unclear = side.scales
    self.was_scaled = bool(self.states or self.unclear)

  def add(self, new: str, old: str, source: Source | None = None) -> None:
    """Gives a variable its name."""
    if new in self.result:
      both = sorted({self.origins[new], old})
      undecided = _errors.Undecided([new], both, {})
      raise _errors.unnamed(self.path, f"which one is called {new}", undecided)
    self.result[new] = source or self.variables[old]
    self.origins[new] = old
    self.left.pop(old, None)

  def apply_mapping(
    self, mapping: Mapping[str, str | None], api: str | None
  ) -> None:
    """Gives the names that the caller decided on."""
    tensors = names.SCALE_TENSORS.get(api or "", {})
    for new, old in mapping.items():
      if old is None or old not in self.left:
        why = "mapped twice" if old in self.variables else "not in it"
        near = (
          ""
          if old in self.variables
          else _errors.nearest(str(old), self.variables)
        )
        raise CheckpointError(
          f"{self.path}: the mapping has {old!r}{near} for {new!r}, which is "
          f"{why}"
        )
      source = self.variables[old]
      self.add(
        new,
        old,
        convert_counter(
          source, tensors.get(names.get_base(new), source.tensor)
        ),
      )
    # A loss scale whose value or counter was mapped is mapped as a whole.
    used = set(mapping.values())
    for state in self.states:
      if used & set(state.names):
        for name in state.names:
          if api is None or names.get_base(name) == "bad_steps":
            self.left.pop(name, None)
    self.states = [s for s in self.states if not used & set(s.names)]
    self.was_scaled = self.was_scaled or bool(used)

  def rename_scales(self, api: str | None) -> None:
    """Gives loss scales their names in an API; None leaves them out."""
    layout = names.SCALE_TENSORS.get(api or "", {})
    if api is None or any(
      names.get_base(n) not in layout for n in self.unclear
    ):
      unclear = sorted(name for name in self.unclear if name in self.left)
      if unclear:
        self._give_up(unclear, unclear, "which of them are a loss scale's", {})
    for scope in sorted({state.scope for state in self.states}):
      states = [
        s for s in self.states if s.scope == scope and s.names[0] in self.left
      ]
      if api is None:
        for name in [name for state in states for name in state.names]:
          self.left.pop(name, None)
      elif any(state.api != api for state in states):
        self._rename_scope(scope, states, api)

  def _rename_scope(
    self, scope: str, states: list[names.ScaleNames], api: str
  ) -> None:
    """Gives the loss scales of a scope their names."""
    known = {name for state in states for name in state.names}
    others = [
      name
      for name, source in self.variables.items()
      if names.split_scope(name)[0] == scope
      and name not in known
      and names.get_base(name) in names.SCALE_TENSORS[api]
    ]
    apis = {state.api for state in states}
    order = self.side.order
    ordered = all(state.names[0] in order for state in states)
    if others or (len(apis) > 1 and not ordered):
      self._give_up(
        [
          scope + names.add_number(base, i)
          for i in range(len(states))
          for base in names.SCALE_TENSORS[api]
        ],
        sorted([*known, *others]),
        "how these are numbered",
        {},
      )
    if len(apis) > 1:
      states = sorted(states, key=lambda state: order[state.names[0]])
    for number, state in enumerate(states):
      found = convert_scale(self.variables, state, api)
      for name in state.names:
        self.left.pop(name, None)
      for base, source in zip(names.SCALE_TENSORS[api], found):
        new = scope + names.add_number(base, number)
        self.add(new, state.names[0], source)

  def rename_own(self, api: str | None, control_flow: str) -> None:
    """Gives variables that optimizers create the names that they have there.

    Args:
      api: COMPAT or CONTRIB; None without a loss scale.
      control_flow: 'v1' or 'v2'.
    """
    places = self._places()
    stems: dict[str, list[str]] = {}
    for name, place in places.items():
      last = names.split_scope(name)[1]
      base = names.split_number(last)[0] if names.is_power(name) else last
      stem = self._stem(name, place, api, control_flow) + base
      stems.setdefault(stem, []).append(name)
    for stem, found in stems.items():
      if set(found) == {n for n in places if names.split_number(n)[0] == stem}:
        for name in found:
          self.add(name, name)
        continue
      for number, name in enumerate(self._in_order(found, places, stem)):
        self.add(names.add_number(stem, number), name)

  def _places(self) -> dict[str, _Place]:
    """Where optimizers create their own variables: powers, and the like."""
    powers = [
      n
      for n in self.left
      if names.is_power(n, self.variables[n].tensor)
      and not self.side.belongs_to_user(n)
      and (self.side.has_evidence or names.get_other_power(n) in self.variables)
    ]
    scopes = {
      names.split_scope(n)[0]
      for n in powers
      if names.get_cond_number(n) is not None
    }
    places = {}
    for name in self.left:
      scope = names.split_scope(name)[0]
      power = name in powers
      in_cond = (
        self.side.belongs_to_optimizer(name)
        if self.side.has_evidence
        else scope in scopes
      )
      if not power and not in_cond:
        continue
      number = names.get_cond_number(name) if in_cond else None
      cond = self.side.get_cond(name) if power and not in_cond else None
      if cond is not None:
        scope, last = names.split_scope(cond)
        number = names.get_cond_number(f"{last}/")
      wrapped: bool | None = number is not None or cond is not None
      if not wrapped and self.side.has_new_scale and not in_cond:
        wrapped = self._is_wrapped(name, powers)
      if not wrapped and not scope and not self.side.has_evidence:
        wrapped = not scopes and self._is_wrapped(name, powers)
      if in_cond:
        scope = names.split_scope(names.remove_innermost_cond(name))[0]
      places[name] = _Place(scope, number, wrapped)
    return places

  def _is_wrapped(self, name: str, powers: list[str]) -> bool | None:
    """Returns whether a loss scale is for the optimizer of a power by its name.

    A power without a scope may be of an optimizer that has a loss scale, under
    TensorFlow 2's control flow. It is if there are no others of either kind.
    """
    if not self.states and not self.unclear:
      return False
    alike = [n for n in powers if names.get_base(n) == names.get_base(name)]
    several = (
      len({names.get_base(n) for n, _ in names.find_slots(self.variables)}) > 1
    )
    alone = len(alike) == len(self.states) == 1 and not several
    return True if alone else None

  def _stem(
    self, name: str, place: _Place, api: str | None, control_flow: str
  ) -> str:
    """What stands before a variable's own name."""
    if place.is_wrapped is None and (api is None or control_flow == "v2"):
      return names.split_scope(name)[0]  # It has that name there, too.
    if place.is_wrapped is None:
      alike = names.sort_names(
        n for n in self.variables if names.get_base(n) == names.get_base(name)
      )
      conds = range(_FIRST[api or names.COMPAT], 2 * len(alike) + 1, 2)
      likely = [
        f"{names.add_number('cond', i)}/{names.get_base(name)}"
        for i, _ in zip(conds, alike)
      ]
      self._give_up(likely, alike, "which optimizers have a loss scale")
    if not place.is_wrapped:
      return place.scope
    if not self.was_scaled and api == names.CONTRIB and place.cond == 0:
      return names.split_scope(name)[0]  # A fixed scale of tf.contrib.
    if not self.was_scaled or api is None:
      return place.scope
    if control_flow == "v2":
      return ""
    number = _FIRST[api]
    if place.cond is not None:
      number = place.cond + number - _FIRST[self._api_of(name, api)]
    cond = names.add_number("cond", max(0, number))
    return f"{place.scope}{cond}/"

  def _api_of(self, name: str, default: str) -> str:
    """The API of the loss scale that an optimizer's variable goes with.

    Args:
      name: The variable.
      default: The API if nothing is known to be a loss scale.
    """
    apis = {state.api for state in self.states} or {default}
    if len(apis) > 1:
      serves = self.side.get_served(name) or frozenset()
      apis = {
        state.api
        for state in self.states
        if name in (self.side.get_served(state.names[0]) or ())
        or serves & (self.side.get_served(state.names[0]) or frozenset())
      }
    if len(apis) != 1:
      self._give_up([name], [name], "of which API its loss scale is", {})
    return apis.pop()

  def _in_order(
    self, found: list[str], places: Mapping[str, _Place], stem: str
  ) -> list[str]:
    """Variables in the order of their creation, which numbers them."""
    if len(found) == 1:
      return found
    order = self.side.order
    if all(name in order for name in found):
      return sorted(found, key=lambda name: order[name])
    scopes = {places[name].scope for name in found}
    conds = [places[name].cond for name in found]
    if len(scopes) > 1 or None in conds or len(set(conds)) < len(conds):
      found = names.sort_names(found)
      new = [names.add_number(stem, i) for i in range(len(found))]
      self._give_up(new, found, "in which order these were created")
    return sorted(found, key=lambda name: places[name].cond or 0)

  def _give_up(
    self,
    here: list[str],
    there: list[str],
    what: str,
    likely: Mapping[str, str] | None = None,
  ) -> NoReturn:
    pairs = dict(zip(here, there)) if likely is None else likely
    undecided = _errors.Undecided(here, there, pairs)
    raise _errors.unnamed(self.path, what, undecided)


def rename_variables(
  variables: Sources,
  side: Inventory,
  api: str | None,
  control_flow: str,
  path: str,
  mapping: Mapping[str, str | None] | None = None,
) -> Sources:
  """Variables as a Saver has them in another API or control flow.

  What has the names of that layout already keeps them.

  Args:
    variables: Saver's name -> the tensor.
    side: The same, with what is known of them.
    api: COMPAT or CONTRIB; None for a model without loss scaling.
    control_flow: 'v1' or 'v2'.
    path: The checkpoint, for messages.
    mapping: New name -> name, as the caller decided.

  Returns:
    New name -> the tensor.

  Raises:
    CheckpointError: Two variables would have one name, or nothing proves which
      name is whose.
  """
  if not side.has_evidence:
    side.gather_evidence()
  renaming = _Renaming(side, variables, path)
  renaming.apply_mapping(mapping or {}, api)
  renaming.rename_scales(api)
  renaming.rename_own(api, control_flow)
  for name in list(renaming.left):
    renaming.add(name, name)
  return renaming.result
