# SPDX-License-Identifier: Apache-2.0
"""Reads and prepares optimizers of Keras 2 and 3 that get a checkpoint's state.

Keras 2 is imported only if an optimizer is of Keras 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import optimizer_kinds
from tf_compat_lossscale._core.tf import tracking


def is_built(optimizer: Any) -> bool:
  """Returns whether an optimizer has made its slots, if it needs any."""
  keras2 = _import_keras_2(optimizer)
  if keras2:
    return bool(keras2.has_weights(optimizer))
  return bool(getattr(optimizer, "built", True))


def list_variables(optimizer: Any) -> list[tuple[str, Any]]:
  """Returns the variables of an optimizer and its wrapper, without weights.

  Returns:
    Pairs of an attribute, "" if none is the variable, and the variable. Those
    of the wrapper come first.
  """
  found: dict[int, tuple[str, Any]] = {}
  for item in (optimizer, getattr(optimizer, "inner_optimizer", optimizer)):
    listed = item.variables
    for variable in listed() if callable(listed) else listed:
      found.setdefault(id(variable), ("", variable))
    for name, child in tracking.list_children(item).items():
      if is_variable(child):
        found[id(child)] = name, child
  return list(found.values())


def list_slots(
  optimizer: Any, weights: Iterable[Any], lists: Mapping[str, str]
) -> Iterator[tuple[Any, str, Any]]:
  """Yields (weight, role, slot) of an optimizer of any Keras, no wrapper.

  The weights are those that may have a slot; Keras 3 knows them. `lists` has
  the attribute that newer optimizers have for each role. Legacy optimizers call
  a slot by its role.
  """
  keras2 = _import_keras_2(optimizer)
  if keras2 is None:
    weights = optimizer._trainable_variables
  for role, attribute in lists.items():
    listed = getattr(optimizer, attribute, None) or []
    for number, weight in enumerate(weights):
      if hasattr(optimizer, "get_slot_names"):
        slot = keras2.find_slots(optimizer, weight).get(role)
      else:
        index = keras2.find_index(optimizer, weight) if keras2 else number
        is_there = index is not None and index < len(listed)
        slot = listed[index] if is_there else None
      if slot is not None:
        yield weight, role, slot


def is_variable(item: Any) -> bool:
  """Returns whether an object is a variable of TensorFlow or of Keras 3."""
  keras_3 = ("assign", "shape", "dtype", "path", "_serialize_to_tensors")
  return isinstance(item, tf.Variable) or all(
    hasattr(item, name) for name in keras_3
  )


def count_products(optimizer: Any) -> None:
  """Makes Nadam of Keras 2 go on after its `iterations`."""
  keras2 = _import_keras_2(optimizer)
  if keras2:
    keras2.count_products(getattr(optimizer, "inner_optimizer", optimizer))


def _import_keras_2(optimizer: Any) -> Any:
  """Returns the module `_keras2` if an optimizer is of Keras 2, else None."""
  if not optimizer_kinds.find_keras(optimizer).startswith("2"):
    return None
  from tf_compat_lossscale.keras import _keras2

  kinds = (
    _keras2.LegacyOptimizer,
    _keras2.Optimizer,
    _keras2.BaseLossScaleOptimizer,
  )
  return _keras2 if isinstance(optimizer, kinds) else None
