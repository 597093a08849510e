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

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from absl import logging
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import optimizer_kinds
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

_Optimizer = tf.compat.v1.train.Optimizer


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
    found: dict[int, Any] = {}
    objects = {} if objects is None else objects
    for _, item in _restoring_objects.walk_paths(objects):
      if isinstance(item, _Optimizer):
        *_, innermost = optimizer_kinds.walk(item)
        found[id(innermost)] = innermost
    self._optimizers = list(found.values())
    own = {
      id(variable)
      for each in self._optimizers
      for variable in tf_optimizers.list_variables(each)
    }
    self._weights = [
      variable
      for variable in _restoring_objects.list_variables(objects)
      if variable.dtype.is_floating and id(variable) not in own
    ]

  def name_variables(self) -> dict[int, str]:
    """Returns `id` of each slot -> its name in a process of its own."""
    result: dict[int, str] = {}
    for weight in self._weights:
      found: dict[str, list[tuple[int, Any]]] = {}
      prefix = f"{_name(weight)}/"
      is_exact = True
      for optimizer in self._optimizers:
        for slot in _list_slots(optimizer, weight):
          name = _name(slot)
          is_exact &= name in self._known
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

  def check_lost(self, bundle: Bundle, match: Match) -> None:
    """Checks that the slots of weights in the checkpoint go to optimizers.

    If all optimizers have slots already, the others are noted and logged.

    Raises:
      CheckpointError: An optimizer has no slots before its first step.
    """
    if not self._optimizers:
      return
    used = {source.origin for source in match.sources.values()}
    lost = names.find_lost_slots(by_object.list_by_name(bundle), used)
    if not lost:
      return
    for optimizer in self._optimizers:
      if not optimizer.get_slot_names():
        raise CheckpointError(
          f"{bundle.prefix}: it has slots ({problems.join(lost)}), but "
          f"{type(optimizer).__name__} has none before its first step: take a "
          "step first, such as optimizer.apply_gradients([(tf.zeros_like(w), "
          "w) for w in weights]), or leave the slots out by "
          "what='all_but_optimizer'"
        )
    note = f"{problems.join(lost)} went to no optimizer"
    logging.warning("%s: %s", bundle.prefix, note)
    match.notes = (note,)


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
