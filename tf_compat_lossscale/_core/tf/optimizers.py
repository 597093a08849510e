# SPDX-License-Identifier: Apache-2.0
"""Private state of `tf.compat.v1.train.Optimizer`."""

from __future__ import annotations

from typing import Any

# Not plain `tensorflow`: a program may import TensorFlow 1 by that name.
import tensorflow.compat.v2 as tf


def uses_locking(optimizer: tf.compat.v1.train.Optimizer) -> bool:
  """Returns whether an optimizer was created with `use_locking=True`.

  A public property would replace the attribute. An optimizer without the
  attribute, such as one that calls no constructor of the base class, is taken
  to use no locks, which is the default.
  """
  return bool(getattr(optimizer, "_use_locking", False))


def get_name(optimizer: tf.compat.v1.train.Optimizer) -> str:
  """Returns an optimizer's name; its class's if it calls no constructor.

  `MovingAverageOptimizer` of `tf.contrib.opt` is such an optimizer.
  """
  try:
    return str(optimizer.get_name())
  except AttributeError:
    return type(optimizer).__name__.lstrip("_")  # As ops may be named.


def list_variables(optimizer: tf.compat.v1.train.Optimizer) -> list[Any]:
  """Returns an optimizer's variables of the current graph; eagerly, all.

  The public method leaves out the variables that a `tf.function` has created on
  several replicas: the threads of the replicas have eager graphs of their own.
  A wrapper has the variables of the optimizer inside.
  """
  found = {variable.ref(): variable for variable in optimizer.variables()}
  if tf.executing_eagerly():
    tables = [
      getattr(optimizer, "_non_slot_dict", {}),
      *getattr(optimizer, "_slots", {}).values(),
    ]
    for variable in (each for table in tables for each in table.values()):
      if not getattr(variable, "_in_graph_mode", True):
        found.setdefault(variable.ref(), variable)
  return list(found.values())


def find_betas(optimizer: Any) -> dict[str, float]:
  """Returns power of an Adam -> its initial value; {} for other optimizers.

  A public property would replace `_beta1` and `_beta2`. Without them, powers
  are not compared with the betas. The optimizer must be eager, and no wrapper.
  """
  found = {}
  for number in (1, 2):
    beta = getattr(optimizer, f"_beta{number}", None)
    beta = beta() if callable(beta) else beta
    if isinstance(beta, (int, float, tf.Tensor, tf.Variable)):
      found[f"beta{number}_power"] = float(beta)
  return found
