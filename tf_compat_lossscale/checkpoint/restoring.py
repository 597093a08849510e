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

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import arguments
from tf_compat_lossscale._core.tf import tracking
from tf_compat_lossscale.checkpoint import eager
from tf_compat_lossscale.checkpoint import keras_names
from tf_compat_lossscale.checkpoint import matching
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint import objects as by_object
from tf_compat_lossscale.checkpoint import reading
from tf_compat_lossscale.checkpoint.matching import Match
from tf_compat_lossscale.checkpoint.matching import Source
from tf_compat_lossscale.checkpoint.matching import Wishes
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import CheckpointError
from tf_compat_lossscale.checkpoint.reading import TensorSpec
from tf_compat_lossscale.checkpoint.report import Report

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
      object, and variables that are created later get their values then. By
      name and eagerly, optimizers must have their slots already: take a step,
      or call an optimizer's `build`.
    variables: The variables to restore by name, or a dict from their names in
      the checkpoint to them. By default all global variables of the session's
      graph, also if `objects` are given; without a session, all variables of
      `objects`.
    what: 'all'; 'weights' for a model's variables alone, without those of
      optimizers, loss scales and the global step; or 'all_but_optimizer' to go
      on with another optimizer. The other variables are initialized. By name
      only: to restore some objects, give those alone.
    mapping: Variable -> its name in the checkpoint; None to initialize it. A
      tensor may be for several variables. By name only.
    missing: 'error', or 'initialize' to initialize variables that the
      checkpoint does not have, instead of an error. Those of Keras's optimizers
      keep their values if the checkpoint is by name.
    same_order: Whether the program creates its optimizers in the order of the
      program that saved the checkpoint. Then variables of several optimizers
      are told apart by the numbers in their names. By name only.
    cast: Whether weights may be of another floating-point dtype in the
      checkpoint, for instance float16 there and float32 here.
    learning_rate: The learning rate with which training goes on, positive, if
      the momentum of `MomentumOptimizer` comes from Keras's SGD or the other
      way round. By default it is the program's, or else the checkpoint's.

  Returns:
    The source of each variable's value.

  Raises:
    CheckpointError: The checkpoint is missing or damaged, a variable is neither
      found in it nor bridged, or there are several candidates for it. No
      variable is assigned then.
    ValueError: An argument has a value that is not listed above.
  """
  if learning_rate is not None and not 0 < learning_rate < float("inf"):
    raise ValueError(
      f"learning_rate must be a positive number, but got {learning_rate!r}."
    )
  arguments.check_word("missing", missing, MISSING)
  arguments.check_word("what", what, WHAT)
  _check_mapping(mapping or {})
  wishes = Wishes(mapping or {}, missing, same_order, cast)
  has_objects = objects is not None and variables is None
  if has_objects:
    by_object.make_trackable(objects)  # Raises an error for what is none.

  def attempt(checkpoint: Checkpoint) -> Report:
    if has_objects and checkpoint.object_graph is not None:
      if what != "all" or mapping is not None or same_order:
        raise ValueError(
          f"what={what!r}, mapping={mapping!r} and same_order={same_order!r} "
          "are for variables by name, but the objects are restored by their "
          "paths: leave them out; to restore some objects, give those alone."
        )
      return by_object.restore_objects(
        session, checkpoint, objects, missing, cast
      )
    if has_objects and session is None and what == "all":
      return eager.restore_by_name(checkpoint, objects, wishes, learning_rate)
    return _restore_by_name(
      session, checkpoint, objects, variables, what, wishes, learning_rate
    )

  return reading.read_consistently(path, attempt)


def _check_mapping(mapping: Mapping[str, str | None]) -> None:
  """Raises a ValueError if a mapping has anything but names."""
  for here, there in mapping.items():
    if not isinstance(here, str) or not isinstance(there, (str, type(None))):
      raise ValueError(
        "mapping must be a dict from a variable's name to its name in the "
        f"checkpoint, or None, but has {here!r}: {there!r}."
      )


class Targets:
  """Variables by the names that a checkpoint has for them.

  Attributes:
    parts: Name -> the variable, or the parts of a partitioned one.
    tensors: Name -> dtype and shape, of the whole.
  """

  def __init__(self, variables: _Variables) -> None:
    """Takes variables, or a dict from names to them, as a Saver does."""
    self.parts: dict[str, list[Any]] = {}
    self.tensors: dict[str, TensorSpec] = {}
    if isinstance(variables, Mapping):
      for name, value in variables.items():
        for variable in _list_parts(value):
          self._add(name, variable)
    else:
      for value in variables:
        for variable in _list_parts(value):
          part = tracking.find_slice(variable)
          name = part.full_name if part else _get_name(variable)
          self._add(name, variable)

  def _add(self, name: str, variable: Any) -> None:
    part = tracking.find_slice(variable)
    shape = part.full_shape if part else variable.shape.as_list()
    dtype = variable.dtype.base_dtype.name
    known = self.parts.setdefault(name, [])
    if known and not part:
      raise ValueError(
        f"Two variables are called {name!r}, but names must differ: give a "
        "dict from the names in the checkpoint to the variables."
      )
    known.append(variable)
    self.tensors[name] = TensorSpec(dtype, tuple(int(size) for size in shape))

  def list_others(self, session: tf.compat.v1.Session) -> Targets:
    """Returns the graph's further variables."""
    known = {v.name for parts in self.parts.values() for v in parts}
    others = Targets([])
    for variable in _list_global(session):
      if variable.name not in known and _get_name(variable) not in self.parts:
        others._add(_get_name(variable), variable)
    return others

  def find_betas(self) -> dict[str, float]:
    """Returns the powers of Adam -> their initial values, if known."""
    betas = {}
    for name, spec in self.tensors.items():
      if names.is_power(name, spec):
        initializer = getattr(self.parts[name][0], "initializer", None)
        inputs = list(initializer.inputs) if initializer is not None else []
        # `get_static_value` would forbid to feed the tensor.
        if len(inputs) > 1 and inputs[1].op.type == "Const":
          value = tf.make_ndarray(inputs[1].op.get_attr("value"))
          betas[name] = float(value)
    return betas


def _restore_by_name(
  session: tf.compat.v1.Session | None,
  checkpoint: Checkpoint,
  objects: Any,
  variables: _Variables | None,
  what: What,
  wishes: Wishes,
  learning_rate: float | None,
) -> Report:
  """Restores variables by name."""
  if variables is None and session is None and objects is None:
    raise ValueError(
      "restore(None, …) needs the objects or the variables to restore, but got "
      "neither: pass objects=…, variables=… or a session."
    )
  if variables is None:
    variables = (
      by_object.list_variables(objects)
      if session is None
      else _list_global(session)
    )
  targets = Targets(variables)
  wishes = dataclasses.replace(wishes, excused=_excuse(targets, what))
  match = match_by_name(session, checkpoint, targets, wishes, learning_rate)
  initial = (
    {} if session or objects is None else by_object.find_initial_values(objects)
  )
  return assign_by_name(session, checkpoint, targets, match, initial, wishes)


def match_by_name(
  session: tf.compat.v1.Session | None,
  checkpoint: Checkpoint,
  targets: Targets,
  wishes: Wishes,
  learning_rate: float | None = None,
) -> Match:
  """Finds the tensor that each variable is to get."""
  sources = {
    name: Source(key, checkpoint.specs[key])
    for name, key in names.list_keys(checkpoint).items()
  }
  others: dict[str, TensorSpec] = {}
  order: list[str] = []
  if session is not None:
    others = targets.list_others(session).tensors
    names_here = {
      id(v): name for name, parts in targets.parts.items() for v in parts
    }
    order = [names_here.get(id(v), _get_name(v)) for v in _list_global(session)]
  named = keras_names.name_keras(
    checkpoint,
    targets.tensors,
    wishes.mapping,
    learning_rate,
    targets.find_betas(),
  )
  match = matching.match_names(
    targets.tensors,
    {**sources, **named.sources},
    checkpoint.prefix,
    dataclasses.replace(
      wishes,
      excused={**named.initial, **wishes.excused},
      mapping=named.mapping,
    ),
    others,
    dict.fromkeys(order),
  )
  match.reasons.update(
    {n: why for n, why in named.reasons.items() if n in match.sources}
  )
  return match


def assign_by_name(
  session: tf.compat.v1.Session | None,
  checkpoint: Checkpoint,
  targets: Targets,
  match: Match,
  initial: Mapping[int, Any],
  wishes: Wishes,
) -> Report:
  """Assigns the values that `match_by_name` found.

  Args:
    session: The session; None when eager.
    checkpoint: The checkpoint.
    targets: The variables.
    match: The sources of their values.
    initial: The `id` of a variable -> its initial value, when eager.
    wishes: What the caller decided.

  Returns:
    The source of each variable's value.
  """
  if not match.sources:
    raise CheckpointError(
      f"{checkpoint.prefix}: nothing in it is for the given variables"
      f"{'' if targets.parts else ', of which there are none'}"
    )
  # All values are read before the first is assigned, so damage shows here.
  assigned = list(_read_values(checkpoint, targets, match))
  check_powers(checkpoint, targets, match, wishes)
  initialized, fresh = dict(match.initialized), []
  kept: dict[str, str] = {}
  if session is not None:
    kept = dict.fromkeys(targets.list_others(session).parts, _NOT_ASKED)
  for name, why in match.initialized.items():
    for variable in targets.parts[name]:
      value = initial.get(id(variable))
      if value is not None or session is not None:
        fresh.append((variable, value))
      else:
        kept[name] = f"{why}, and eagerly its initial value is not known"
        initialized.pop(name, None)
  assign = by_object.plan_assignments(session, assigned, fresh)
  checkpoint.check_current()
  assign()
  keys = {name: source.key for name, source in match.sources.items()}
  return Report(
    checkpoint.prefix,
    restored={n: key for n, key in keys.items() if n not in match.reasons},
    bridged={n: keys[n] for n in match.reasons},
    initialized=initialized,
    kept=kept,
    unused=match.unused,
    proofs=match.reasons,
    notes=(*checkpoint.notes, *match.notes),
  )


def check_powers(
  checkpoint: Checkpoint, targets: Targets, match: Match, wishes: Wishes
) -> None:
  """Refuses powers that are another optimizer's, as their values tell.

  The caller's mapping is not doubted.
  """
  keys = {
    name: match.sources[name].key
    for name in targets.tensors
    if name in match.sources
    and name not in wishes.mapping
    and names.is_power(name, targets.tensors[name])
    and match.sources[name].value is None
  }
  if keys:
    matching.check_powers(
      checkpoint.prefix,
      {name: float(checkpoint.read(key)) for name, key in keys.items()},
      targets.find_betas(),
      keys,
    )


def _read_values(
  checkpoint: Checkpoint, targets: Targets, match: Match
) -> Iterator[tuple[Any, np.ndarray]]:
  """Yields the variables, each with its value."""
  sliced: list[tuple[Any, Source, str]] = []
  for name, source in match.sources.items():
    for variable in targets.parts[name]:
      part = tracking.find_slice(variable)
      if part is None or source.value is not None:
        yield variable, source.read(checkpoint)
      else:
        sliced.append((variable, source, part.spec))
  values = checkpoint.read_slices([(s.key, part) for _, s, part in sliced])
  for (variable, source, _), value in zip(sliced, values):
    yield variable, source.change(value, checkpoint.prefix)


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
  if what == "weights":
    for scale in names.find_scales(targets.tensors).known:
      own.update(scale.names, scale.counts)
    own.update(
      name
      for name in targets.tensors
      if names.split_scope(name)[1] == "global_step"
    )
  return dict.fromkeys(own, f"what={what!r}")


def _list_global(session: tf.compat.v1.Session) -> list[Any]:
  """Returns the variables of a session's graph, in the order of creation."""
  found: list[Any] = session.graph.get_collection(
    tf.compat.v1.GraphKeys.GLOBAL_VARIABLES
  )
  return found


def _get_name(variable: Any) -> str:
  return str(variable.name.split(":")[0])


def _list_parts(value: Any) -> list[Any]:
  """Returns the parts of a partitioned variable, or the variable alone."""
  if isinstance(value, (list, tuple)):
    return list(value)
  # A PartitionedVariable is no variable itself.
  return list(value) if hasattr(value, "partitions") else [value]
