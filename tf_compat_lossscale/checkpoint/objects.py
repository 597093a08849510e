# SPDX-License-Identifier: Apache-2.0
"""Restores object-based checkpoints, also of objects laid out otherwise.

`tf.train.Checkpoint` restores by paths: the value at `opt/base_optimizer/m`
goes to the object at that path. The program's objects and the checkpoint's
object graph are walked side by side, by the names of children. Optimizers are
compared by what is in them, not by their paths, so that it does not matter
which side has a wrapper:

    layout                       children of the node at the optimizer's path
    without a loss scale         the optimizer's own
    NVIDIA's TensorFlow 1        the optimizer's own, loss_scale
    compat.v1, tf.contrib        base_optimizer: its own; loss_scale
    Keras up to TensorFlow 2.2   base_optimizer: its own; loss_scale
    Keras 2, 2.3 and later       its own; loss_scale; base_optimizer: nothing
    Keras 3                      inner_optimizer: its own; dynamic_scale and
                                 step_counter; a counter of its own

The variables of a loss scale are compared by what they mean: `_SCALE`.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import dataclasses
from typing import Any
from typing import NamedTuple

from absl import logging
import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core import session_values
from tf_compat_lossscale._core.tf import optimizers
from tf_compat_lossscale._core.tf import tracking
from tf_compat_lossscale.checkpoint import matching
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint import reading
from tf_compat_lossscale.checkpoint.matching import Source
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import CheckpointError
from tf_compat_lossscale.checkpoint.reading import TensorSpec
from tf_compat_lossscale.checkpoint.report import Report

_CHECKPOINTS = tf.train.Checkpoint, tf.compat.v1.train.Checkpoint
_VALUE = "VARIABLE_VALUE"
_ATTRIBUTES = "/.ATTRIBUTES/"
# How wrappers call the optimizer inside: compat.v1 and Keras 2, Keras 3.
_BASES = (names.BASE_OPTIMIZER, "inner_optimizer")
_DEEPEST = 200  # The length of the path to an optimizer in wrappers.
# What APIs call the variables of a loss scale -> what they mean. GrowthBackoff
# has further counts, which have one name everywhere.
_SCALE = {
  "current_loss_scale": "value",  # compat.v1 and Keras 2.
  "loss_scale": "value",  # tf.contrib.
  "dynamic_scale": "value",  # Keras 3.
  "good_steps": "good",
  "step_counter": "good",
  "bad_steps": "bad",
  "spent_hysteresis": "bad",  # GrowthBackoff.
}
# Keras's counter of steps -> the kind of optimizer.
_COUNTERS = {
  "iter": "one of tf.keras.optimizers.legacy",
  "_iterations": "one of Keras 2.11 or later",
}
_V1 = "TensorFlow 1's"
# The counts that a loss scale of one class has and another's has not.
_COUNTS = {"bad", "overflows", "steps_to_overflow", "skipped_steps"}
# Keras lists all variables of an optimizer again, in an order of its own.
_AGAIN = "_variables"
# What Keras 3's wrapper has of its own, beside the same of the optimizer
# inside. It does not use its own learning rate.
_ITERATIONS, _RATE = "wrapper's iterations", "wrapper's learning rate"
_WRAPPERS = {"_iterations": _ITERATIONS, "_learning_rate": _RATE}

_UNKNOWN = "it is not in the checkpoint, and its initial value is not known"
_STRANGE = "the variable that it belongs to is not among the objects"
_NOT_USED = "Keras 3's loss scale has a learning rate that it does not use"
_OTHER_LAYOUT = "the same optimizer, laid out otherwise"
_SHARED = "the steps of the optimizer inside"
_OTHER_API = "the same loss scale, of another API"


class ObjectGraph:
  """The object graph of a checkpoint; nodes are known by their numbers.

  Attributes:
    nodes: The messages.
    children: For each node, name -> child.
    slots: (optimizer, variable, name) -> slot.
  """

  def __init__(self, checkpoint: Checkpoint) -> None:
    proto = checkpoint.object_graph
    assert proto is not None
    self._specs = checkpoint.specs
    self.nodes = proto.nodes
    self.children = [reading.get_children(node) for node in self.nodes]
    self.slots = {
      (number, slot.original_variable_node_id, slot.slot_name): (
        slot.slot_variable_node_id
      )
      for number, node in enumerate(self.nodes)
      for slot in node.slot_variables
    }

  def find_value(self, number: int) -> Any:
    """Returns the attribute with a variable's value; None without value."""
    for attribute in self.nodes[number].attributes:
      if attribute.name == _VALUE and attribute.checkpoint_key in self._specs:
        return attribute
    return None

  def get_key(self, number: int | None) -> str | None:
    """Returns the key of a variable's value; None if there is no value."""
    value = None if number is None else self.find_value(number)
    return None if value is None else str(value.checkpoint_key)


class _Place(NamedTuple):
  """An object or a node in an optimizer.

  Attributes:
    item: The object, or the number of the node.
    way: Its path from the optimizer.
    holder: The object or node that has it as a child.
  """

  item: Any
  way: str
  holder: Any


def _is_renamed(meaning: str, here: _Place, there: _Place) -> bool:
  """Returns whether a variable of a loss scale has another API's name."""
  own = {each.way.rpartition("/")[2] for each in (here, there)}
  return meaning.startswith("scale ") and len(own) > 1


class _Layout(NamedTuple):
  """What is in an optimizer, whatever its layout.

  Attributes:
    places: What a thing means -> the thing.
    bases: The names by which wrappers lead to the optimizer inside.
    inside: That optimizer.
    parts: All wrappers, and the optimizer inside.
  """

  places: dict[str, _Place]
  bases: tuple[str, ...]
  inside: Any
  parts: tuple[Any, ...]


def _lay_out(
  item: Any,
  list_children: Callable[[Any], dict[str, Any]],
  has_state: Callable[[Any], bool],
  is_variable: Callable[[Any], bool],
  way: str = "",
) -> _Layout:
  """Returns what is in an optimizer.

  Args:
    item: The optimizer: an object, or the number of a node.
    list_children: Object or node -> name -> child.
    has_state: Whether an object or node is an optimizer with a state.
    is_variable: Whether an object or node is a variable.
    way: The path from the outermost wrapper.
  """
  children = dict(list_children(item))
  inner = _Layout({}, (), item, ())
  bases = [
    name
    for name in _BASES
    if name in children and has_state(children[name]) and len(way) < _DEEPEST
  ]
  for name in bases[:1]:
    inner = _lay_out(
      children[name], list_children, has_state, is_variable, f"{way}{name}/"
    )
  is_keras_3 = bases[:1] == ["inner_optimizer"]
  found: dict[str, _Place] = {}
  for name, child in children.items():
    place = _Place(child, way + name, item)
    if name in _BASES:
      continue
    if name in names.KERAS_3 and names.KERAS_3_SCALE in children:
      found[f"scale {_SCALE[name]}"] = place
    elif name == names.LOSS_SCALE and not is_variable(child):
      for key, weight in list_children(child).items():
        meaning = f"scale {_SCALE.get(key, key)}"
        found[meaning] = _Place(weight, f"{way}{name}/{key}", child)
    elif not is_keras_3:
      found[name] = place
    elif name in _WRAPPERS:
      found[_WRAPPERS[name]] = place
  return _Layout(
    found | inner.places,
    (*bases[:1], *inner.bases),
    inner.inside,
    (item, *inner.parts),
  )


@dataclasses.dataclass
class FoundVariable:
  """A variable of the program, and the values in the checkpoint for it.

  Attributes:
    variable: The variable.
    path: Its path in the objects.
    holder: The object that tracks the variable.
    name: The name that the holder has for it.
    keys: Key of a value -> how it was found; '' if by the variable's own path.
    nodes: The numbers of the nodes for the variable.
    excuse: Why it may start anew if there is no value.
    is_slot: Whether it is a slot of an optimizer of TensorFlow 1 or Keras 2.
  """

  variable: Any
  path: str
  holder: Any = None
  name: str = ""
  keys: dict[str, str] = dataclasses.field(default_factory=dict)
  nodes: set[int] = dataclasses.field(default_factory=set)
  excuse: str = ""
  is_slot: bool = False


@dataclasses.dataclass
class _Step:
  """An object to visit.

  Attributes:
    item: The object.
    number: The node for it; None if there is none.
    path: The object's path.
    holder: The object that tracks it.
    name: The name that the holder has for it.
    proof: How the node was found, if not by the path.
    excuse: As `FoundVariable.excuse`.
    above: The step before.
    detours: The children that stand in for others, if TensorFlow walks here.
  """

  item: Any
  number: int | None
  path: str = ""
  holder: Any = None
  name: str = ""
  proof: str = ""
  excuse: str = ""
  above: _Step | None = None
  detours: dict[str, Any] = dataclasses.field(default_factory=dict)


class _Owner(NamedTuple):
  """An optimizer that has slots.

  Attributes:
    optimizer: The optimizer.
    path: Its path in the objects.
    numbers: Node of the optimizer -> how it was found.
  """

  optimizer: Any
  path: str
  numbers: dict[int, str]


class _Walk:
  """A walk through a program's objects beside the graph of a checkpoint.

  Attributes:
    variables: The variables by `id`.
    owners: The optimizers that have slots, by `id`.
    root: What TensorFlow restores by paths if the layouts differ, else None.
    rules: Pairs of a variable and a value that say how an optimizer of Keras 2
      counts steps.
    problems: Optimizers of which the checkpoint has other kinds.
  """

  def __init__(self, graph: ObjectGraph, objects: Any) -> None:
    self._graph = graph
    self.variables: dict[int, FoundVariable] = {}
    self.owners: dict[int, _Owner] = {}
    self.rules: list[tuple[Any, int]] = []
    self.problems: list[str] = []
    self.root: Any = None
    item, attached = _find_root(make_trackable(objects))
    first = _Step(item, 0, detours=dict(attached))
    # Keras's second lists of variables come last: they decide about nothing
    # that has been found.
    queue, later = collections.deque([first]), collections.deque[_Step]()
    seen: dict[Any, Any] = {}  # With the objects, so that no `id` returns.
    while queue or later:
      is_again = not queue
      step = (queue or later).popleft()
      if (id(step.item), step.number) in seen or step.path == "save_counter":
        continue
      seen[id(step.item), step.number] = step.item
      if is_variable(step.item):
        self._add(step, is_again)
        continue
      for new in self._list_steps(step):
        (later if is_again or new.name == _AGAIN else queue).append(new)
    self._alive = list(seen.values())
    self.add_slots()

  def _add(self, step: _Step, is_again: bool) -> None:
    """Adds a variable, or another path of one."""
    found = self.variables.setdefault(
      id(step.item),
      FoundVariable(step.item, step.path, step.holder, step.name),
    )
    if step.number is None:
      found.excuse = found.excuse or step.excuse
      return
    key = self._graph.get_key(step.number)
    if is_again and found.keys:
      return
    found.nodes.add(step.number)
    if key is None:
      found.excuse = found.excuse or step.excuse
    else:
      if not found.keys:
        found.path = step.path
      found.keys.setdefault(key, step.proof)

  def _list_steps(self, step: _Step) -> Iterator[_Step]:
    """Yields the objects below an object."""
    item, number = step.item, step.number
    if is_optimizer(item):
      yield from self._list_parts(step)
      return
    there = {} if number is None else self._graph.children[number]
    meanings: dict[str, str] = {}
    if isinstance(item, graph_weights.GraphWeights):
      meanings = {_SCALE.get(name, name): name for name in there}
      if there.keys() - tracking.list_children(item).keys():
        self._make_detour(step, tracking.Detour({}))  # It has other variables.
    for name, child in (tracking.list_children(item) | step.detours).items():
      meaning = _SCALE.get(name, name)
      other = name if name in there else meanings.get(meaning)
      excuse = matching.NO_COUNT * ("value" in meanings and meaning in _COUNTS)
      yield _Step(
        child,
        there.get(other or name),
        f"{step.path}/{name}".lstrip("/"),
        item,
        name,
        step.proof if other == name else _OTHER_API,
        step.excuse or excuse,
        step,
      )

  def _list_parts(self, step: _Step) -> Iterator[_Step]:
    """Yields what is in an optimizer."""
    item, number = step.item, step.number
    here = _lay_out(item, tracking.list_children, is_optimizer, is_variable)
    there = _Layout({}, (), None, ())
    if number is not None:
      there = self._lay_out_node(number)
      self._check_kind(step, there)
      follow = getattr(item, "follow_skips", None)
      if follow is not None:
        self.rules += follow(self._graph.nodes, self._graph.children[number])
      self._lead(step, here, there)
    same = "" if here.bases == there.bases else _OTHER_LAYOUT
    owner = here.inside
    if hasattr(owner, "get_slot") and hasattr(owner, "get_slot_names"):
      path = f"{step.path}/{'/'.join(here.bases)}".strip("/")
      found = self.owners.setdefault(id(owner), _Owner(owner, path, {}))
      for part in there.parts:
        found.numbers.setdefault(part, step.proof or same)
    has_scale = any(
      name.startswith("scale ") and self._graph.get_key(place.item)
      for name, place in there.places.items()
    )
    for meaning, place in here.places.items():
      other, excuse = there.places.get(meaning), ""
      is_shared = other is None and meaning == _ITERATIONS
      if is_shared:
        other = there.places.get("_iterations")
      if other is None and meaning == _RATE:
        excuse = _NOT_USED
      if meaning.startswith("scale ") and number is not None:
        is_count = meaning.removeprefix("scale ") in _COUNTS
        excuse = (
          (matching.NO_COUNT if is_count else "")
          if has_scale
          else matching.NO_SCALE
        )
      proof = same if other and place.way != other.way else ""
      if other and _is_renamed(meaning, place, other):
        proof = _OTHER_API
      proof = _SHARED if is_shared else proof
      yield _Step(
        place.item,
        other.item if other else None,
        f"{step.path}/{place.way}".lstrip("/"),
        place.holder,
        place.way.rpartition("/")[2],
        step.proof or proof,
        step.excuse or excuse,
        step,
      )

  def _lay_out_node(self, number: int) -> _Layout:
    """Returns what is in the optimizer of a node."""
    graph = self._graph
    return _lay_out(
      number,
      lambda node: graph.children[node],
      lambda node: bool(
        graph.children[node] or graph.nodes[node].slot_variables
      ),
      lambda node: graph.get_key(node) is not None,
    )

  def _lead(self, step: _Step, here: _Layout, there: _Layout) -> None:
    """Leads TensorFlow through an optimizer that is laid out otherwise."""
    if here.bases != there.bases:
      found = here.inside
      for name in reversed(there.bases):
        found = tracking.Detour({name: found})
      self._make_detour(step, found)
    elif any(
      _is_renamed(meaning, place, there.places[meaning])
      for meaning, place in here.places.items()
      if meaning in there.places
    ):  # TensorFlow must not restore the variables of another API.
      others = {names.LOSS_SCALE: tracking.Detour({})}
      self._make_detour(step, tracking.Detour(others, step.item))

  def _make_detour(self, step: _Step, found: Any) -> None:
    """Makes a step lead to another object if TensorFlow walks the objects.

    So TensorFlow restores what the optimizers of other layouts create later.
    """
    while step.above is not None:
      above = step.above
      above.detours[step.name] = found
      found, step = tracking.Detour(above.detours, above.item), above
    self.root = found

  def _check_kind(self, step: _Step, there: _Layout) -> None:
    """Checks that slots of one name have one meaning on both sides."""
    has_slots = any(self._graph.nodes[n].slot_variables for n in there.parts)
    kinds = [
      kind for name, kind in _COUNTERS.items() if name in there.places
    ] or [_V1] * has_slots
    kind = _find_kind(step.item)
    if kind and kinds and kind not in kinds:
      self.problems.append(
        f"{step.path} is {kind} here, but {kinds[0]} in it: restore by name, "
        "which converts slots between Keras and TensorFlow 1, or make an "
        "optimizer of that kind"
      )

  def add_slots(self) -> list[FoundVariable]:
    """Adds the slots that optimizers have now; returns the new ones."""
    new = []
    weights = [found for found in self.variables.values() if not found.is_slot]
    for owner in self.owners.values():
      for name in owner.optimizer.get_slot_names():
        for weight in weights:
          slot = get_slot(owner.optimizer, weight.variable, name)
          if slot is None or id(slot) in self.variables:
            continue
          found = self.variables[id(slot)] = FoundVariable(
            slot,
            f"{weight.path}/.OPTIMIZER_SLOT/{owner.path}/{name}",
            owner.optimizer,
            name,
            is_slot=True,
          )
          new.append(found)
          for number, proof in owner.numbers.items():
            for variable in weight.nodes:
              to = self._graph.slots.get((number, variable, name))
              key = self._graph.get_key(to)
              if key is not None:
                proofs = filter(None, [proof, *weight.keys.values()])
                found.keys.setdefault(key, next(proofs, ""))
    return new


class _Restorer:
  """A restore of one checkpoint into objects."""

  def __init__(
    self,
    session: Any,
    checkpoint: Checkpoint,
    objects: Any,
    initializes: bool,
    cast: bool,
  ) -> None:
    self._session, self._checkpoint = session, checkpoint
    self._objects, self._initializes, self._cast = objects, initializes, cast
    self._graph = ObjectGraph(checkpoint)
    self._walk = _Walk(self._graph, objects)
    self._report = Report(checkpoint.prefix)
    self._fresh: list[tuple[Any, Any]] = []  # Variable, its initial value.
    self._chosen: list[tuple[Any, str]] = []  # Variable, key of its value.
    self._problems = self._walk.problems
    self._casts = False  # TensorFlow restores no value of another dtype.
    self._states: dict[int, Any] | None = None

  def run(self) -> Report:
    """Restores the checkpoint; returns the report."""
    used: dict[str, str] = {}
    for found in self._walk.variables.values():
      self._plan(found, used)
    if self._problems:
      raise CheckpointError(
        f"{self._checkpoint.prefix}: it does not fit, and nothing was "
        "restored: " + "; ".join(matching.shorten(self._problems))
      )
    if not self._chosen:
      raise CheckpointError(
        f"{self._checkpoint.prefix}: none of its values is for an object that "
        "was given, so nothing was restored: give the objects by the names "
        "that tf.train.Checkpoint had for them, "
        + ", ".join(list(self._graph.children[0])[: matching.MOST])
      )
    values = [
      (variable, convert(self._checkpoint.read(key), variable, key))
      for variable, key in self._chosen
    ]
    assign = plan_assignments(
      self._session, [*values, *self._walk.rules], self._fresh
    )
    self._checkpoint.check_current()
    if self._session is None and not self._casts and self._list_unused():
      self._restore_later()
    assign()
    for found in self._walk.add_slots():
      self._note(found)  # TensorFlow has made them meanwhile.
    for path in self._find_strangers():
      self._report.kept[path] = _STRANGE
    return dataclasses.replace(self._report, unused=self._list_unused())

  def _plan(self, found: FoundVariable, used: dict[str, str]) -> None:
    """Decides which value a variable gets, or notes a problem."""
    path = found.path
    if not found.keys:
      self._plan_missing(found)
      return
    if len(found.keys) > 1:
      self._problems.append(
        f"{path} is one variable here, but several in it "
        f"({', '.join(found.keys)}): restore objects that have it by one of "
        "these paths alone"
      )
      return
    (key,) = found.keys
    is_shared = found.keys[key] == _SHARED
    other = path if is_shared else used.setdefault(key, path)
    if other != path:
      self._problems.append(
        f"{other} and {path} are two variables here, but one in it ({key}): "
        "restore the objects of one at a time"
      )
      return
    problem = find_misfit(
      found.variable, self._checkpoint.specs[key], self._cast
    )
    if problem:
      self._problems.append(f"{path} {problem} in it")
    dtype = tf.as_dtype(found.variable.dtype)
    self._casts |= dtype.is_floating and (
      dtype.base_dtype.name != self._checkpoint.specs[key].dtype
    )
    self._chosen.append((found.variable, key))
    self._note(found)

  def _note(self, found: FoundVariable) -> None:
    """Adds the source of a variable's value to the report."""
    for key, proof in found.keys.items():
      if proof:
        self._report.bridged[found.path] = key
        self._report.proofs[found.path] = proof
      else:
        self._report.restored[found.path] = key
    if not found.keys:
      self._report.kept[found.path] = _UNKNOWN

  def _plan_missing(self, found: FoundVariable) -> None:
    """Decides about a variable that the checkpoint does not have."""
    path = found.path
    if found.excuse == _NOT_USED:
      self._report.kept[path] = _NOT_USED
      return
    if found.excuse or self._initializes:
      value = self._find_initial(found)
      if value is not None or self._session is not None:
        self._report.initialized[path] = found.excuse or matching.NOT_THERE
        self._fresh.append((found.variable, value))
        return
      if self._initializes:
        self._report.kept[path] = _UNKNOWN
        return
    what, hint = path, ""
    if found.is_slot:
      weight, _, rest = path.partition("/.OPTIMIZER_SLOT/")
      owner = rest.rpartition("/")[0]
      what = f"slot {found.name!r} of {owner} for {weight}"
    elif len(self._problems) < matching.MOST:
      keys = self._checkpoint.specs
      hint = matching.suggest(path, [key.split(_ATTRIBUTES)[0] for key in keys])
    self._problems.append(
      f"{what} ({found.variable.name}){hint} is not in it; "
      "missing='initialize' initializes the variable"
    )

  def _find_initial(self, found: FoundVariable) -> Any:
    """Returns a variable's initial value; None if it is not known eagerly."""
    value = find_initial_scale(found.holder, found.name)
    if value is not None or self._session is not None:
      return value
    if self._states is None:
      self._states = dict(self._compute_states()) if self._initializes else {}
    return self._states.get(id(found.variable))

  def _compute_states(self) -> Iterator[tuple[int, Any]]:
    """Yields `id` of a variable of TensorFlow 1's optimizers, initial value."""
    for owner in self._walk.owners.values():
      optimizer = owner.optimizer
      if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        continue
      weights = [
        found.variable
        for found in self._walk.variables.values()
        if any(
          get_slot(optimizer, found.variable, name) is not None
          for name in optimizer.get_slot_names()
        )
      ]
      if weights:
        for variable, value in optimizers.compute_initial_state(
          optimizer, weights
        ):
          yield id(variable), value

  def _restore_later(self) -> None:
    """Lets TensorFlow restore what the program creates later."""
    whole = self._walk.root or make_trackable(self._objects)
    if not isinstance(whole, _CHECKPOINTS):
      whole = tf.train.Checkpoint(whole)
    try:
      whole.restore(self._checkpoint.prefix).expect_partial()
    except (ValueError, tf.errors.OpError) as error:
      note = f"what is created later is not restored: {error}".split("\n")[0]
      logging.warning("%s: %s", self._checkpoint.prefix, note)
      self._report = dataclasses.replace(self._report, notes=(note,))
    self._checkpoint.check_current()

  def _find_strangers(self) -> Iterator[str]:
    """Yields the slots of weights that are not among the objects."""
    for owner in self._walk.owners.values():
      if isinstance(owner.optimizer, tf.compat.v1.train.Optimizer):
        for variable in optimizers.list_variables(owner.optimizer):
          if id(variable) not in self._walk.variables:
            yield f"{owner.path}/{variable.name.split(':')[0]}"

  def _list_unused(self) -> tuple[str, ...]:
    """Returns the keys of values that no variable got."""
    used = {*self._report.restored.values(), *self._report.bridged.values()}
    return tuple(
      sorted(
        attribute.checkpoint_key
        for node in self._graph.nodes
        for attribute in node.attributes
        if attribute.checkpoint_key not in used
        and attribute.checkpoint_key in self._checkpoint.specs
        and not attribute.checkpoint_key.startswith("save_counter/")
      )
    )


def restore_objects(
  session: Any,
  checkpoint: Checkpoint,
  objects: Any,
  missing: str = "error",
  cast: bool = False,
) -> Report:
  """Restores a checkpoint by object.

  Eagerly, variables that are created later get their values then, as far as
  TensorFlow can restore them.

  Args:
    session: The session; None when eager.
    checkpoint: The checkpoint.
    objects: A trackable, a list or a tuple, or a dict of these by name.
    missing: 'error', or 'initialize' to initialize variables that the
      checkpoint does not have. A loss scale is initialized in any case if the
      checkpoint has no loss scale for its optimizer.
    cast: Whether floating-point values of another dtype are converted.

  Returns:
    The source of each value, of all variables that the objects have now.

  Raises:
    CheckpointError: The checkpoint does not fit, or is damaged. No variable is
      assigned then.
    ValueError: A session is needed, or the objects have no variables.
  """
  if session is None and not tf.executing_eagerly():
    raise ValueError(
      "session is None, but variables of a graph are restored in a session: "
      "pass the tf.compat.v1.Session that is to have them."
    )
  with session.graph.as_default() if session else contextlib.nullcontext():
    list_variables(objects)  # Or an error says that there are none.
    initializes = missing == "initialize"
    return _Restorer(session, checkpoint, objects, initializes, cast).run()


def plan_assignments(
  session: Any,
  values: Iterable[tuple[Any, Any]],
  initial: Iterable[tuple[Any, Any]],
) -> Callable[[], None]:
  """Returns a function that assigns values to variables, without a new op.

  Args:
    session: The session; None when eager.
    values: Variables and their values.
    initial: Variables to initialize, and eagerly their initial values.

  Raises:
    CheckpointError: A variable takes no value.
  """
  values, initial = list(values), list(initial)
  if session is None:

    def assign() -> None:
      for variable, value in [*values, *initial]:
        variable.assign(value)

    return assign
  try:
    assignments = session_values.plan(
      (variable, np.asarray(value)) for variable, value in values
    )
  except ValueError as error:
    raise CheckpointError(
      f"{error}; restore the variable with tf.compat.v1.train.Saver"
    ) from None

  def run() -> None:
    session_values.run(session, assignments)
    # An initial value may be made of a variable that was restored.
    session.run([variable.initializer for variable, _ in initial])

  return run


def find_misfit(variable: Any, there: Any, cast: bool) -> str:
  """Returns how a variable differs from a tensor; '' if the tensor fits.

  Args:
    variable: The variable.
    there: The dtype and shape of the tensor.
    cast: Whether floating-point values of another dtype are converted.
  """
  shape = tf.TensorShape(variable.shape)
  dtype = tf.as_dtype(variable.dtype).base_dtype
  other = tf.as_dtype(there.dtype)
  counts = {tf.int32, tf.int64}
  fits = dtype == other or ({dtype, other} <= counts and not there.shape)
  if not shape.is_compatible_with(there.shape):
    fits = False
  elif not fits and dtype.is_floating and other.is_floating:
    fits = cast
    if not cast:
      return f"is {dtype.name} but {other.name} (cast=True converts the values)"
  if fits:
    return ""
  dims = shape.as_list() if shape.rank is not None else "any shape"
  return f"is {dtype.name} {dims} but {there.dtype} {list(there.shape)}"


def convert(value: np.ndarray, variable: Any, key: str) -> np.ndarray:
  """Returns a value in a variable's dtype.

  Raises:
    CheckpointError: The dtype does not hold the value.
  """
  dtype = tf.as_dtype(variable.dtype).base_dtype.as_numpy_dtype
  if value.dtype == dtype or value.dtype.kind in "OSU":
    return value
  spec = TensorSpec(tf.as_dtype(dtype).name, value.shape)
  return Source(key, spec).change(value, str(variable.name))


def list_variables(objects: Any) -> list[Any]:
  """Returns all variables that objects have now.

  Raises:
    ValueError: The objects have none.
  """
  found: dict[int, Any] = {}
  for _, item in walk_paths(objects):
    if is_variable(item):
      found[id(item)] = item
    elif isinstance(item, tf.compat.v1.train.Optimizer):
      for variable in optimizers.list_variables(item):
        found[id(variable)] = variable
  if not found:
    raise ValueError(
      f"the objects have no variables: build models and optimizers first; got "
      f"{objects!r}"
    )
  return list(found.values())


def find_initial_values(objects: Any) -> dict[int, Any]:
  """Returns the initial values of loss scales: `id` of a variable -> value."""
  return {
    id(child): value
    for _, item in walk_paths(objects)
    for name, child in tracking.list_children(item).items()
    if (value := find_initial_scale(item, name)) is not None
  }


def find_initial_scale(holder: Any, name: str) -> Any:
  """Returns the initial value of a loss scale's variable; None if unknown.

  Args:
    holder: The object that tracks the variable.
    name: The name that the object has for the variable.
  """
  if isinstance(holder, graph_weights.GraphWeights):
    if name in graph_weights.list_weights(holder):
      return graph_weights.compute_initial_value(holder, name)
  elif hasattr(holder, "initial_loss_scale"):  # Keras 2's.
    initial = {"current_loss_scale": holder.initial_loss_scale}
    return (initial | {"good_steps": 0}).get(name)
  elif hasattr(holder, names.KERAS_3_SCALE):
    initial = {names.KERAS_3_SCALE: holder.initial_scale, "step_counter": 0}
    return initial.get(name)
  return None


def walk_paths(objects: Any) -> Iterator[tuple[str, Any]]:
  """Yields objects and all objects below them, each once, with their paths.

  Raises:
    ValueError: The objects have no variables.
  """
  root, attached = _find_root(make_trackable(objects))
  queue = collections.deque([("", root, attached)])
  seen: dict[int, Any] = {}  # With the objects, so that no `id` is used again.
  while queue:
    path, item, more = queue.popleft()
    if id(item) in seen or path == "save_counter":
      continue
    seen[id(item)] = item
    yield path, item
    if not is_variable(item):
      children = tracking.list_children(item) | more
      queue.extend(
        (f"{path}/{name}".lstrip("/"), children[name], {})
        for name in sorted(children, key=lambda name: name == _AGAIN)
      )


def make_trackable(objects: Any) -> Any:
  """Returns objects as one: a `tf.train.Checkpoint` if they are a dict.

  Lists, tuples and dicts in them are tracked as TensorFlow tracks them.

  Raises:
    ValueError: An object can have no variables.
  """
  problem = ""
  try:
    if isinstance(objects, dict):
      return tf.train.Checkpoint(**objects)
  except (TypeError, ValueError) as error:
    problem = f": {error}"
  if isinstance(objects, (list, tuple)):
    holder = tf.Module()
    holder.objects = objects
    objects = holder.objects
  if isinstance(objects, tracking.Trackable):
    return objects
  raise ValueError(
    "objects must be what tf.train.Checkpoint takes: a variable, module, model "
    "or optimizer, a list or tuple of these, or a dict of these by name, but "
    f"got {objects!r}{problem}"
  )


def _find_root(item: Any) -> tuple[Any, dict[str, Any]]:
  """Returns the root of a checkpoint's objects, and its further children."""
  if not isinstance(item, _CHECKPOINTS):
    return item, {}
  children = tracking.list_children(item)
  root = children.pop("_root", None)
  if root is None:
    return item, {}
  children.pop("root", None)
  return root, children


def is_optimizer(item: Any) -> bool:
  """Returns whether an object is an optimizer, or wraps one."""
  return callable(getattr(item, "apply_gradients", None))


def _find_kind(item: Any) -> str:
  """Returns what kind of optimizer an object is; '' if unknown."""
  if isinstance(item, tf.compat.v1.train.Optimizer):
    return _V1
  if not is_keras_optimizer(item):
    return ""
  return _COUNTERS["iter" if hasattr(item, "get_slot_names") else "_iterations"]


def is_keras_optimizer(item: Any) -> bool:
  """Returns whether an object is an optimizer of Keras."""
  return hasattr(type(item), "iterations") and is_optimizer(item)


def is_variable(item: Any) -> bool:
  """Returns whether an object is a variable of TensorFlow or of Keras 3."""
  keras_3 = ("assign", "shape", "dtype", "path", "_serialize_to_tensors")
  return isinstance(item, tf.Variable) or all(
    hasattr(item, name) for name in keras_3
  )


def get_slot(optimizer: Any, variable: Any, name: str) -> Any:
  """Returns an optimizer's slot for a variable; None if there is none."""
  try:
    return optimizer.get_slot(variable, name)
  except (AttributeError, KeyError):  # As TensorFlow's own checkpoints do.
    return None
