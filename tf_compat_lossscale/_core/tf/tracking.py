"""Trackables: the objects that `tf.train.Checkpoint` saves and restores."""

from __future__ import annotations

import copy
import sys
from typing import Any

# Not plain `tensorflow`, which may stand for TensorFlow 1 (`tensorflow1.py`).
import tensorflow.compat.v2 as tf

# What `tf.train.Checkpoint` walks, and what Keras 2 itself builds on.
# `tf.Module` and `tf.Variable` are the public trackables; neither lets a class
# choose its children by graph.
Trackable = tf.__internal__.tracking.Trackable


def is_checkpointing() -> bool:
  """Whether the caller's caller is TensorFlow's writer of checkpoints.

  It asks every optimizer that it finds for its slots and refuses to save when
  two claim the same one. An optimizer that speaks for the one it wraps, which
  is tracked too, must therefore be silent to it, and to it alone. A tracking
  hook that names the owner of a slot would replace this.
  """
  caller = sys._getframe(2).f_globals.get("__name__", "")
  return caller.startswith("tensorflow.python.checkpoint.")


def slice_info(variable: Any) -> Any:
  """Which part of a partitioned variable this one is; None if it is whole.

  `Saver` reads the same attribute. A public reader would replace this.

  Returns:
    An object with `full_name`, `full_shape`, `var_offset` and `var_shape`.
  """
  get = getattr(variable, "_get_save_slice_info", None)
  return get() if get else None


def children(trackable: Any) -> dict[str, Any]:
  """What a trackable's checkpoint holds under it: name -> trackable.

  `tf.train.Checkpoint` walks these. A public walker would replace this.
  """
  get = getattr(trackable, "_trackable_children", None)
  return dict(get("checkpoint")) if get else {}


def initial_state(
  optimizer: Any, variables: list[tf.Variable]
) -> list[tuple[tf.Variable, tf.Tensor]]:
  """The own variables of a `compat.v1` optimizer, and what each starts from.

  A copy of it makes them anew, eagerly. A public reset would replace this.
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
