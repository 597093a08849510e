# SPDX-License-Identifier: Apache-2.0
"""Reads and prepares optimizers of Keras 2 and 3 that get a checkpoint's state.

Keras 2 is imported only if an optimizer is of Keras 2.
"""

from __future__ import annotations

from collections.abc import Callable
import functools
import sys
from typing import Any

import numpy as np
import tensorflow.compat.v2 as tf

_SCHEDULE = "LearningRateSchedule"


def find_rate(optimizer: Any) -> Callable[[int], float] | None:
  """Returns what computes an optimizer's learning rate.

  Args:
    optimizer: An optimizer of any Keras, no wrapper.

  Returns:
    A function of the step; None if the learning rate is a variable or a number.
  """
  if _is_of_keras_2(optimizer):
    from tf_compat_lossscale.keras import _keras2

    held = [_keras2.find_hyperparameters(optimizer).get("learning_rate")]
  else:
    held = list(vars(optimizer).values())
  for value in held:
    if any(cls.__name__ == _SCHEDULE for cls in type(value).__mro__):
      return functools.partial(_compute, value)
  if _is_of_keras_2(optimizer):
    function: Any = held[0]
    if not callable(function) or isinstance(function, tf.Variable):
      return None
    return lambda _: float(function())
  rate = getattr(optimizer, "learning_rate", None)
  if rate is None or hasattr(rate, "assign"):
    return None
  return lambda _: float(np.asarray(optimizer.learning_rate))


def _compute(schedule: Any, step: int) -> float:
  """Returns the learning rate that a schedule gives for a step."""
  return float(np.asarray(schedule(tf.constant(step, tf.int64))))


def count_products(optimizer: Any) -> None:
  """Makes Nadam of Keras 2 go on after its `iterations`."""
  if _is_of_keras_2(optimizer):
    from tf_compat_lossscale.keras import _keras2

    inner = getattr(optimizer, "inner_optimizer", optimizer)
    _keras2.count_products(inner)


def _is_of_keras_2(optimizer: Any) -> bool:
  """Returns whether an optimizer is of Keras 2."""
  is_newest = tuple(map(int, tf.__version__.split(".")[:2])) < (2, 16)
  if not is_newest and "tf_keras" not in sys.modules:
    return False
  from tf_compat_lossscale.keras import _keras2

  kinds = (
    _keras2.LegacyOptimizer,
    _keras2.Optimizer,
    _keras2.BaseLossScaleOptimizer,
  )
  return isinstance(optimizer, kinds)
