"""Restores checkpoints of any generation into what there is now."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import os
from typing import Any

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale import _tf
from tf_compat_lossscale.checkpoint import _object_layouts
from tf_compat_lossscale.checkpoint import _restoring_models
from tf_compat_lossscale.checkpoint import _restoring_objects
from tf_compat_lossscale.checkpoint import describing
from tf_compat_lossscale.checkpoint import description as kinds
from tf_compat_lossscale.checkpoint import evidence
from tf_compat_lossscale.checkpoint import layouts
from tf_compat_lossscale.checkpoint import matching
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint import paths
from tf_compat_lossscale.checkpoint import side
from tf_compat_lossscale.checkpoint._errors import CheckpointError
from tf_compat_lossscale.checkpoint.bundle import Bundle
from tf_compat_lossscale.checkpoint.bundle import OBJECT_GRAPH
from tf_compat_lossscale.checkpoint.bundle import Tensor
from tf_compat_lossscale.checkpoint.report import Report
from tf_compat_lossscale.checkpoint.writing import Literal
from tf_compat_lossscale.checkpoint.writing import Source

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
  bundle = Bundle(found.path)
  if objects is not None and OBJECT_GRAPH in bundle and variables is None:
    if what != "all":
      raise ValueError(
        f"what={what!r} is for variables by name; to restore some objects, "
        "give those alone."
      )
    if mapping is not None:
      raise ValueError(
        "mapping is for variables by name; objects are found by their paths."
      )
    return _restoring_objects.restore(session, bundle, objects, missing)
  if variables is None:
    if session is not None:
      variables = session.graph.get_collection(
        tf.compat.v1.GraphKeys.GLOBAL_VARIABLES
      )
    elif objects is not None:
      variables = _restoring_objects.variables(objects)
    else:
      raise ValueError(
        "restore(None, …) needs the objects or the variables to restore."
      )
  targets = Targets(variables)
  planned = plan(session, bundle, targets, what, mapping, missing)
  return carry_out(session, bundle, targets, *planned)


class Targets:
  """Variables by the names that a checkpoint has for them.

  Attributes:
    parts: Name -> the variable, or the parts of a partitioned one.
    tensors: Name -> dtype and shape, of the whole.
  """

  def __init__(
    self, variables: Mapping[str, Any] | Iterable[tf.Variable]
  ) -> None:
    """Takes variables, or a mapping from names, as a Saver does."""
    self.parts: dict[str, list[Any]] = {}
    self.tensors: dict[str, Tensor] = {}
    if isinstance(variables, Mapping):
      for name, value in variables.items():
        for variable in _parts(value):
          self._add(name, variable)
    else:
      for value in variables:
        for variable in _parts(value):
          part = _tf.slice_info(variable)
          self._add(
            part.full_name if part else variable.name.split(":")[0], variable
          )

  def _add(self, name: str, variable: Any) -> None:
    part = _tf.slice_info(variable)
    shape = part.full_shape if part else variable.shape.as_list()
    dtype = variable.dtype.base_dtype.name
    known = self.parts.setdefault(name, [])
    if known and not part:
      raise ValueError(
        f"Two variables are called {name!r}; give a dict from the names in the "
        "checkpoint to them."
      )
    known.append(variable)
    self.tensors[name] = Tensor(dtype, tuple(int(size) for size in shape))


def _parts(value: Any) -> list[Any]:
  if isinstance(value, (list, tuple)):
    return list(value)
  # A PartitionedVariable is none itself.
  return list(value) if hasattr(value, "partitions") else [value]


def plan(
  session: tf.compat.v1.Session | None,
  bundle: Bundle,
  targets: Targets,
  what: str = "all",
  mapping: Mapping[str, str | None] | None = None,
  missing: str = "error",
) -> tuple[matching.Match, layouts.Variables]:
  """Which tensor each variable is to get, and all that there are."""
  variables = _object_layouts.by_name(bundle)
  here = side.Side(
    targets.tensors, lambda: session and _evidence_of(session, targets)
  )
  there = side.Side(
    {name: source.tensor for name, source in variables.items()},
    lambda: evidence.of_checkpoint(bundle),
  )
  found = matching.match(
    here,
    there,
    variables,
    bundle.prefix,
    excused=_excused(targets, what),
    mapping=mapping,
    missing=missing,
  )
  return found, variables


def _evidence_of(
  session: tf.compat.v1.Session, targets: Targets
) -> evidence.Evidence | None:
  """What the session's graph proves of variables."""
  keys: dict[str, list[str]] = {}
  for name, parts in targets.parts.items():
    for part in parts:
      keys.setdefault(part.name.split(":")[0], []).append(name)
  try:
    graph_def = session.graph.as_graph_def().SerializeToString()
  except ValueError:
    return None  # More than protocol buffers can hold.
  trainable = session.graph.get_collection(
    tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES
  )
  return evidence.of_graph(
    graph_def, keys, {variable.name.split(":")[0] for variable in trainable}
  )


def carry_out(
  session: tf.compat.v1.Session | None,
  bundle: Bundle,
  targets: Targets,
  found: matching.Match,
  variables: layouts.Variables,
) -> Report:
  """Restores variables by name, as `plan` has it."""
  reader = tf.train.load_checkpoint(bundle.prefix)
  # Read before any is assigned: what is damaged shows here.
  values = {
    name: _value(reader, bundle, source)
    for name, source in found.sources.items()
  }
  assign = _assign_eagerly if session is None else _Assigner(session)
  assign(
    [v for name in found.initialized for v in targets.parts[name]],
    [
      (variable, _part_of(variable, values[name]))
      for name in values
      for variable in targets.parts[name]
    ],
  )
  origins = {n: matching.origin(s) for n, s in found.sources.items()}
  used = set(origins.values())
  return Report(
    bundle.prefix,
    restored={n: key for n, key in origins.items() if n not in found.proofs},
    bridged={n: origins[n] for n in found.proofs},
    initialized=found.initialized,
    kept=dict.fromkeys(_others(session, targets), _NOT_ASKED),
    unused=tuple(
      sorted(
        matching.origin(source)
        for source in variables.values()
        if matching.origin(source) not in used
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
    for name, primary in names.slots(targets.tensors)
    if all(v.trainable for v in targets.parts[primary])
    and not any(v.trainable for v in targets.parts[name])
  }
  own.update(filter(names.is_power, targets.tensors))
  why = f"what={what!r}"
  excused = dict.fromkeys(own, why)
  if what == "weights":
    for state in names.loss_scales(targets.tensors).known:
      excused.update(dict.fromkeys(state.names, why))
    for name in targets.tensors:
      if names.split_scope(name)[1] == "global_step":
        excused[name] = why
  return excused


def _value(reader: Any, bundle: Bundle, source: Source) -> np.ndarray:
  if isinstance(source, Literal):
    return np.array(source.value, source.dtype)
  try:
    return reader.get_tensor(source.name)
  except (tf.errors.OpError, RuntimeError) as error:
    message = str(error).splitlines()[0]
    raise CheckpointError(
      f"{bundle.prefix}: {source.name}: {message}"
    ) from None


def _part_of(variable: Any, value: np.ndarray) -> np.ndarray:
  """What a part of a partitioned variable has of the whole."""
  part = _tf.slice_info(variable)
  if part is None:
    return value
  slices = zip(part.var_offset, part.var_shape)
  return value[tuple(slice(begin, begin + size) for begin, size in slices)]


def _assign_eagerly(
  initialized: list[Any], values: list[tuple[Any, np.ndarray]]
) -> None:
  del initialized  # They have their initial values.
  for variable, value in values:
    variable.assign(value)


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
