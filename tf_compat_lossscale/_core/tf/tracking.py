# SPDX-License-Identifier: Apache-2.0
"""Trackables: the objects that `tf.train.Checkpoint` saves and restores.

The public trackables are `tf.Module` and `tf.Variable`. Neither lets a class
choose its children by graph, or name them by other than attributes, as the
checkpoints of old releases demand. So this module uses the hooks of the base
class, which Keras 2 itself builds on. Their names start with an underscore:
`_track_trackable`, `_trackable_children`, `_lookup_dependency`,
`_deferred_dependencies` and `_handle_deferred_dependencies`. Public hooks of
`tf.__internal__.tracking.Trackable` would replace them. In a release that
renames a hook, saving or restoring by object raises AttributeError or leaves
the weights out; the tests of checkpoints fail there.
"""

from __future__ import annotations

import sys
from typing import Any
from typing import TypeAlias

# Not plain `tensorflow`: a program may import TensorFlow 1 by that name.
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import private_names

# It has a name in `tf.__internal__` in every supported release.
Trackable: TypeAlias = tf.__internal__.tracking.Trackable

# TensorFlow 2.12 asks each `Optimizer` for its slots when it saves by object;
# its module holds that class. Later releases ask each object that has
# `get_slot_names` in its `dir()`, so `__dir__` answers them.
_ASKS_BY_TYPE = private_names.find_private("checkpoint.util", "optimizer_v1")


class WeightsByGraph(Trackable):
  """A trackable whose children depend on the current graph."""

  @property
  def _graph_state(self) -> Any:
    """What a subclass keeps for the current graph, by keys in checkpoints.

    Of this object, `weights` are the variables to save and restore, `deferred`
    the restores that wait for variables yet to be created.
    """
    raise NotImplementedError

  def _restore_waiting(self, name: str, weight: tf.Variable) -> None:
    self._handle_deferred_dependencies(name=name, trackable=weight)

  def _trackable_children(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
    children: dict[str, Any] = dict(sorted(self._graph_state.weights.items()))
    children.update(super()._trackable_children(*args, **kwargs))
    return children

  def _lookup_dependency(self, name: str, *args: Any, **kwargs: Any) -> Any:
    """Returns the child to restore by that name, or None.

    The parameters after `name` differ between releases.
    """
    found = super()._lookup_dependency(name, *args, **kwargs)
    return self._graph_state.weights.get(name) if found is None else found

  @property
  def _deferred_dependencies(self) -> dict[str, list[Any]]:
    waiting: dict[str, list[Any]] = self._graph_state.deferred
    return waiting


def track(owner: Any, child: Any, name: str) -> None:
  """Makes an object a child of a trackable, by a name in checkpoints.

  It takes the place of another child of that name. An attribute of a
  `tf.Module` is the public way; a `compat.v1` optimizer is no module.
  """
  owner._track_trackable(child, name, overwrite=True)


def is_asked_by_writer() -> bool:
  """Returns whether TensorFlow 2.12's writer calls the caller of this function.

  The writer asks an optimizer for its slots, and refuses to save if two
  optimizers claim one slot. A wrapping optimizer answers programs for the
  optimizer that it wraps. That one is tracked, too, so the wrapping optimizer
  must claim nothing from the writer. Later releases let `__dir__` say so and
  get False here. TensorFlow 2.12 asks every instance of `Optimizer`, and
  nothing but the frame tells its question from a program's.
  """
  if _ASKS_BY_TYPE is None:
    return False
  caller = sys._getframe(2).f_globals.get("__name__", "")
  return str(caller).startswith("tensorflow.python.checkpoint.")


def find_slice(variable: Any) -> Any:
  """Returns which part of a partitioned variable a variable is.

  `Saver` calls the same method. A public method would replace it. In a release
  without it, partitions count as whole variables.

  Returns:
    An object with `full_name`, `full_shape`, `var_offset` and `var_shape`;
    None if the variable is whole.
  """
  get = getattr(variable, "_get_save_slice_info", None)
  return get() if get else None


def list_children(trackable: Any) -> dict[str, Any]:
  """Returns a trackable's children by their names in checkpoints.

  `tf.train.Checkpoint` walks the same children. A public walker would replace
  this function. An object without the hook has no children.
  """
  get = getattr(trackable, "_trackable_children", None)
  return dict(get("checkpoint")) if get else {}
