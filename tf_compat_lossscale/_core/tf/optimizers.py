# SPDX-License-Identifier: Apache-2.0
"""Private state of `tf.compat.v1.train.Optimizer`."""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import copy
import sys
from typing import Any
import weakref

# Not plain `tensorflow`: a program may import TensorFlow 1 by that name.
import tensorflow.compat.v2 as tf

# The names of the attributes that each `tf.compat.v1.train.Optimizer` has.
STATE = frozenset(vars(tf.compat.v1.train.Optimizer(False, "optimizer")))


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


class _Method:
  """A method of one optimizer, in place of that of its class.

  TensorFlow asks the optimizer itself, so there is no other place for it.
  """

  def __init__(
    self,
    optimizer: tf.compat.v1.train.Optimizer,
    function: Callable[..., Any],
  ) -> None:
    self._refer = weakref.ref(optimizer)
    self._function = function

  def __deepcopy__(self, memo: dict[int, Any]) -> _Method:
    """Returns the method of a copy of the optimizer."""
    optimizer = self._refer()
    return _Method(memo.get(id(optimizer), optimizer), self._function)

  def __reduce__(self) -> tuple[Any, ...]:
    """Returns what `pickle`, which keeps no weak references, makes it of."""
    return _Method, (self._refer(), self._function)

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    """Calls the function with the optimizer and the arguments."""
    return self._function(self._refer(), *args, **kwargs)


def adopt(optimizer: tf.compat.v1.train.Optimizer) -> None:
  """Mends how TensorFlow saves and restores an optimizer's variables.

  - A slot that a checkpoint creates, because it is restored before the first
    step, belongs to the strategy in whose scope the checkpoint is restored. If
    that is none, the slot of a mirrored variable is on one device alone, and
    the first step fails. It is to belong to the strategy of its variable.
  - A SavedModel has slots by reference to the optimizer, and TensorFlow makes
    them anew by `add_slot` when it loads. A `compat.v1` optimizer is loaded as
    an object without that method, and loading fails. So a SavedModel is to have
    slots as plain children of the optimizer.
  - TensorFlow 2.12 saves a variable such as `beta1_power` only from the thread
    that has created it, and replicas are threads.

  TensorFlow has no public hook for any of these. In a release without one of
  these methods, the class's own way stays.

  Args:
    optimizer: The optimizer that has the slots.
  """
  for name, function in _METHODS.items():
    if hasattr(type(optimizer), name):
      setattr(optimizer, name, _Method(optimizer, function))


def _restore_slot(optimizer: Any, **kwargs: Any) -> Any:
  """Restores a slot in the strategy of its variable."""
  with enter_strategy(kwargs.get("variable")):
    return type(optimizer)._create_or_restore_slot_variable(optimizer, **kwargs)


def enter_strategy(variable: Any) -> Any:
  """Returns the scope of a variable's strategy, unless one is entered."""
  strategy = getattr(variable, "distribute_strategy", None)
  if strategy is None or tf.distribute.has_strategy():
    return contextlib.nullcontext()
  return strategy.scope()


def _list_children(
  optimizer: Any, save_type: str = "checkpoint", **kwargs: Any
) -> dict[str, Any]:
  """Returns the children to save; for a SavedModel, also the slots."""
  cls = type(optimizer)
  children = dict(cls._trackable_children(optimizer, save_type, **kwargs))
  if tf.executing_eagerly():
    # TensorFlow 2.12 leaves out what the thread of a replica has created.
    table = getattr(optimizer, "_non_slot_dict", {})
    for (name, graph), variable in table.items():
      if graph is None:
        children.setdefault(name, variable)
  if save_type == "savedmodel":
    known = {id(child) for child in children.values()}
    for i, variable in enumerate(list_variables(optimizer)):
      if id(variable) not in known:
        children[f"variable_{i}"] = variable
  return children


def _list_slot_names(optimizer: Any) -> Any:
  """Returns the names of the slots; none for the writer of a SavedModel."""
  if _is_writing_saved_model():
    return []
  return type(optimizer).get_slot_names(optimizer)


def _is_writing_saved_model() -> bool:
  """Returns whether the writer of a SavedModel asks for slots.

  The call stack tells: the writer asks with the same call, without arguments,
  as a program does. TensorFlow's private `in_save_context` does not tell: the
  writer leaves that context before it writes the variables.
  """
  frame: Any = sys._getframe(3)  # Below are this module's functions.
  name = str(frame.f_globals.get("__name__", ""))
  if not name.startswith("tensorflow.python.checkpoint."):
    return False
  while frame is not None:
    if frame.f_globals.get("__name__") == "tensorflow.python.saved_model.save":
      return True
    frame = frame.f_back
  return False


# What `adopt` replaces.
_METHODS = {
  "_create_or_restore_slot_variable": _restore_slot,
  "_trackable_children": _list_children,
  "get_slot_names": _list_slot_names,
}


def list_variables(optimizer: tf.compat.v1.train.Optimizer) -> list[Any]:
  """Returns an optimizer's variables of the current graph; eagerly, all.

  The public method leaves out the variables that a `tf.function` has created on
  several replicas: the threads of the replicas have eager graphs of their own.

  Args:
    optimizer: An optimizer; a wrapper has the variables of the one inside.
  """
  found = {id(variable): variable for variable in optimizer.variables()}
  if tf.executing_eagerly():
    tables = [
      getattr(optimizer, "_non_slot_dict", {}),
      *getattr(optimizer, "_slots", {}).values(),
    ]
    for variable in (each for table in tables for each in table.values()):
      if not getattr(variable, "_in_graph_mode", True):
        found.setdefault(id(variable), variable)
  return list(found.values())


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
  for name, value in vars(optimizer).items():
    if isinstance(value, (dict, list, set)):  # A subclass's own tables.
      setattr(twin, name, copy.copy(value))
  for table in ("_slots", "_non_slot_dict", "_deferred_slot_restorations"):
    setattr(twin, table, {})
  twin._self_unconditional_deferred_dependencies = {}
  for name in _METHODS:  # What `adopt` has set asks the original.
    vars(twin).pop(name, None)
  twin._create_slots(variables)
  old, new = optimizer._slots, twin._slots | {"": twin._non_slot_dict}
  return [
    (mine[key], tf.identity(new[name][key]))
    for name, mine in (old | {"": optimizer._non_slot_dict}).items()
    for key in mine.keys() & new.get(name, {}).keys()
  ]
