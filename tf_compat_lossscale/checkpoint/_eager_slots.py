# SPDX-License-Identifier: Apache-2.0
"""Makes and names the slots of TensorFlow 1's optimizers, eagerly.

Eagerly, an optimizer makes its slots in its first step. If it has none yet, a
restore by name makes those that the checkpoint has values for:

1. A copy of the optimizer makes the slots of all variables.
2. Those slots are matched with the checkpoint, like any variables.
3. The optimizer makes the slots of the variables for which there was a value.

If the copies of two optimizers match one slot, nothing tells whose it is, and
no slot is made.

TensorFlow numbers slots of one name by the order in which the process made
them, also slots of optimizers that are gone: `w/Adam_2` and `w/Adam_3`. A
checkpoint of a process with one Adam has `w/Adam` and `w/Adam_1`. So slots are
numbered anew, from 0, if the checkpoint does not have their names.

A slot goes with its weight: if the caller maps `w` to `net/w`, then
`w/Momentum` is `net/w/Momentum`. If the old program applied gradients in a
scope, the slot is `scope/w/Momentum` there, if there is no other.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import TypeAlias

from absl import logging
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import wrapped_optimizers
from tf_compat_lossscale._core.tf import optimizers as tf_optimizers
from tf_compat_lossscale.checkpoint import _restoring_objects
from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.layouts import by_object
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts import problems
from tf_compat_lossscale.checkpoint.layouts.match import Match
from tf_compat_lossscale.checkpoint.targets import Targets

_Optimizer = tf.compat.v1.train.Optimizer
_Finder: TypeAlias = Callable[[Targets, Mapping[str, str | None]], Match]


class EagerSlots:
  """The slots of the optimizers of TensorFlow 1 among some objects."""

  def __init__(
    self,
    objects: Any,
    known: Collection[str],
    mapping: Mapping[str, str | None],
  ) -> None:
    """Finds the optimizers.

    Args:
      objects: A trackable, or a dict of trackables; None has no optimizers.
      known: The names in the checkpoint.
      mapping: Variable -> its name there, as the caller decided.
    """
    self._known, self._mapping = known, mapping
    self._made: set[int] = set()  # The `id` of each optimizer with new slots.
    found: dict[int, Any] = {}
    objects = {} if objects is None else objects
    for _, item in _restoring_objects.walk_paths(objects):
      if isinstance(item, _Optimizer):
        for each in wrapped_optimizers.walk(item):
          if len(list(wrapped_optimizers.walk(each))) == 1:
            found[id(each)] = each
    self._optimizers = list(found.values())
    self._all = _restoring_objects.list_variables(objects)
    own = {
      id(variable)
      for each in self._optimizers
      for variable in tf_optimizers.list_variables(each)
    }
    self._weights = [
      variable
      for variable in self._all
      if variable.dtype.is_floating and id(variable) not in own
    ]

  def make(self, match: _Finder) -> None:
    """Makes the slots for which the checkpoint has values.

    Args:
      match: Takes variables and a mapping; finds the values of those that have
        one.
    """
    claims: dict[int, dict[int, dict[str, bool]]] = {}
    for number, optimizer in enumerate(self._optimizers):
      if not optimizer.get_slot_names():
        claims[number] = self._find_claims(optimizer, match)
    owners: dict[str, dict[int, bool]] = {}
    for number, claimed in claims.items():
      for claim in claimed.values():
        for key, is_exact in claim.items():
          owners.setdefault(key, {})[number] = is_exact

    def owns(number: int, key: str) -> bool:
      exact = {n for n, is_exact in owners[key].items() if is_exact}
      return (exact or owners[key].keys()) == {number}

    for number, claimed in claims.items():
      weights = [
        weight
        for weight in self._weights
        if (keys := claimed.get(id(weight)))
        and all(owns(number, key) for key in keys)
      ]
      if weights:
        self._made.add(id(self._optimizers[number]))
        tf_optimizers.create_slots(self._optimizers[number], weights)

  def _find_claims(
    self, optimizer: Any, match: _Finder
  ) -> dict[int, dict[str, bool]]:
    """Returns `id` of a weight -> key of a slot's value -> whether it is exact.

    A key is exact if it is the slot's own name.
    """
    twin = tf_optimizers.copy_without_variables(optimizer)
    try:
      tf_optimizers.create_slots(twin, self._weights)
      renamed = self.name_variables(twin)
      targets = Targets([*self._all, *twin.variables()], renamed)
      sources = match(targets, self.map_variables(renamed)).sources
    except Exception as error:  # Of the program's own optimizer, too.
      if not isinstance(error, (CheckpointError, ValueError)):
        logging.info("%s makes no slots before its first step", optimizer)
      return {}
    result: dict[int, dict[str, bool]] = {}
    for weight in self._weights:
      for slot in _list_slots(twin, weight):
        name = renamed[id(slot)]
        source = sources.get(name)
        if source is not None and source.origin:
          keys = result.setdefault(id(weight), {})
          keys[source.origin] = source.origin == name
    return result

  def name_variables(self, *further: Any) -> dict[int, str]:
    """Returns `id` of each slot -> its name in a process of its own.

    Args:
      *further: More optimizers, as if they were made last.
    """
    result: dict[int, str] = {}
    new = self._made.union(map(id, further))
    for weight in self._weights:
      found: dict[str, list[tuple[int, Any]]] = {}
      prefix = f"{_name(weight)}/"
      is_exact = True
      for optimizer in (*self._optimizers, *further):
        for slot in _list_slots(optimizer, weight):
          name = _name(slot)
          is_exact &= name in self._known and id(optimizer) not in new
          base, number = _split(name.removeprefix(prefix), optimizer)
          found.setdefault(base, []).append((number, slot))
      for base, slots in ({} if is_exact else found).items():
        slots.sort(key=lambda pair: pair[0])
        for number, (_, slot) in enumerate(slots):
          result[id(slot)] = f"{prefix}{base}" + f"_{number}" * bool(number)
    return result

  def map_variables(self, renamed: Mapping[int, str]) -> dict[str, str | None]:
    """Returns the mapping, with the slots of weights.

    Args:
      renamed: As `name_variables` returns it.
    """
    result = dict(self._mapping)
    if not renamed:
      return result
    there: dict[tuple[str, str], list[str]] = {}
    for slot, weight in names.find_slots(self._known):
      there.setdefault((weight, slot.rpartition("/")[2]), []).append(slot)
    weights = set(map(_name, self._weights))
    for name in renamed.values():
      weight, _, base = name.rpartition("/")
      key = self._mapping.get(weight, weight)
      if weight not in weights or name in self._mapping or key is None:
        continue
      if name in self._known and key == weight:
        continue
      candidates = there.get((key, base), [])
      if len(candidates) == 1:
        result[name] = candidates[0]
    return result

  def note_lost(self, bundle: Bundle, match: Match) -> None:
    """Notes, and logs, the slots of weights that no optimizer gets."""
    if not self._optimizers:
      return
    used = {source.origin for source in match.sources.values()}
    lost = names.find_lost_slots(by_object.list_by_name(bundle), used)
    if lost:
      note = (
        f"{problems.join(lost)} went to no optimizer: eagerly, an optimizer "
        "makes its slots in its first step, and nothing tells which optimizer "
        "has these; take a step with each optimizer before restore, or save "
        "and restore by object"
      )
      logging.warning("%s: %s", bundle.prefix, note)
      match.notes = (*match.notes, note)


def _name(variable: Any) -> str:
  """Returns a variable's name."""
  return str(variable.name.split(":")[0])


def _list_slots(optimizer: Any, weight: Any) -> Iterable[Any]:
  """Returns the slots that an optimizer has for a weight."""
  slots = (optimizer.get_slot(weight, n) for n in optimizer.get_slot_names())
  return [slot for slot in slots if slot is not None]


def _split(name: str, optimizer: Any) -> tuple[str, int]:
  """Splits the number from a slot's name; the optimizer's may end in one."""
  own = str(optimizer.get_name())
  rest = name.removeprefix(own)
  if name.startswith(own) and (not rest or rest[1:].isdecimal()):
    return own, int(rest[1:] or 0)
  base, number = names.split_number(name)
  return base, number
