# SPDX-License-Identifier: Apache-2.0
"""Reads and prepares optimizers of Keras 2 and 3 that get a checkpoint's state.

Keras 2 is imported only if an optimizer is of Keras 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
import sys
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import which_keras


def is_built(optimizer: Any) -> bool:
  """Returns whether an optimizer has made its slots, if it needs any."""
  keras2 = _find_keras_2(optimizer)
  if keras2:
    return bool(keras2.has_weights(optimizer))
  return bool(getattr(optimizer, "built", True))


def pair_list(
  optimizer: Any, attribute: str, weights: Iterable[Any]
) -> Iterator[tuple[Any, Any]]:
  """Yields (weight, variable) of a list that a newer optimizer has.

  Args:
    optimizer: An optimizer of any Keras, no wrapper.
    attribute: The attribute that has the list.
    weights: The weights that may have a variable in it. Keras 3 knows them.
  """
  listed = getattr(optimizer, attribute, None) or []
  keras2 = _find_keras_2(optimizer)
  if not keras2:
    weights = optimizer._trainable_variables
    yield from ((w, v) for w, v in zip(weights, listed) if v is not None)
    return
  for weight in weights:
    number = keras2.find_index(optimizer, weight)
    if number is not None and number < len(listed):
      yield weight, listed[number]


def count_products(optimizer: Any) -> None:
  """Makes Nadam of Keras 2 go on after its `iterations`."""
  keras2 = _find_keras_2(optimizer)
  if keras2:
    keras2.count_products(getattr(optimizer, "inner_optimizer", optimizer))


def _find_keras_2(optimizer: Any) -> Any:
  """Returns the module `_keras2` if an optimizer is of Keras 2, else None."""
  release = tuple(map(int, tf.__version__.split(".")[:2]))
  if release >= which_keras.WITH_KERAS_3 and "tf_keras" not in sys.modules:
    return None
  from tf_compat_lossscale.keras import _keras2

  kinds = (
    _keras2.LegacyOptimizer,
    _keras2.Optimizer,
    _keras2.BaseLossScaleOptimizer,
  )
  return _keras2 if isinstance(optimizer, kinds) else None
