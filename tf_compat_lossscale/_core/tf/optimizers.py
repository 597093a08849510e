# SPDX-License-Identifier: Apache-2.0
"""Private state of `tf.compat.v1.train.Optimizer`."""

from __future__ import annotations

import copy
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


def mirror_slots(optimizer: Any, variables: list[Any]) -> None:
  """Gives each replica slots of its own, in a replica context.

  A checkpoint that is restored outside of `Strategy.scope()` creates the slots
  that are missing, as plain variables. All replicas would update them, and a
  `tf.function` could not place them. A TensorFlow that creates them in the
  scope of the variable's strategy would make this function unneeded. `_slots`
  is as old as the class. In a release without it, nothing is changed.

  Args:
    optimizer: A `compat.v1` optimizer.
    variables: The variables that it trains.
  """
  if tf.distribute.get_strategy().num_replicas_in_sync == 1:
    return
  # An optimizer that wraps another has no slots of its own.
  slots = getattr(optimizer, "_slots", {})
  # Looked up here, for a cross-replica context has other keys.
  found = _list_plain(slots, optimizer, variables)
  if not found:
    return

  @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
  def mirror(strategy: tf.distribute.Strategy) -> None:
    for table, key, variable in found:
      with tf.init_scope(), strategy.extended.colocate_vars_with(variable):
        plain = table[key]
        table[key] = tf.compat.v1.Variable(
          plain.read_value(),
          name=plain.name.split(":")[0],
          dtype=plain.dtype,
          trainable=False,
          use_resource=True,
        )

  # All replicas come here, for none goes on before all have looked.
  tf.distribute.get_replica_context().merge_call(mirror)


def _list_plain(
  slots: dict[str, dict[Any, Any]], optimizer: Any, variables: list[Any]
) -> list[tuple[dict[Any, Any], Any, Any]]:
  """Returns the slots that the replicas share, though the variable is each's.

  Returns:
    For each of them, the table that has it, its key there and the variable.
  """
  count_parts = tf.distribute.get_strategy().experimental_local_results
  found = []
  for name, table in slots.items():
    for variable in variables:
      slot = optimizer.get_slot(variable, name)
      if slot is None or len(count_parts(variable)) == len(count_parts(slot)):
        continue
      found += [(table, key, variable) for key in table if table[key] is slot]
  return found
