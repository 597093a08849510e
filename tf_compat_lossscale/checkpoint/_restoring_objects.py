# SPDX-License-Identifier: Apache-2.0
"""Restores object-based checkpoints into objects that may differ."""

from __future__ import annotations

import atexit
import collections
from collections.abc import Iterator
import contextlib
import dataclasses
import shutil
import tempfile
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core.tf import optimizers
from tf_compat_lossscale._core.tf import tracking
from tf_compat_lossscale.checkpoint._object_walk import FoundVariable
from tf_compat_lossscale.checkpoint._object_walk import get_slot
from tf_compat_lossscale.checkpoint._object_walk import ObjectWalk
from tf_compat_lossscale.checkpoint.files import writer as writing
from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.bundle import OBJECT_GRAPH
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec
from tf_compat_lossscale.checkpoint.files.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.files.values import Literal
from tf_compat_lossscale.checkpoint.layouts import by_object
from tf_compat_lossscale.checkpoint.layouts import policy_weights
from tf_compat_lossscale.checkpoint.layouts import problems
from tf_compat_lossscale.checkpoint.layouts.names import KERAS_3_SCALE
from tf_compat_lossscale.checkpoint.layouts.object_bridges import GraphBridge
from tf_compat_lossscale.checkpoint.report import Report

_KEPT = (
  "it is not in the checkpoint, and eagerly its initial value is not known"
)
_STRANGE = "the variable that it belongs to is not among the objects"


def restore_objects(
  session: Any, bundle: Bundle, objects: Any, missing: str = "error"
) -> Report:
  """Restores a checkpoint by object.

  Args:
    session: The session; None when eager.
    bundle: The checkpoint.
    objects: A trackable, or a dict of trackables.
    missing: 'error', or 'initialize' to initialize variables that the
      checkpoint does not have. A loss scale is initialized in any case if the
      checkpoint has no loss scale for its optimizer.

  Returns:
    The source of each value, of all variables that the objects have now.

  Raises:
    CheckpointError: The checkpoint does not fit, or is damaged. No variable is
      assigned then.
    ValueError: A session is needed.
  """
  if session is None and not tf.executing_eagerly():
    raise ValueError(
      "session is None, but variables of a graph are restored in a session: "
      "pass the tf.compat.v1.Session that is to have them."
    )
  with session.graph.as_default() if session else contextlib.nullcontext():
    return _Restorer(session, bundle, objects, missing == "initialize").run()


def list_variables(objects: Any) -> list[tf.Variable]:
  """Returns all variables that objects have now."""
  found: dict[int, Any] = {}
  for _, item in walk_paths(objects):
    if isinstance(item, tf.Variable):
      found[id(item)] = item
    elif isinstance(item, tf.compat.v1.train.Optimizer):
      for variable in optimizers.list_variables(item):
        found[id(variable)] = variable
  return list(found.values())


def has_keras_optimizer(objects: Any) -> bool:
  """Returns whether there is an optimizer of Keras among objects."""
  return any(is_keras_optimizer(item) for _, item in walk_paths(objects))


def is_keras_optimizer(item: Any) -> bool:
  """Returns whether an object is an optimizer of Keras."""
  return hasattr(type(item), "iterations") and hasattr(item, "apply_gradients")


def pair_nodes(checkpoint: Any, graph: ObjectGraph) -> dict[int, Any]:
  """Returns the number of each node of a saved checkpoint -> its object.

  Args:
    checkpoint: The `tf.train.Checkpoint` that was saved.
    graph: The object graph that it saved.
  """
  root, attached = _find_root(checkpoint)
  found: dict[int, Any] = {0: root}
  queue = [0]
  for number in queue:
    children = tracking.list_children(found[number])
    if not number:
      children |= attached
    for name, to in graph.nodes[number].children.items():
      if to not in found and name in children:
        found[to] = children[name]
        queue.append(to)
  return found


def find_initial_scale(parent: Any, name: str) -> Any:
  """Returns the initial value of a loss scale's variable; None if unknown.

  Args:
    parent: The object that tracks the variable.
    name: The name that the object has for the variable.
  """
  if isinstance(parent, graph_weights.GraphWeights):
    if name in graph_weights.list_weights(parent):
      return graph_weights.compute_initial_value(parent, name)
  elif hasattr(parent, "initial_loss_scale"):  # Keras 2's.
    initial = {"current_loss_scale": parent.initial_loss_scale}
    return (initial | {"good_steps": 0}).get(name)
  elif hasattr(parent, KERAS_3_SCALE):
    initial = {KERAS_3_SCALE: parent.initial_scale, "step_counter": 0}
    return initial.get(name)
  return None


def find_initial_values(objects: Any) -> dict[int, tf.Tensor]:
  """Returns the initial values of loss scales: `id` of a variable -> value."""
  return {
    id(variable): graph_weights.compute_initial_value(item, name)
    for _, item in walk_paths(objects)
    if isinstance(item, graph_weights.GraphWeights)
    for name, variable in graph_weights.list_weights(item).items()
  }


def walk_paths(objects: Any) -> Iterator[tuple[str, Any]]:
  """Yields objects and all objects below them, each once, with their paths."""
  given = objects if isinstance(objects, dict) else {"": objects}
  queue = collections.deque(given.items())
  seen: dict[int, Any] = {}  # With the objects, so that no `id` is used again.
  while queue:
    path, item = queue.popleft()
    if id(item) not in seen:
      seen[id(item)] = item
      yield path, item
      queue.extend(
        (f"{path}/{name}".lstrip("/"), child)
        for name, child in tracking.list_children(item).items()
      )


class _Restorer:
  """A restore of one checkpoint into objects."""

  def __init__(
    self, session: Any, bundle: Bundle, objects: Any, initializes: bool
  ) -> None:
    self._session, self._bundle = session, bundle
    self._initializes = initializes
    self._root = make_checkpoint(objects)
    bundle.check()
    self._graph = ObjectGraph.read(bundle)
    self._bridge = GraphBridge(bundle, self._graph)
    self._walk = ObjectWalk(self._bridge)
    self._report = Report(bundle.prefix)
    self._new: dict[int, Any] = {}  # `id` of a variable -> its initial value.
    self._problems: list[str] = []
    self._fresh: list[FoundVariable] = []

  def run(self) -> Report:
    """Restores the checkpoint; returns the report."""
    self._walk.walk(*_find_root(self._root))
    self._walk.add_slots()
    used: dict[str, FoundVariable] = {}
    for found in self._walk.variables.values():
      self._plan(found, used)
    if self._problems:
      listed = problems.shorten(self._problems)
      raise problems.make_misfit_error(self._bundle.prefix, listed)
    prefix = (
      self._write_bridged() if self._bridge.is_changed else self._bundle.prefix
    )
    status = self._root.restore(prefix)
    status.expect_partial()  # The report says what is not used.
    if self._session is not None:
      status.initialize_or_restore(self._session)
    self._initialize()
    for found in self._walk.add_slots():
      self._note(found)  # Eagerly, TensorFlow has made them meanwhile.
    for path, _ in self._walk.find_untracked():
      self._report.kept[path] = _STRANGE
    return dataclasses.replace(self._report, unused=self._list_unused())

  def _plan(self, found: FoundVariable, used: dict[str, FoundVariable]) -> None:
    """Decides which value a variable gets, or notes a problem."""
    path, variable = found.path, found.variable
    if not found.keys:
      self._plan_missing(found)
      return
    if len(found.keys) > 1:
      keys = ", ".join(found.keys)
      self._problems.append(
        f"{path} is one variable here, but several in it ({keys}): restore "
        "objects that have it by one of these paths alone"
      )
      return
    (key,) = found.keys
    other = used.setdefault(key, found)
    if other is not found:
      self._problems.append(
        f"{other.path} and {path} are two variables here, but one in it "
        f"({key}): restore the objects of one at a time"
      )
      return
    there = self._bridge.get_tensor(key)
    shape = tf.TensorShape(variable.shape)
    dtype = tf.as_dtype(variable.dtype).base_dtype.name
    if shape.is_fully_defined():
      here = TensorSpec(dtype, tuple(shape.as_list()))
      if there != here:
        self._problems.append(f"{path} is {here} but {there} in it")
    self._note(found)

  def _note(self, found: FoundVariable) -> None:
    """Adds the source of a variable's value to the report."""
    for key, proof in found.keys.items():
      literal = self._bridge.literals.get(key)
      proof = problems.NOT_COUNTED if key in self._bridge.made_up else proof
      key = literal.origin if literal else key
      if proof:
        self._report.bridged[found.path] = key
        self._report.proofs[found.path] = proof
      else:
        self._report.restored[found.path] = key
    if not found.keys:
      self._report.kept[found.path] = _KEPT

  def _plan_missing(self, found: FoundVariable) -> None:
    """Decides about a variable that the checkpoint does not have."""
    is_new_weight = self._is_new_weight(found)
    excused = self._initializes or found.is_new_scale or is_new_weight
    known = self._session is not None or self._find_initial(found)
    if excused and known:
      why = problems.NO_SCALE if found.is_new_scale else problems.NOT_THERE
      why = problems.NO_WEIGHT if is_new_weight else why
      self._report.initialized[found.path] = why
      self._fresh.append(found)
    elif self._initializes:
      self._report.kept[found.path] = _KEPT
    else:
      what, hint = found.what or found.path, ""
      if not found.what and len(self._problems) < problems.MOST:
        paths = self._graph.find_paths().find_short(2 * len(found.path))
        hint = problems.suggest_names(found.path, paths)
      self._problems.append(
        f"{what} ({found.variable.name}){hint} is not in it; "
        "missing='initialize' initializes the variable"
      )

  def _is_new_weight(self, found: FoundVariable) -> bool:
    """Returns whether the checkpoint has the variable's loss scale without it.

    A `GrowthBackoff` has more variables than a `DynamicLossScale`.
    """
    parent, name = found.parent
    if found.is_new_scale or name not in policy_weights.COUNTS:
      return False
    return isinstance(parent, graph_weights.GraphWeights) and any(
      other.keys and other.parent == (parent, "current_loss_scale")
      for other in self._walk.variables.values()
    )

  def _find_initial(self, found: FoundVariable) -> bool:
    """Notes a variable's initial value; returns False if it is unknown."""
    parent, name = found.parent
    if not self._new:
      self._new.update(self._find_initial_of_optimizers())
    if id(found.variable) in self._new:
      return True
    value = find_initial_scale(parent, name)
    if value is not None:
      self._new[id(found.variable)] = value
    return value is not None

  def _find_initial_of_optimizers(self) -> dict[int, Any]:
    """Returns the initial values of optimizers: `id` of a variable -> value."""
    result: dict[int, Any] = {}
    for owner in self._walk.optimizers.values():
      optimizer = owner.optimizer
      if self._initializes and isinstance(
        optimizer, tf.compat.v1.train.Optimizer
      ):
        primaries = [
          found.variable
          for found in self._walk.variables.values()
          if any(
            get_slot(optimizer, found.variable, name) is not None
            for name in optimizer.get_slot_names()
          )
        ]
        if primaries:
          for variable, value in optimizers.compute_initial_state(
            optimizer, primaries
          ):
            result[id(variable)] = value
    return result

  def _initialize(self) -> None:
    """Gives the variables in `_fresh` their initial values."""
    if self._session is not None:
      self._session.run([found.variable.initializer for found in self._fresh])
      return
    for found in self._fresh:
      found.variable.assign(self._new[id(found.variable)])

  def _list_unused(self) -> tuple[str, ...]:
    """Returns the keys of values that no variable got."""
    used = {*self._report.restored.values(), *self._report.bridged.values()}
    return tuple(
      sorted(
        attribute.key
        for number, node in enumerate(self._graph.nodes)
        if number not in self._bridge.met
        for attribute in node.attributes
        if attribute.key not in used and attribute.key in self._bundle.specs
      )
    )

  def _write_bridged(self) -> str:
    """Writes a checkpoint with the changed graph; returns its path."""
    graph = ObjectGraph(self._graph.encode())
    graph.prune()
    sources = by_object.copy_all(self._bundle) | self._bridge.literals
    sources[OBJECT_GRAPH] = Literal("string", graph.encode())
    folder = tempfile.mkdtemp(prefix="tf_compat_lossscale-")
    # TensorFlow restores variables that are created later from this folder.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return writing.write_overlay(folder, self._bundle, sources)


def make_checkpoint(objects: Any) -> Any:
  """Returns a `tf.train.Checkpoint` of objects."""
  if isinstance(objects, dict):
    return tf.train.Checkpoint(**objects)
  own = tf.train.Checkpoint, tf.compat.v1.train.Checkpoint
  return objects if isinstance(objects, own) else tf.train.Checkpoint(objects)


def _find_root(checkpoint: Any) -> tuple[Any, dict[str, Any]]:
  """Returns the root of a checkpoint, and its further children by name."""
  children = tracking.list_children(checkpoint)
  root = children.pop("_root", None)
  if root is None:
    return checkpoint, {}
  children.pop("root", None)
  return root, children
