# SPDX-License-Identifier: Apache-2.0
"""Private state of `tf.compat.v1.train.Optimizer`."""

from __future__ import annotations

import contextlib
import copy
from typing import Any
import weakref

# Not plain `tensorflow`: a program may import TensorFlow 1 by that name.
import tensorflow.compat.v2 as tf

# The method that a checkpoint calls to restore a slot.
_RESTORE_SLOT = "_create_or_restore_slot_variable"


def uses_locking(optimizer: tf.compat.v1.train.Optimizer) -> bool:
  """Returns whether an optimizer was created with `use_locking=True`.

  A public property would replace the attribute. An optimizer without the
  attribute, such as one that calls no constructor of the base class, is taken
  to use no locks, which is the default.
  """
  return bool(getattr(optimizer, "_use_locking", False))


class _SlotRestorer:
  """Restores slots of an optimizer in the strategy of their variables.

  A slot that a checkpoint creates, because it is restored before the first
  step, belongs to the strategy in whose scope the checkpoint is restored. If
  that is none, the slot of a mirrored variable is on one device alone, and the
  first step fails.
  """

  def __init__(self, optimizer: tf.compat.v1.train.Optimizer) -> None:
    self._refer = weakref.ref(optimizer)

  def __deepcopy__(self, memo: dict[int, Any]) -> _SlotRestorer:
    """Returns the restorer of a copy of the optimizer."""
    optimizer = self._refer()
    return _SlotRestorer(memo.get(id(optimizer), optimizer))

  def __call__(self, **arguments: Any) -> Any:
    """Restores a slot as the optimizer's method does, which takes names."""
    optimizer = self._refer()
    restore = getattr(type(optimizer), _RESTORE_SLOT)
    strategy = getattr(arguments.get("variable"), "distribute_strategy", None)
    scope: Any = contextlib.nullcontext()
    if strategy is not None and not tf.distribute.has_strategy():
      scope = strategy.scope()
    with scope:
      return restore(optimizer, **arguments)


def restore_slots_in_strategy(optimizer: tf.compat.v1.train.Optimizer) -> None:
  """Makes checkpoints create an optimizer's slots in the right strategy.

  TensorFlow has no public hook for the slots that a checkpoint creates. In a
  release without the method, nothing changes.

  Args:
    optimizer: The optimizer that has the slots.
  """
  if hasattr(type(optimizer), _RESTORE_SLOT):
    setattr(optimizer, _RESTORE_SLOT, _SlotRestorer(optimizer))


def compute_initial_state(
  optimizer: Any, variables: list[tf.Variable]
) -> list[tuple[tf.Variable, tf.Tensor]]:
  """Returns the variables of a `compat.v1` optimizer with initial values.

  A copy of the optimizer, without the tables of its variables, creates them
  anew, eagerly. A public method that resets an optimizer would replace this
  function. `_slots`, `_non_slot_dict` and `_create_slots` are as old as the
  class. In a release without them, this function raises AttributeError.

  Args:
    optimizer: The optimizer.
    variables: The variables that the optimizer trains.

  Returns:
    Pairs of a variable of the optimizer and the value that it started from.
  """
  twin = copy.copy(optimizer)
  for table in ("_slots", "_non_slot_dict", "_deferred_slot_restorations"):
    setattr(twin, table, {})
  twin._self_unconditional_deferred_dependencies = {}
  twin._create_slots(variables)
  old, new = optimizer._slots, twin._slots | {"": twin._non_slot_dict}
  return [
    (mine[key], tf.identity(new[name][key]))
    for name, mine in (old | {"": optimizer._non_slot_dict}).items()
    for key in mine.keys() & new.get(name, {}).keys()
  ]


def read_adam(
  optimizer: tf.compat.v1.train.AdamOptimizer, dtype: tf.DType
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
  """Returns the numbers of a step of Adam, for optimizers that build on Adam.

  Public properties of `AdamOptimizer` would replace its attributes, which are
  as old as the class. In a release without them, this function raises
  AttributeError.

  Args:
    optimizer: The optimizer, while it applies gradients.
    dtype: The dtype of the results.

  Returns:
    beta1, beta2, epsilon, and the learning rate with its bias correction.
  """
  beta1, beta2, epsilon, rate = (
    tf.cast(value, dtype)
    for value in (
      *(optimizer._beta1_t, optimizer._beta2_t),
      *(optimizer._epsilon_t, optimizer._lr_t),
    )
  )
  powers = [tf.cast(p, dtype) for p in optimizer._get_beta_accumulators()]
  rate *= tf.sqrt(1 - powers[1]) / (1 - powers[0])
  return beta1, beta2, epsilon, rate
