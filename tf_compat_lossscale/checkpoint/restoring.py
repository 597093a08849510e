"""Restores checkpoints of any generation into what there is now."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import os
from typing import Any

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale.checkpoint import _restoring_models
from tf_compat_lossscale.checkpoint import _restoring_objects
from tf_compat_lossscale.checkpoint import describing
from tf_compat_lossscale.checkpoint import description as kinds
from tf_compat_lossscale.checkpoint import paths
from tf_compat_lossscale.checkpoint.files import consistency as _consistency
from tf_compat_lossscale.checkpoint.files import (
  tensorflow_reader as _tensorflow_reader,
)
from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.bundle import OBJECT_GRAPH
from tf_compat_lossscale.checkpoint.files.errors import CheckpointError
from tf_compat_lossscale.checkpoint.files.sources import Literal
from tf_compat_lossscale.checkpoint.files.sources import Source
from tf_compat_lossscale.checkpoint.layouts import by_object
from tf_compat_lossscale.checkpoint.layouts import evidence
from tf_compat_lossscale.checkpoint.layouts import inventory
from tf_compat_lossscale.checkpoint.layouts import matching
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts.match import Match
from tf_compat_lossscale.checkpoint.layouts.sources import get_origin
from tf_compat_lossscale.checkpoint.layouts.sources import Sources
from tf_compat_lossscale.checkpoint.report import Report
from tf_compat_lossscale.checkpoint.targets import part_of
from tf_compat_lossscale.checkpoint.targets import Targets

WHAT = ("all", "weights", "all_but_optimizer")
_NOT_ASKED = "it is not among the variables to restore"
MISSING = ("error", "initialize")


def restore(
  session: tf.compat.v1.Session | None,
  path: str | os.PathLike[str],
  objects: Any = None,
  *,
  variables: Mapping[str, tf.Variable] | Iterable[tf.Variable] | None = None,
  what: str = "all",
  mapping: Mapping[str, str | None] | None = None,
  missing: str = "error",
) -> Report:
  """Restores a checkpoint, by name or by object, whichever it is.

  What differs between generations is bridged: names that depend on control
  flow or API, the state of a loss scale of another API, an optimizer that was
  not wrapped then or is not now. Each bridge has a proof: the graph here and
  the MetaGraph or the object graph there show the same variables to depend on
  it, or it is the only candidate. A loss scale of which the checkpoint has
  nothing starts anew. The report says all of that.

  By name, no op is added to the graph, so that it may be finalized.

  Args:
    session: The session whose graph's variables are restored; None when eager.
    path: A checkpoint, as `describe` takes it.
    objects: A trackable, or a dict of those as `tf.train.Checkpoint` takes
      them by keyword. With it an object-based checkpoint is restored by
      object, and what is made later gets its value then. A Keras file needs a
      Keras model here.
    variables: What to restore by name: variables, or a dict from their names
      in the checkpoint. By default all global variables of the session's
      graph, or all that `objects` have.
    what: 'all'; 'weights' for a model's variables alone, without those of
      optimizers, loss scales and the global step; or 'all_but_optimizer' to go
      on with another optimizer. The others are initialized. By name only: to
      restore some objects, give those alone.
    mapping: Variable -> its name in the checkpoint, where nothing proves which
      of several it is; None to initialize it. By name only.
    missing: 'error', or 'initialize' to initialize variables that the
      checkpoint has not, instead of an error.

  Returns:
    What came from where.

  Raises:
    CheckpointError: The checkpoint is missing or damaged, something is neither
      found in it nor bridged, or nothing proves which of several variables it
      is. Nothing is assigned then.
    ValueError: An argument is none of those.
  """
  if missing not in MISSING:
    raise ValueError(
      f"missing must be one of {', '.join(MISSING)}, but got {missing!r}."
    )
  if what not in WHAT:
    raise ValueError(
      f"what must be one of {', '.join(WHAT)}, but got {what!r}."
    )
  found = paths.find(os.fspath(path))
  if found.kind in (kinds.KERAS_H5, kinds.KERAS_ZIP):
    description = describing.describe(found.path)
    return _restoring_models.restore(description, objects, missing)

  def attempt(bundle: Bundle) -> Report:
    if objects is not None and OBJECT_GRAPH in bundle and variables is None:
      if what != "all" or mapping is not None:
        raise ValueError(
          "what and mapping are for variables by name; objects are found by "
          "their paths: to restore some objects, give those alone."
        )
      return _restoring_objects.restore(session, bundle, objects, missing)
    targets = Targets(_variables(session, objects, variables))
    planned = plan(session, bundle, targets, what, mapping, missing)
    if session is not None:
      return carry_out(session, bundle, targets, *planned)
    initial = _restoring_objects.initial_values(objects)
    return carry_out(None, bundle, targets, *planned, initial)

  return _consistency.read_consistently(found.path, attempt)


def _variables(
  session: tf.compat.v1.Session | None,
  objects: Any,
  variables: Mapping[str, tf.Variable] | Iterable[tf.Variable] | None,
) -> Mapping[str, tf.Variable] | Iterable[tf.Variable]:
  """The variables to restore by name."""
  if variables is not None:
    return variables
  if session is not None:
    return session.graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
  if objects is None:
    raise ValueError(
      "restore(None, …) needs the objects or the variables to restore."
    )
  return _restoring_objects.variables(objects)


def plan(
  session: tf.compat.v1.Session | None,
  bundle: Bundle,
  targets: Targets,
  what: str = "all",
  mapping: Mapping[str, str | None] | None = None,
  missing: str = "error",
) -> tuple[Match, Sources]:
  """Which tensor each variable is to get, and all that there are."""
  variables = by_object.list_by_name(bundle)
  here = inventory.Inventory(
    targets.tensors,
    lambda: session and targets.evidence(session),
    session is not None and _trains_once(session.graph),
  )
  there = inventory.Inventory(
    {name: source.spec for name, source in variables.items()},
    lambda: evidence.find_evidence(bundle),
  )
  found = matching.match_variables(
    here,
    there,
    variables,
    bundle.prefix,
    excused=_excused(targets, what),
    mapping=mapping,
    missing=missing,
  )
  return found, variables


def _trains_once(graph: tf.Graph) -> bool:
  """Returns whether optimizers made a single op that applies gradients."""
  return len(graph.get_collection(tf.compat.v1.GraphKeys.TRAIN_OP)) == 1


def carry_out(
  session: tf.compat.v1.Session | None,
  bundle: Bundle,
  targets: Targets,
  found: Match,
  variables: Sources,
  initial: Mapping[int, Any] | None = None,
) -> Report:
  """Restores variables by name, as `plan` has it.

  Args:
    session: The session; None when eager.
    bundle: The checkpoint.
    targets: The variables.
    found: Which tensor each variable is to get.
    variables: All tensors.
    initial: The `id` of a variable -> its initial value, when eager.
  """
  reader = _tensorflow_reader.TensorReader(bundle.prefix)
  # Read before any is assigned: what is damaged shows here.
  values = {
    name: _value(reader, source) for name, source in found.sources.items()
  }
  if not bundle.is_current():
    raise CheckpointError(f"{bundle.prefix}: it was overwritten meanwhile")
  assigned = [
    (variable, part_of(variable, values[name]))
    for name in values
    for variable in targets.parts[name]
  ]
  initialized = dict(found.initialized)
  kept = dict.fromkeys(_others(session, targets), _NOT_ASKED)
  if session is None:
    for name, why in found.initialized.items():
      for variable in targets.parts[name]:
        value = (initial or {}).get(id(variable))
        if value is not None:
          assigned.append((variable, value))
        else:
          kept[name] = f"{why}, and eagerly its initial value is not known"
          initialized.pop(name, None)
    for variable, value in assigned:
      variable.assign(value)
  else:
    fresh = [v for name in initialized for v in targets.parts[name]]
    _Assigner(session)(fresh, assigned)
  origins = {n: get_origin(s) for n, s in found.sources.items()}
  used = set(origins.values())
  return Report(
    bundle.prefix,
    restored={n: key for n, key in origins.items() if n not in found.proofs},
    bridged={n: origins[n] for n in found.proofs},
    initialized=initialized,
    kept=kept,
    unused=tuple(
      sorted(
        get_origin(source)
        for source in variables.values()
        if get_origin(source) not in used
      )
    ),
    proofs=found.proofs,
  )


def _others(
  session: tf.compat.v1.Session | None, targets: Targets
) -> Iterator[str]:
  """Yields the graph's variables that are not to be restored."""
  if session is None:
    return
  known = {v.name for parts in targets.parts.values() for v in parts}
  for variable in session.graph.get_collection(
    tf.compat.v1.GraphKeys.GLOBAL_VARIABLES
  ):
    if variable.name not in known:
      yield variable.name.split(":")[0]


def _excused(targets: Targets, what: str) -> dict[str, str]:
  """The variables that are not asked for, and so are initialized."""
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
    for state in names.find_scales(targets.tensors).known:
      excused.update(dict.fromkeys(state.names, why))
    for name in targets.tensors:
      if names.split_scope(name)[1] == "global_step":
        excused[name] = why
  return excused


def _value(
  reader: _tensorflow_reader.TensorReader, source: Source
) -> np.ndarray:
  if isinstance(source, Literal):
    return np.array(source.value, source.dtype)
  return reader.read(source.name, source.spec.dtype)


class _Assigner:
  """Assigns variables in a session, by the ops that initialize them.

  Their initial values are fed instead, so that no op is needed that the graph,
  which may be finalized, does not have.
  """

  def __init__(self, session: tf.compat.v1.Session) -> None:
    self._session = session

  def __call__(
    self, initialized: list[Any], values: list[tuple[Any, np.ndarray]]
  ) -> None:
    pending = [
      (each.initializer, _input_of(each), value)
      for variable, value in values
      for each in _components(variable)
    ]
    self._session.run([variable.initializer for variable in initialized])
    while pending:
      # Two variables may have one tensor as their initial value.
      feeds: dict[Any, np.ndarray] = {}
      ops, later = [], []
      for op, tensor, value in pending:
        if tensor.ref() in feeds:
          later.append((op, tensor, value))
        else:
          feeds[tensor.ref()] = value
          ops.append(op)
      self._session.run(ops, {r.deref(): value for r, value in feeds.items()})
      pending = later


def _components(variable: Any) -> list[Any]:
  """The variable, or those that it is on several replicas."""
  if len(variable.initializer.inputs) > 1:
    return [variable]
  return list(tf.distribute.get_strategy().experimental_local_results(variable))


def _input_of(variable: Any) -> tf.Tensor:
  """The tensor that a variable is initialized with."""
  inputs = variable.initializer.inputs
  if len(inputs) < 2:
    raise CheckpointError(
      f"{variable.name}: its initializer takes no value; restore it with "
      "tf.compat.v1.train.Saver"
    )
  return inputs[1]
