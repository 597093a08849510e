# SPDX-License-Identifier: Apache-2.0
"""Copies the slots of a Keras 2 optimizer to an optimizer of Keras 3."""

from __future__ import annotations

from collections.abc import Iterable
import re
from typing import Any
from typing import NamedTuple

from absl import logging
import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale.keras import _keras2
from tf_compat_lossscale.keras import _keras2_state
from tf_compat_lossscale.keras import _like_keras3


class _Match(NamedTuple):
  """A variable of Keras 3, and the Keras 2 variable that it continues.

  Attributes:
    keras3: The variable to train.
    keras2: The variable in Keras 2; None if only its position is known.
    key: The key of that variable in the Keras 2 optimizer; None if that
      optimizer does not know the variable.
  """

  keras3: Any
  keras2: Any
  key: Any


class Slots(NamedTuple):
  """The slots of a Keras 2 optimizer, in plain numbers.

  Attributes:
    variables: The variables to train in Keras 3.
    excluded: The variables that have no weight decay.
    values: For each variable, the values of its slots, by Keras 3's lists.
    scalars: The values that the optimizer keeps once, by Keras 3's attributes.
    optimizer: The name of the Keras 2 optimizer, or ''.
  """

  variables: list[Any]
  excluded: list[Any]
  values: list[dict[str, np.ndarray]]
  scalars: dict[str, np.ndarray]
  optimizer: str


def list_slot_names(optimizer: Any) -> list[str]:
  """Returns the kinds of slots of a Keras 2 optimizer, by Keras 3's lists."""
  names = {name for named in _find_slots(optimizer).values() for name in named}
  return sorted(names)


def read_slots(
  optimizer: Any, variables: Iterable[Any], with_exclusions: bool
) -> Slots:
  """Reads the slots of a Keras 2 optimizer.

  Args:
    optimizer: The optimizer, or None if there is none.
    variables: The argument of `to_keras3`.
    with_exclusions: Whether to read which variables have no weight decay.

  Returns:
    The slots.

  Raises:
    TypeError: An element of `variables` is neither a variable nor a pair.
    ValueError: `variables` does not fit the variables of `optimizer`.
  """
  if isinstance(variables, (str, bytes)) or not isinstance(variables, Iterable):
    raise TypeError(
      "variables must be a list of variables, or of pairs of Keras 2's and "
      f"Keras 3's, but got {variables!r}."
    )
  pairs = [_make_pair(element) for element in variables]
  if not pairs:
    raise ValueError(
      "variables is empty: a model has no variables before it is built, so "
      "build the Keras 3 model first, such as by model.build(input_shape)."
    )
  news = [new for _, new in pairs]
  if len({id(new) for new in news}) < len(news):
    raise ValueError("variables names a variable of Keras 3 twice.")
  if optimizer is None or not _like_keras3.is_of_keras2(optimizer):
    return Slots(news, [], [{} for _ in news], {}, "")
  held = _find_slots(optimizer)
  matches = _match(optimizer, pairs, list(held))
  values = [
    {
      name: _keras2_state.read_value(slot)
      for name, slot in held.get(match.key, {}).items()
    }
    for match in matches
  ]
  scalars = {}
  here, newer, legacy = _like_keras3.SCALARS.get(
    type(optimizer).__name__, (None, "", "")
  )
  is_legacy = isinstance(optimizer, _keras2.LegacyOptimizer)
  scalar = getattr(optimizer, legacy if is_legacy else newer, None)
  if here is not None and scalar is not None:
    scalars[here] = _keras2_state.read_value(scalar)
  excluded = _find_excluded(optimizer, matches) if with_exclusions else []
  return Slots(news, excluded, values, scalars, type(optimizer).__name__)


def write_slots(optimizer: Any, slots: Slots) -> list[str]:
  """Writes slots into a Keras 3 optimizer that is built.

  Args:
    optimizer: The optimizer.
    slots: The slots to write.

  Returns:
    The kinds of slots that `optimizer` does not have. These are all kinds, if
    neither its class nor a base has the name of the Keras 2 optimizer.

  Raises:
    ValueError: A slot has another shape in `optimizer`.
  """
  lost = set()
  alike = slots.optimizer in [cls.__name__ for cls in type(optimizer).__mro__]
  for variable, values in zip(slots.variables, slots.values):
    index = optimizer._get_variable_index(variable)
    if getattr(optimizer, "use_ema", False) and _like_keras3.EMA not in values:
      # Keras 3 starts averages at step 0 alone, but `iterations` goes on.
      getattr(optimizer, _like_keras3.EMA)[index].assign(variable)
    for name, value in values.items():
      kept = getattr(optimizer, name, ()) if alike else ()
      if not kept:
        lost.add(name)
      elif tuple(kept[index].shape) != value.shape:
        raise ValueError(
          f"The slot {name} of the variable {variable.name!r} has the shape "
          f"{value.shape} in Keras 2, but {tuple(kept[index].shape)} in Keras "
          "3: pass pairs of variables that are the same."
        )
      else:
        kept[index].assign(value)
  for name, value in slots.scalars.items():
    kept = getattr(optimizer, name, None) if alike else None
    if kept is None:
      lost.add(name)
    else:
      kept.assign(value)
  return sorted(lost)


def _find_slots(optimizer: Any) -> dict[Any, dict[str, Any]]:
  """Returns the slots: variable's key -> Keras 3's list -> slot."""
  if not _like_keras3.is_of_keras2(optimizer):
    return {}
  is_legacy = isinstance(optimizer, _keras2.LegacyOptimizer)
  slots = [
    slot
    for slot in _like_keras3.list_slots(type(optimizer).__name__)
    if slot.needs is None or is_legacy or getattr(optimizer, slot.needs)
  ]
  found = _keras2.find_slots(optimizer, [slot.newer for slot in slots])
  return {
    key: {
      slot.keras3: named[name]
      for slot in slots
      for name in [slot.legacy if is_legacy else slot.newer]
      if name in named
    }
    for key, named in found.items()
  }


def _make_pair(element: Any) -> tuple[Any, Any]:
  """Returns the variable of Keras 2, or None, and the variable of Keras 3."""
  is_pair = isinstance(element, (tuple, list)) and len(element) == 2
  pair = tuple(element) if is_pair else (None, element)
  for variable in pair if is_pair else pair[1:]:
    if not hasattr(variable, "assign") or not hasattr(variable, "shape"):
      raise TypeError(
        "variables must be variables, or pairs of Keras 2's and Keras 3's, but "
        f"got {element!r}."
      )
  if is_pair and not isinstance(pair[0], tf.Variable):
    raise TypeError(
      "The first of a pair must be Keras 2's variable, a tf.Variable, and the "
      f"second Keras 3's, but got {element!r}."
    )
  return pair


def _match(
  optimizer: Any, pairs: list[tuple[Any, Any]], keys: list[Any]
) -> list[_Match]:
  """Finds the Keras 2 variable of each Keras 3 variable."""
  matches = []
  for old, new in pairs:
    own = _unwrap(new) if old is None else old
    key = None
    if hasattr(own, "_unique_id") or old is not None:
      key = _keras2.find_slot_key(optimizer, own)
    if old is None and key not in keys:
      own = key = None
    matches.append(_Match(new, own, key))
  if not keys:
    return matches
  unknown = [match for match in matches if match.key not in keys]
  if not unknown:
    if len(keys) > len(matches):
      logging.warning(
        "to_keras3: the Keras 2 optimizer has slots for %d more variables than "
        "`variables` has; these slots are not copied.",
        len(keys) - len(matches),
      )
    if len({match.key for match in matches}) < len(matches):
      raise ValueError("variables names a variable of Keras 2 twice.")
    return matches
  if any(match.key is not None for match in matches):
    raise ValueError(
      "The Keras 2 optimizer has slots for some of the variables, but not for "
      f"{[match.keras3.name for match in unknown]}: pass pairs of variables "
      "that it has trained and Keras 3's, or Keras 3's alone for all."
    )
  if len(matches) != len(keys):
    raise ValueError(
      f"The Keras 2 optimizer has slots for {len(keys)} variables, but "
      f"variables has {len(matches)}: pass all, in the order in which that "
      "optimizer was given them, or pairs of Keras 2's and Keras 3's."
    )
  return [m._replace(key=key) for m, key in zip(matches, keys)]


def _unwrap(variable: Any) -> Any:
  """Returns the TensorFlow variable of a Keras 3 variable, or `variable`."""
  value = getattr(variable, "value", None)
  return variable if value is None or callable(value) else value


def _find_excluded(optimizer: Any, matches: list[_Match]) -> list[Any]:
  """Returns the variables of Keras 3 that have no weight decay.

  Raises:
    ValueError: The Keras 2 variable of an element of `matches` is not known.
  """
  keys, patterns = _keras2.find_exclusions(optimizer)
  if not keys and not patterns:
    return []
  found = []
  for match in matches:
    if match.key is None or (patterns and match.keras2 is None):
      raise ValueError(
        "The Keras 2 optimizer excludes variables from weight decay, but it is "
        f"not known which of them {match.keras3.name!r} was: pass pairs of "
        "Keras 2's and Keras 3's variables as variables=…."
      )
    if match.key in keys or any(
      re.search(pattern, match.keras2.name) for pattern in patterns
    ):
      found.append(match.keras3)
  return found
