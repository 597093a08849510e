# SPDX-License-Identifier: Apache-2.0
"""Names the slots of TensorFlow 1's optimizers, eagerly.

TensorFlow numbers slots of one name by the order in which the process made
them, also slots of optimizers that are gone: `w/Adam_2` and `w/Adam_3`. A
checkpoint of a process with one Adam has `w/Adam` and `w/Adam_1`. So slots are
numbered anew, from 0, if the checkpoint does not have their names.

A slot goes with its weight: if the caller maps `w` to `net/w`, then
`w/Momentum` is `net/w/Momentum`. If the old program applied gradients in a
scope, the slot is `scope/w/Momentum` there, if there is no other.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import optimizer_kinds
from tf_compat_lossscale._core.tf import optimizers as tf_optimizers
from tf_compat_lossscale.checkpoint import matching
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint.reading import CheckpointError


class EagerSlots:
  """The slots of the optimizers of TensorFlow 1 among some objects."""

  def __init__(
    self,
    items: Iterable[Any],
    keys: Mapping[str, str],
    mapping: Mapping[str, str | None],
  ) -> None:
    """Finds the optimizers.

    Args:
      items: The objects, and all objects below them.
      keys: The names in the checkpoint -> the tensors.
      mapping: Variable -> its name there, as the caller decided.
    """
    self._keys, self._mapping = keys, mapping
    self._optimizers: list[Any] = []
    weights = []
    for item in items:
      if isinstance(item, tf.compat.v1.train.Optimizer):
        *_, innermost = optimizer_kinds.walk(item)
        if all(innermost is not other for other in self._optimizers):
          self._optimizers.append(innermost)
      elif isinstance(item, tf.Variable):
        weights.append(item)
    own = {
      id(variable)
      for each in self._optimizers
      for variable in tf_optimizers.list_variables(each)
    }
    self._weights = [
      weight
      for weight in weights
      if weight.dtype.is_floating and id(weight) not in own
    ]

  def name_variables(self) -> dict[int, str]:
    """Returns `id` of each slot -> its name in a process of its own."""
    result: dict[int, str] = {}
    for weight in self._weights:
      found: dict[str, list[tuple[int, Any]]] = {}
      prefix = f"{_get_name(weight)}/"
      is_exact = True
      for optimizer in self._optimizers:
        for slot in _list_slots(optimizer, weight):
          name = _get_name(slot)
          is_exact &= name in self._keys
          base, number = _split(name.removeprefix(prefix), optimizer)
          found.setdefault(base, []).append((number, slot))
      for base, slots in ({} if is_exact else found).items():
        slots.sort(key=lambda pair: pair[0])
        for number, (_, slot) in enumerate(slots):
          result[id(slot)] = names.add_number(prefix + base, number)
    return result

  def map_variables(self, renamed: Mapping[int, str]) -> dict[str, str | None]:
    """Returns the mapping, with the slots of weights.

    Args:
      renamed: As `name_variables` returns it.
    """
    result = dict(self._mapping)
    there = names.group(
      names.find_slots(self._keys),
      lambda pair: (pair[1], pair[0].rpartition("/")[2]),
    )
    weights = set(map(_get_name, self._weights))
    for name in renamed.values():
      weight, _, base = name.rpartition("/")
      key = self._mapping.get(weight, weight)
      if weight not in weights or name in self._mapping or key is None:
        continue
      if name in self._keys and key == weight:
        continue
      candidates = there.get((key, base), [])
      if len(candidates) == 1:
        result[name] = candidates[0][0]
    return result

  def check_lost(self, path: str, match: matching.Match) -> None:
    """Checks that the slots of weights in the checkpoint go to optimizers.

    If an optimizer has one slot of a weight, it needs no other: RMSprop without
    momentum, for instance.

    Raises:
      CheckpointError: Slots of a weight that is restored go to no optimizer.
    """
    used = {source.key for source in match.sources.values()}
    found = [
      (slot, weight)
      for slot, weight in names.find_slots(self._keys)
      if self._keys[weight] in used
    ]
    served = {w for slot, w in found if self._keys[slot] in used}
    lost = sorted(slot for slot, weight in found if weight not in served)
    if not lost or not self._optimizers:
      return
    listed = ", ".join(matching.shorten(lost))
    new = [each for each in self._optimizers if not each.get_slot_names()]
    if new:
      why = f"{type(new[0]).__name__} has none before its first step: take a "
    else:
      why = "the optimizers have none for these weights: take a "
    raise CheckpointError(
      f"{path}: nothing was restored, since it has slots ({listed}), but {why}"
      "step first, such as optimizer.apply_gradients([(tf.zeros_like(w), w) "
      "for w in weights]), or leave the slots out by what='all_but_optimizer' "
      "or missing='initialize'"
    )


def _get_name(variable: Any) -> str:
  return str(variable.name.split(":")[0])


def _list_slots(optimizer: Any, weight: Any) -> list[Any]:
  """Returns the slots that an optimizer has for a weight."""
  slots = (optimizer.get_slot(weight, n) for n in optimizer.get_slot_names())
  return [slot for slot in slots if slot is not None]


def _split(name: str, optimizer: Any) -> tuple[str, int]:
  """Splits the number from a slot's name; the optimizer's may end in one."""
  own = str(optimizer.get_name())
  rest = name.removeprefix(own)
  if name.startswith(own) and (not rest or rest[1:].isdecimal()):
    return own, int(rest[1:] or 0)
  return names.split_number(name)
