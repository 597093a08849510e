# SPDX-License-Identifier: Apache-2.0
"""Restores checkpoints of any generation into variables, objects and models."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import os
import typing
from typing import Any
from typing import Literal
from typing import TypeAlias

from absl import logging
import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import arguments
from tf_compat_lossscale._core import session_values
from tf_compat_lossscale.checkpoint import _eager_slots
from tf_compat_lossscale.checkpoint import _restoring_keras
from tf_compat_lossscale.checkpoint import _restoring_objects
from tf_compat_lossscale.checkpoint import paths
from tf_compat_lossscale.checkpoint.files import consistency
from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.bundle import OBJECT_GRAPH
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.layouts import by_object
from tf_compat_lossscale.checkpoint.layouts import inventory
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts import policy_weights
from tf_compat_lossscale.checkpoint.layouts import slots_by_name
from tf_compat_lossscale.checkpoint.layouts.match import Match
from tf_compat_lossscale.checkpoint.layouts.match import Wishes
from tf_compat_lossscale.checkpoint.report import Report
from tf_compat_lossscale.checkpoint.targets import slice_part
from tf_compat_lossscale.checkpoint.targets import Targets

What: TypeAlias = Literal["all", "weights", "all_but_optimizer"]
Missing: TypeAlias = Literal["error", "initialize"]
WHAT = typing.get_args(What)
MISSING = typing.get_args(Missing)
_NOT_ASKED = "it is not among the variables to restore"


def restore(
  session: tf.compat.v1.Session | None,
  path: str | os.PathLike[str],
  objects: Any = None,
  *,
  variables: Mapping[str, tf.Variable] | Iterable[tf.Variable] | None = None,
  what: What = "all",
  mapping: Mapping[str, str | None] | None = None,
  missing: Missing = "error",
  learning_rate: float | None = None,
) -> Report:
  """Restores a checkpoint by name or by object, as the checkpoint was saved.

  Differences between generations are bridged: names that depend on control flow
  or API, the state of a loss scale of another API, an optimizer that only one
  side wraps. Each bridge has a proof: the graph here and the MetaGraph or the
  object graph there show that the same variables depend on the variable, or
  there is a single candidate. A loss scale that the checkpoint does not have
  starts from its initial value. The report lists all of this.

  Restoring by name adds no op to the graph, so the graph may be finalized.

  Args:
    session: The session whose graph's variables are restored; None when eager.
    path: A checkpoint, as `describe` takes it.
    objects: A trackable, or a dict of trackables as `tf.train.Checkpoint` takes
      them by keyword. If it is given, an object-based checkpoint is restored by
      object, and variables that are created later get their values then. By
      name and eagerly, optimizers must have their slots already: take a step,
      or call an optimizer's `build`.
    variables: The variables to restore by name, or a dict from their names in
      the checkpoint to them. By default all global variables of the session's
      graph, or all variables of `objects`.
    what: 'all'; 'weights' for a model's variables alone, without those of
      optimizers, loss scales and the global step; or 'all_but_optimizer' to go
      on with another optimizer. The other variables are initialized. By name
      only: to restore some objects, give those alone.
    mapping: Variable -> its name in the checkpoint, if nothing proves which of
      several names is the variable's; None to initialize it. By name only.
    missing: 'error', or 'initialize' to initialize variables that the
      checkpoint does not have, instead of an error. Those of Keras's optimizers
      keep their values if the checkpoint is by name.
    learning_rate: The learning rate with which training goes on, positive, if
      the momentum of `MomentumOptimizer` comes from Keras's SGD or the other
      way round. By default it is the program's, or else the checkpoint's.

  Returns:
    The source of each variable's value.

  Raises:
    CheckpointError: The checkpoint is missing or damaged, a variable is neither
      found in it nor bridged, or nothing proves which of several variables it
      is. No variable is assigned then.
    ValueError: An argument has a value that is not listed above.
  """
  if learning_rate is not None and not 0 < learning_rate < float("inf"):
    raise ValueError(
      f"learning_rate must be a positive number, but got {learning_rate!r}."
    )
  arguments.check_word("missing", missing, MISSING)
  arguments.check_word("what", what, WHAT)
  path = os.fspath(path)
  wishes = Wishes(mapping or {}, missing, learning_rate, what)

  def attempt(bundle: Bundle) -> Report:
    has_objects = objects is not None and variables is None
    if has_objects and OBJECT_GRAPH in bundle.specs:
      if what != "all" or mapping is not None:
        raise ValueError(
          f"what={what!r} and mapping={mapping!r} are for variables by name, "
          "but the objects are restored by their paths: leave both out; to "
          "restore some objects, give those alone."
        )
      return _restoring_objects.restore_objects(
        session, bundle, objects, missing
      )
    if (
      has_objects
      and session is None
      and what == "all"
      and _restoring_objects.has_keras_optimizer(objects)
    ):
      return _restoring_keras.restore_names(bundle, objects, wishes)
    return _restore_by_name(session, bundle, objects, variables, wishes)

  return consistency.read_consistently(lambda: paths.find(path).path, attempt)


def _restore_by_name(
  session: tf.compat.v1.Session | None,
  bundle: Bundle,
  objects: Any,
  variables: Mapping[str, tf.Variable] | Iterable[tf.Variable] | None,
  wishes: Wishes,
) -> Report:
  """Restores variables by name, and eagerly the slots of their optimizers."""
  slots, renamed = None, {}
  is_eager = session is None and tf.executing_eagerly()
  if is_eager and variables is None and wishes.what == "all":
    known = by_object.list_by_name(bundle).keys()
    slots = _eager_slots.EagerSlots(objects, known, wishes.mapping)
    renamed = slots.name_variables()
    mapped = slots.map_variables(renamed)
    wishes = dataclasses.replace(wishes, mapping=mapped)
  targets = Targets(_choose_variables(session, objects, variables), renamed)
  match = match_by_name(session, bundle, targets, wishes)
  if slots is not None:
    slots.check_lost(bundle, match)
  initial = {} if session else _restoring_objects.find_initial_values(objects)
  return assign_by_name(session, bundle, targets, match, initial)


def _choose_variables(
  session: tf.compat.v1.Session | None,
  objects: Any,
  variables: Mapping[str, tf.Variable] | Iterable[tf.Variable] | None,
) -> Mapping[str, tf.Variable] | Iterable[tf.Variable]:
  """Returns the variables to restore by name, as the arguments say."""
  if variables is not None:
    return variables
  if session is not None:
    return session.graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
  if objects is None:
    raise ValueError(
      "restore(None, …) needs the objects or the variables to restore, but got "
      "neither: pass objects=…, variables=… or a session."
    )
  return _restoring_objects.list_variables(objects)


def match_by_name(
  session: tf.compat.v1.Session | None,
  bundle: Bundle,
  targets: Targets,
  wishes: Wishes,
) -> Match:
  """Returns the tensor that each variable is to get."""
  here = inventory.Inventory(
    targets.tensors,
    lambda: targets.find_evidence(session) if session else None,
    session is not None and _trains_once(session.graph),
  )
  match = slots_by_name.match_names(
    here,
    by_object.list_by_name(bundle),
    bundle,
    dataclasses.replace(wishes, excused=_excuse(targets, wishes.what)),
  )
  if match.unproven:
    first, *more = sorted(match.unproven)
    logging.warning(
      "%s: several optimizers of one name have slots of one variable, and "
      "nothing proves which are whose: equal names decided about %s%s. The "
      "MetaGraph (the '.meta' file) beside the checkpoint would be a proof.",
      bundle.prefix,
      first,
      f" and {len(more)} more" if more else "",
    )
  return match


def _trains_once(graph: tf.Graph) -> bool:
  """Returns whether optimizers made a single op that applies gradients."""
  return len(graph.get_collection(tf.compat.v1.GraphKeys.TRAIN_OP)) == 1


def assign_by_name(
  session: tf.compat.v1.Session | None,
  bundle: Bundle,
  targets: Targets,
  match: Match,
  initial: Mapping[int, Any],
) -> Report:
  """Assigns the values that `match_by_name` found.

  Args:
    session: The session; None when eager.
    bundle: The checkpoint.
    targets: The variables.
    match: The sources of their values.
    initial: The `id` of a variable -> its initial value, when eager.

  Returns:
    The source of each variable's value.
  """
  # All values are read before the first is assigned, so damage shows here.
  values = {name: source.read() for name, source in match.sources.items()}
  if not bundle.is_current():
    raise CheckpointError(f"{bundle.prefix}: it was overwritten meanwhile")
  assigned = [
    (variable, slice_part(variable, values[name]))
    for name in values
    for variable in targets.parts[name]
  ]
  initialized = dict(match.initialized)
  kept = dict.fromkeys(_list_others(session, targets), _NOT_ASKED)
  if session is None:
    for name, why in match.initialized.items():
      for variable in targets.parts[name]:
        value = initial.get(id(variable))
        if value is not None:
          assigned.append((variable, value))
        else:
          kept[name] = f"{why}, and eagerly its initial value is not known"
          initialized.pop(name, None)
    for variable, value in assigned:
      variable.assign(value)
  else:
    fresh = [v for name in initialized for v in targets.parts[name]]
    _assign_in_session(session, fresh, assigned)
  origins = {n: source.origin for n, source in match.sources.items()}
  return Report(
    bundle.prefix,
    restored={n: key for n, key in origins.items() if n not in match.proofs},
    bridged={n: origins[n] for n in match.proofs},
    initialized=initialized,
    kept=kept,
    unused=match.unused,
    proofs=match.proofs,
    notes=match.notes,
  )


def _list_others(
  session: tf.compat.v1.Session | None, targets: Targets
) -> Iterator[str]:
  """Yields the names of the graph's variables that are not restored."""
  if session is None:
    return
  known = {v.name for parts in targets.parts.values() for v in parts}
  for variable in session.graph.get_collection(
    tf.compat.v1.GraphKeys.GLOBAL_VARIABLES
  ):
    if variable.name not in known:
      yield variable.name.split(":")[0]


def _excuse(targets: Targets, what: str) -> dict[str, str]:
  """Returns the variables that `what` leaves out: name -> why."""
  if what == "all":
    return {}
  own = {
    name
    for name, primary in names.find_slots(targets.tensors)
    if all(v.trainable for v in targets.parts[primary])
    and not any(v.trainable for v in targets.parts[name])
  }
  own.update(
    name
    for name, tensor in targets.tensors.items()
    if names.is_power(name, tensor)
    and not any(v.trainable for v in targets.parts[name])
  )
  why = f"what={what!r}"
  excused = dict.fromkeys(own, why)
  if what == "weights":
    scales = names.find_scales(targets.tensors).known
    for scale in scales:
      excused.update(dict.fromkeys(scale.names, why))
    for further in policy_weights.find_further(
      targets.tensors, scales
    ).values():
      excused.update(dict.fromkeys(further.values(), why))
    for name in targets.tensors:
      if names.split_scope(name)[1] == "global_step":
        excused[name] = why
  return excused


def _assign_in_session(
  session: tf.compat.v1.Session,
  initialized: list[Any],
  values: list[tuple[Any, np.ndarray]],
) -> None:
  """Initializes variables, and assigns values to others, without a new op.

  Args:
    session: The session.
    initialized: The variables to initialize.
    values: The other variables, and their values.
  """
  try:
    assignments = session_values.plan(values)
  except ValueError as error:
    raise CheckpointError(
      f"{error}; restore the variable with tf.compat.v1.train.Saver"
    ) from None
  session.run([variable.initializer for variable in initialized])
  session_values.run(session, assignments)
