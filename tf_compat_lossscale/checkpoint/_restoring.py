# SPDX-License-Identifier: Apache-2.0
"""Restores checkpoints of any generation into variables, objects and models.

`restore` chooses the way. The variables of a session, or a list of variables,
are restored by name here; objects are restored by name in `_eager`, and by
object in `_by_object`.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import os
import typing
from typing import Any
from typing import Literal
from typing import TypeAlias

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import arguments
from tf_compat_lossscale._core.tf import tracking
from tf_compat_lossscale.checkpoint import _by_object
from tf_compat_lossscale.checkpoint import _eager
from tf_compat_lossscale.checkpoint import _matching
from tf_compat_lossscale.checkpoint import _objects
from tf_compat_lossscale.checkpoint import _slots
from tf_compat_lossscale.checkpoint import _targets
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint import pairs
from tf_compat_lossscale.checkpoint import reading
from tf_compat_lossscale.checkpoint._report import Report
from tf_compat_lossscale.checkpoint._targets import Target
from tf_compat_lossscale.checkpoint._targets import Wishes
from tf_compat_lossscale.checkpoint.reading import Checkpoint

What: TypeAlias = Literal["all", "weights", "all_but_optimizer"]
Missing: TypeAlias = Literal["error", "initialize"]
WHAT = typing.get_args(What)
MISSING = typing.get_args(Missing)
_NOT_ASKED = "it is not among the variables to restore"
_Variables: TypeAlias = Mapping[str, tf.Variable] | Iterable[tf.Variable]


def restore(
  session: tf.compat.v1.Session | None,
  path: str | os.PathLike[str],
  objects: Any = None,
  *,
  variables: _Variables | None = None,
  what: What = "all",
  mapping: Mapping[str, str | None] | None = None,
  missing: Missing = "error",
  same_order: bool = False,
  cast: bool = False,
  learning_rate: float | None = None,
) -> Report:
  """Restores a checkpoint by name or by object, as the checkpoint was saved.

  Differences between generations are bridged: names that depend on control flow
  or API, the state of a loss scale of another API, an optimizer that only one
  side wraps. If names leave a choice, nothing is restored, and the error shows
  the `mapping` to choose from. A loss scale that the checkpoint does not have
  starts from its initial value. The report lists all of this.

  Restoring by name adds no op to the graph, so the graph may be finalized.

  Args:
    session: The session whose graph's variables are restored; None when eager.
    path: A checkpoint, as `describe` takes it.
    objects: A trackable, or a dict of trackables as `tf.train.Checkpoint` takes
      them by keyword. If it is given, an object-based checkpoint is restored by
      object. Eagerly, models and optimizers must have their variables already:
      call an optimizer's `build`, or take a step.
    variables: The variables to restore by name, or a dict from their names in
      the checkpoint to them. By default all global variables of the session's
      graph, also if `objects` are given; without a session, all variables of
      `objects`.
    what: 'all'; 'weights' for a model's variables alone, without those of
      optimizers, loss scales and the global step; or 'all_but_optimizer' to go
      on with another optimizer. The other variables are initialized. For a
      session or `variables` alone: to restore some objects, give those alone.
    mapping: Variable -> its name in the checkpoint; None to initialize it. A
      tensor may be for several variables. By name only, and not for variables
      that `what` leaves out.
    missing: 'error', or 'initialize' to initialize variables that the
      checkpoint does not have, instead of an error. Eagerly, the initial values
      of loss scales alone are known: other variables keep their values.
    same_order: Whether the program creates its optimizers in the order of the
      program that saved the checkpoint. Then variables of several optimizers
      are told apart by the numbers in their names. If the checkpoint has fewer
      loss scales than the program has optimizers, the first optimizers get
      them, and the others start from their initial values. By name only, and
      not for eager objects, which do not show the order.
    cast: Whether weights may be of another floating-point dtype in the
      checkpoint, for instance float16 there and float32 here.
    learning_rate: The learning rate with which training goes on, positive, if
      the momentum of `MomentumOptimizer` comes from Keras's SGD or the other
      way round. By default it is that of Keras's optimizer, if that is a plain
      number; a schedule needs this argument.

  Returns:
    The source of each variable's value.

  Raises:
    CheckpointError: The checkpoint is missing or damaged, a variable is neither
      found in it nor bridged, or there are several candidates for it. No
      variable is assigned then.
    ValueError: An argument has a value that is not listed above.
  """
  if learning_rate is not None and not _slots.is_rate(learning_rate):
    raise ValueError(
      f"learning_rate must be a positive number, but got {learning_rate!r}."
    )
  arguments.check_word("missing", missing, MISSING)
  arguments.check_word("what", what, WHAT)
  wishes = Wishes(pairs.check(mapping), missing, same_order, cast)
  if variables is None and session is None and objects is None:
    raise ValueError(
      "restore(None, …) needs the objects or the variables to restore, but got "
      "neither: pass objects=…, variables=… or a session."
    )
  has_objects = objects is not None and variables is None
  if has_objects:
    _objects.make_trackable(objects)  # Raises an error for what is none.

  def attempt(checkpoint: Checkpoint) -> Report:
    if has_objects and checkpoint.object_graph is not None:
      if what != "all" or mapping is not None or same_order:
        raise ValueError(
          f"what={what!r}, mapping={mapping!r} and same_order={same_order!r} "
          "are for variables by name, but the objects are restored by their "
          "paths: leave them out; to restore some objects, give those alone."
        )
      return _by_object.restore_objects(session, checkpoint, objects, wishes)
    if has_objects and session is None:
      if what != "all":
        raise ValueError(
          f"what={what!r} is for a session or for variables: to restore some "
          "objects, give those alone."
        )
      return _eager.restore_by_name(checkpoint, objects, wishes, learning_rate)
    listed = _list_global(session) if variables is None else variables
    targets = list_targets(listed)
    _excuse(targets, what)
    for target in targets:
      if target.why and target.name in wishes.mapping:
        raise ValueError(
          f"mapping names {target.name!r}, which {target.why} leaves out: take "
          "it out of the mapping, or restore more by `what`."
        )
    notes = match_by_name(session, checkpoint, targets, wishes, learning_rate)
    return fill_by_name(session, checkpoint, targets, notes)

  return reading.read_consistently(path, attempt)


def list_targets(variables: _Variables) -> list[Target]:
  """Returns the targets of variables, or of a dict from names to them."""
  found: dict[str, Target] = {}
  named = variables.items() if isinstance(variables, Mapping) else None
  for name, value in named or (("", value) for value in variables):
    for variable in _list_parts(value):
      if not _objects.is_variable(variable):
        raise ValueError(
          "variables must be a list of variables, or a dict from names to "
          f"them, but has {variable!r}."
        )
      part = tracking.find_slice(variable)
      own = part.full_name if part else _targets.get_name(variable)
      target = _targets.make_target(name or own, variable)
      known = found.setdefault(target.name, target)
      if known is not target and not part:
        raise ValueError(
          f"Two variables are called {target.name!r}, but names must differ: "
          "give a dict from the names in the checkpoint to the variables."
        )
      if known is not target:
        known.variables.append(variable)
  return list(found.values())


def _list_parts(value: Any) -> list[Any]:
  if isinstance(value, (list, tuple)):
    return list(value)
  # A PartitionedVariable is no variable itself.
  return list(value) if hasattr(value, "partitions") else [value]


def _list_global(session: tf.compat.v1.Session) -> list[Any]:
  """Returns the variables of a session's graph, in the order of creation."""
  found: list[Any] = session.graph.get_collection(
    tf.compat.v1.GraphKeys.GLOBAL_VARIABLES
  )
  return found


def _list_others(
  session: tf.compat.v1.Session | None, targets: list[Target]
) -> list[Target]:
  """Returns the targets of the graph's further variables."""
  if session is None:
    return []
  known = {v.name for target in targets for v in target.variables}
  taken = {target.name for target in targets}
  others = {
    _targets.get_name(v): v
    for v in _list_global(session)
    if v.name not in known and _targets.get_name(v) not in taken
  }
  return [_targets.make_target(name, v) for name, v in others.items()]


def match_by_name(
  session: tf.compat.v1.Session | None,
  checkpoint: Checkpoint,
  targets: list[Target],
  wishes: Wishes,
  learning_rate: float | None = None,
) -> list[str]:
  """Finds the tensor that each target is to get; returns notes."""
  order: list[str] = []
  if session is not None:
    own = {id(v): target.name for target in targets for v in target.variables}
    order = [
      own.get(id(v), _targets.get_name(v)) for v in _list_global(session)
    ]
  others = _list_others(session, targets)
  program = {each.name: each.spec for each in (*targets, *others)}
  whole = {n: pairs.find_there(n, wishes.mapping) for n in program}
  decided = {**wishes.mapping, **{n: t for n, t in whole.items() if n != t}}
  named, mapping = _slots.name_keras(
    checkpoint, targets, decided, learning_rate
  )
  renamed = pairs.rename(
    checkpoint.prefix,
    _targets.list_sources(checkpoint),
    {here: mapping[here] for here in wishes.mapping},
    program,
  )
  notes = _matching.Matching(
    checkpoint,
    targets,
    renamed.sources | named,
    dataclasses.replace(wishes, mapping=renamed.mapping),
    others,
    dict.fromkeys(order),
  ).run()
  return renamed.notes + notes


def fill_by_name(
  session: tf.compat.v1.Session | None,
  checkpoint: Checkpoint,
  targets: list[Target],
  notes: Iterable[str] = (),
) -> Report:
  """Assigns the values that `match_by_name` found, and returns the report."""
  keys = names.list_keys(checkpoint).values()
  report = _targets.fill(session, checkpoint, targets, keys=keys, notes=notes)
  for other in _list_others(session, targets):
    report.kept[other.name] = _NOT_ASKED
  return report


def _excuse(targets: list[Target], what: str) -> None:
  """Decides that what `what` leaves out is initialized."""
  if what == "all":
    return
  tensors = {target.name: target.spec for target in targets}
  trained = {
    target.name
    for target in targets
    if all(v.trainable for v in target.variables)
  }
  own = {
    name
    for name, primary in names.find_slots(tensors)
    if primary in trained and name not in trained
  }
  own |= {n for n, s in tensors.items() if names.is_power(n, s)} - trained
  if what == "weights":
    for scale in names.find_scales(tensors).known:
      own.update(scale.all)
    own.update(filter(names.is_global_step, tensors))
  for target in targets:
    if target.name in own:
      target.why = f"what={what!r}"
