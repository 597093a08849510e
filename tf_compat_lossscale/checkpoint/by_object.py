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

The variables of a loss scale are compared by what they mean.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
import contextlib
import dataclasses
from typing import Any
from typing import NamedTuple

from absl import logging
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core.tf import optimizers
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint import objects as _objects
from tf_compat_lossscale.checkpoint import places
from tf_compat_lossscale.checkpoint import slots
from tf_compat_lossscale.checkpoint.matching import MEANINGS
from tf_compat_lossscale.checkpoint.objects import ObjectGraph
from tf_compat_lossscale.checkpoint.places import make_place
from tf_compat_lossscale.checkpoint.places import Place
from tf_compat_lossscale.checkpoint.places import Source
from tf_compat_lossscale.checkpoint.places import Wishes
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import CheckpointError
from tf_compat_lossscale.checkpoint.report import MOST
from tf_compat_lossscale.checkpoint.report import Report
from tf_compat_lossscale.checkpoint.report import shorten
from tf_compat_lossscale.keras import optimizer_states

_ATTRIBUTES, _SLOT = "/.ATTRIBUTES/", "/.OPTIMIZER_SLOT/"
# How wrappers call the optimizer inside: compat.v1 and Keras 2, Keras 3.
_BASES = (names.BASE_OPTIMIZER, "inner_optimizer")
_DEEPEST = 200  # The length of the path to an optimizer in wrappers.
# Keras's counter of steps -> the kind of optimizer.
_COUNTERS = {
  "iter": "one of tf.keras.optimizers.legacy",
  "_iterations": "one of Keras 2.11 or later",
}
_V1 = "TensorFlow 1's"
# The counts that a loss scale of one class has and another's has not.
_COUNTS = {"bad", "overflows", "steps_to_overflow", "skipped_steps"}
# What Keras 3's wrapper has of its own, beside the same of the optimizer
# inside. It does not use its own learning rate.
_ITERATIONS, _RATE = "wrapper's iterations", "wrapper's learning rate"
_WRAPPERS = {"_iterations": _ITERATIONS, "_learning_rate": _RATE}

_STRANGE = "the variable that it belongs to is not among the objects"
_NOT_USED = "Keras 3's loss scale has a learning rate that it does not use"
_OTHER_LAYOUT = "the same optimizer, laid out otherwise"
_SHARED = "the steps of the optimizer inside"


class _Part(NamedTuple):
  """An object or a node in an optimizer.

  Attributes:
    item: The object, or the number of the node.
    way: Its path from the optimizer.
  """

  item: Any
  way: str

  @property
  def name(self) -> str:
    return self.way.rpartition("/")[2]


class _Layout(NamedTuple):
  """What is in an optimizer, whatever its layout.

  Attributes:
    parts: What a thing means -> the thing.
    bases: The names by which wrappers lead to the optimizer inside.
    items: All wrappers, and at last the optimizer inside.
  """

  parts: dict[str, _Part]
  bases: tuple[str, ...]
  items: tuple[Any, ...]


def _lay_out(item: Any, side: Any, like: Any, way: str = "") -> _Layout:
  """Returns what is in an object, of optimizers whatever their layout.

  Args:
    item: An object of the program, or the number of a node.
    side: The module `objects`, or an `ObjectGraph`.
    like: The object of the program at this place.
    way: The path from the outermost wrapper.
  """
  children = dict(side.list_children(item))
  if not _objects.is_optimizer(like):
    is_scale = isinstance(like, graph_weights.GraphWeights)
    return _Layout(
      {
        _get_meaning(name) if is_scale else name: _Part(child, name)
        for name, child in children.items()
      },
      (),
      (item,),
    )
  bases = [
    name
    for name in _BASES
    if name in children
    and side.is_optimizer(children[name])
    and len(way) < _DEEPEST
  ]
  inner = _Layout({}, (), ())
  for name in bases[:1]:
    inner = _lay_out(children[name], side, like, f"{way}{name}/")
  is_keras_3 = bases[:1] == ["inner_optimizer"]
  found: dict[str, _Part] = {}
  for name, child in children.items():
    part = _Part(child, way + name)
    if name in _BASES:
      continue
    if name in names.KERAS_3 and names.KERAS_3_SCALE in children:
      found[_get_meaning(name)] = part
    elif name == names.LOSS_SCALE and not side.is_variable(child):
      for key, weight in side.list_children(child).items():
        found[_get_meaning(key)] = _Part(weight, f"{way}{name}/{key}")
    elif not is_keras_3:
      found[name] = part
    elif name in _WRAPPERS:
      found[_WRAPPERS[name]] = part
  return _Layout(
    found | inner.parts, (*bases[:1], *inner.bases), (item, *inner.items)
  )


def _get_meaning(name: str) -> str:
  """Returns what a variable of a loss scale means, whatever the API."""
  return f"scale {MEANINGS.get(name, name)}"


@dataclasses.dataclass
class _Step:
  """An object to visit.

  Attributes:
    item: The object.
    number: The node for it; None if there is none.
    path: The object's path.
    name: The name that the object above has for it.
    proof: How the node was found, if not by the path.
    excuse: Why what is below may start anew if there is no value.
    named: In Keras's second list of variables, the nodes that attributes name.
  """

  item: Any
  number: int | None
  path: str = ""
  name: str = ""
  proof: str = ""
  excuse: str = ""
  named: frozenset[int] = frozenset()


class _Owner(NamedTuple):
  """An optimizer.

  Attributes:
    optimizer: The optimizer, without wrappers.
    path: Its path in the objects.
    numbers: Node of the optimizer -> how it was found.
  """

  optimizer: Any
  path: str
  numbers: dict[int, str]

  @property
  def has_slots(self) -> bool:
    """Whether the optimizer has slots that can be asked for."""
    return hasattr(self.optimizer, "get_slot") and hasattr(
      self.optimizer, "get_slot_names"
    )

  @property
  def is_v1(self) -> bool:
    return isinstance(self.optimizer, tf.compat.v1.train.Optimizer)


class _Walk:
  """A walk through a program's objects beside the graph of a checkpoint.

  Attributes:
    places: The places by `id` of the variable. They are called by the paths in
      the objects; `why` says why they may start anew.
    nodes: The numbers of the nodes for each variable, by `id`.
    owners: The optimizers by `id`.
    unbuilt: The paths of Keras's layers that have yet to make variables which
      the checkpoint has.
    rules: Pairs of a variable and a value that say how an optimizer of Keras 2
      counts steps.
  """

  def __init__(self, graph: ObjectGraph, objects: Any) -> None:
    self._graph = graph
    self.places: dict[int, Place] = {}
    self.nodes: dict[int, set[int]] = {}
    self.owners: dict[int, _Owner] = {}
    self.unbuilt: list[str] = []
    self.rules: list[tuple[Any, int]] = []
    root, self._attached = _objects.find_root(objects)
    # Keras's second lists of variables come last: they decide about nothing
    # that has been found.
    queue = collections.deque([_Step(root, 0)])
    later: collections.deque[_Step] = collections.deque()
    seen: dict[Any, Any] = {}  # With the objects, so that no `id` returns.
    while queue or later:
      is_again = not queue
      step = (queue or later).popleft()
      if (id(step.item), step.number) in seen or step.path == "save_counter":
        continue
      seen[id(step.item), step.number] = step.item
      if _objects.is_variable(step.item):
        self._add(step, is_again)
        continue
      for new in self._list_steps(step):
        is_late = is_again or new.name == _objects.AGAIN
        (later if is_late else queue).append(new)
    self._alive = list(seen.values())
    self._add_slots()

  def _add(self, step: _Step, is_again: bool) -> None:
    """Adds a variable, or another path of one."""
    is_named = id(step.item) in self.places and step.number in step.named
    if id(step.item) not in self.places:
      self.places[id(step.item)] = make_place(step.path, step.item)
    place, key = self.places[id(step.item)], self._graph.get_key(step.number)
    # Attributes decide, not the number in the second list.
    is_known = is_again and (bool(place.keys) or is_named)
    if step.number is None or (key is None and not is_known):
      place.why = place.why or step.excuse
    if step.number is None or is_known:
      return
    self.nodes.setdefault(id(step.item), set()).add(step.number)
    if key is not None:
      if not place.keys:
        place.name = step.path
      place.keys.setdefault(key, step.proof)

  def _list_steps(self, step: _Step) -> Iterator[_Step]:
    item, number = step.item, step.number
    here, there = _lay_out(item, _objects, item), _Layout({}, (), ())
    if number is not None:
      there = _lay_out(number, self._graph, item)
    if not step.path:  # What tf.train.Checkpoint has beside its root.
      for name, child in self._attached.items():
        here.parts[name] = _Part(child, name)
    same = ""
    is_optimizer = _objects.is_optimizer(item)
    if is_optimizer:
      same = "" if here.bases == there.bases else _OTHER_LAYOUT
      self._add_optimizer(step, here, there, same)
    elif getattr(item, "built", True) is False and any(
      name not in here.parts and self._graph.get_key(part.item)
      for name, part in there.parts.items()
    ):
      self.unbuilt.append(step.path or type(item).__name__)
    has_scale = any(
      name.startswith("scale ") and self._graph.get_key(part.item)
      for name, part in there.parts.items()
    )
    named = {
      node
      for meaning, part in there.parts.items()
      if meaning != _objects.AGAIN
      for node in (part.item, *self._graph.children[part.item].values())
    }
    for meaning, part in here.parts.items():
      other, excuse, proof = there.parts.get(meaning), "", ""
      if meaning == _RATE and other is None:
        excuse = _NOT_USED
      elif meaning.startswith("scale ") and number is not None:
        is_count = meaning.removeprefix("scale ") in _COUNTS
        excuse = places.NO_COUNT * (has_scale and is_count)
        if is_optimizer and not has_scale:
          excuse = places.NO_SCALE
      if other is not None and part.way != other.way:
        is_renamed = _is_renamed(meaning, part, other)
        proof = places.OTHER_API if is_renamed else same
      elif other is None and meaning == _ITERATIONS:
        other, proof = there.parts.get("_iterations"), _SHARED
      yield _Step(
        part.item,
        other.item if other else None,
        f"{step.path}/{part.way}".lstrip("/"),
        part.name,
        step.proof or proof,
        step.excuse or excuse,
        named=frozenset(named) if meaning == _objects.AGAIN else step.named,
      )

  def _add_optimizer(
    self, step: _Step, here: _Layout, there: _Layout, same: str
  ) -> None:
    """Adds an optimizer, and the rule by which it counts steps."""
    inside, number = here.items[-1], step.number
    path = f"{step.path}/{'/'.join(here.bases)}".strip("/")
    owner = self.owners.setdefault(id(inside), _Owner(inside, path, {}))
    for node in there.items:
      owner.numbers.setdefault(node, step.proof or same)
    follow = getattr(step.item, "follow_skips", None)
    if follow is not None and number is not None:
      self.rules += follow(self._graph.nodes, self._graph.children[number])

  def _add_slots(self) -> None:
    weights = [p for p in self.places.values() if _SLOT not in p.name]
    for owner in self.owners.values():
      listed = owner.optimizer.get_slot_names() if owner.has_slots else []
      for name in listed:
        for weight in weights:
          variable = weight.variables[0]
          slot = _objects.get_slot(owner.optimizer, variable, name)
          if slot is None or id(slot) in self.places:
            continue
          place = make_place(f"{weight.name}{_SLOT}{owner.path}/{name}", slot)
          self.places[id(slot)] = place
          for number, proof in owner.numbers.items():
            for node in self.nodes.get(id(variable), ()):
              to = self._graph.slots.get((number, node, name))
              key = self._graph.get_key(to)
              if key is not None:
                proofs = filter(None, [proof, *weight.keys.values()])
                place.keys.setdefault(key, next(proofs, ""))


class _ObjectRestore:
  def __init__(
    self, session: Any, checkpoint: Checkpoint, objects: Any, wishes: Wishes
  ) -> None:
    self._session, self._checkpoint = session, checkpoint
    self._wishes = wishes
    self._initializes = wishes.missing == "initialize"
    self._graph = ObjectGraph(checkpoint)
    self._walk = _Walk(self._graph, objects)
    self._keys = {
      attribute.checkpoint_key
      for node in self._graph.nodes
      for attribute in node.attributes
      if attribute.checkpoint_key in checkpoint.specs
      and not attribute.checkpoint_key.startswith("save_counter/")
    }
    self._problems: list[str] = []
    self._initial = _objects.find_initial_values(objects)
    self._notes: list[str] = []

  def run(self) -> Report:
    if not self._initializes:
      self._problems += [
        f"{path} is not built, and lacks variables that are in it: call it "
        "once, or its method build"
        for path in self._walk.unbuilt
      ]
    for owner in self._walk.owners.values():
      self._check_optimizer(owner)
    used: dict[str, str] = {}
    listed = list(self._walk.places.values())
    for place in listed:
      self._decide(place, used)
    prefix = self._checkpoint.prefix
    if self._problems:
      raise CheckpointError(
        f"{prefix}: it does not fit, and nothing was restored: "
        + "; ".join(shorten(self._problems))
      )
    keys = {place.source.key for place in listed if place.source is not None}
    if not keys:
      raise CheckpointError(
        f"{prefix}: none of its values is for an object that was given, so "
        "nothing was restored: give the objects by the names that "
        "tf.train.Checkpoint had for them, "
        + ", ".join(list(self._graph.children[0])[:MOST])
      )
    places.check_powers(self._checkpoint, listed, None)
    report = places.fill(
      self._session,
      self._checkpoint,
      listed,
      keys=self._keys,
      notes=self._notes,
      rules=self._walk.rules,
    )
    report.kept.update(dict.fromkeys(self._find_strangers(), _STRANGE))
    return report

  def _check_optimizer(self, owner: _Owner) -> None:
    """Checks that an optimizer is of the checkpoint's kind; finds betas."""
    optimizer, nodes = owner.optimizer, owner.numbers
    kind = slots.find_kind_of_optimizer(optimizer)
    children = {name for n in nodes for name in self._graph.children[n]}
    there = {name for n, _, name in self._graph.slots if n in nodes}
    if owner.has_slots:
      here = set(optimizer.get_slot_names())
      kind = kind or slots.find_kind_of_roles(here)
      here = here or {r for roles in slots.ROLES.get(kind, ()) for r in roles}
      other = slots.find_kind_of_roles(there)
    else:
      here, there = set(slots.LISTS.get(kind or "", {}).values()), children
      other = slots.find_kind_of_lists(there)
    classes = [_COUNTERS[n] for n in _COUNTERS if n in children]
    classes = classes or [_V1] * any(n in nodes for n, *_ in self._graph.slots)
    own = _find_class(optimizer)
    is_other = owner.has_slots and bool(here - there and there - here)
    if kind and other:  # Roles do not tell AdaMax from Adam.
      is_other = kind != other and not {kind, other} <= slots.CORRECTED
    if own and classes and own not in classes:
      self._problems.append(
        f"{owner.path} is {own} here, but {classes[0]} in it: restore by name, "
        "which converts slots between Keras and TensorFlow 1, or make an "
        "optimizer of that kind"
      )
    elif is_other and here & there:
      self._problems.append(
        f"{owner.path} is {type(optimizer).__name__} here, but "
        f"{other or 'another optimizer'} in it, whose slots of one name "
        f"({', '.join(sorted(here & there))}) have other meanings: make an "
        "optimizer of that kind, or restore the other objects alone"
      )
    if self._session is not None:
      return
    is_saved = bool(there) if owner.has_slots else bool(other)
    if is_saved and not _is_built(optimizer):
      self._report_unbuilt(owner)
    if owner.is_v1:
      betas = optimizers.find_betas(optimizer)
      for name, child in _objects.list_children(optimizer).items():
        if name in betas and id(child) in self._walk.places:
          self._walk.places[id(child)].beta = betas[name]

  def _report_unbuilt(self, owner: _Owner) -> None:
    """Reports an optimizer that lacks variables which the checkpoint has."""
    message = f"{owner.path} has no slots before its first step"
    if self._initializes:
      self._notes.append(f"{message}, so those of the checkpoint are left out")
      logging.warning("%s: %s", self._checkpoint.prefix, self._notes[-1])
    else:
      self._problems.append(
        f"{message}: call {_objects.BUILD} first; missing='initialize' "
        "restores without them"
      )

  def _decide(self, place: Place, used: dict[str, str]) -> None:
    """Decides which value a variable gets, or notes a problem."""
    path = place.name
    if not place.keys:
      self._decide_missing(place)
      return
    if len(place.keys) > 1:
      self._problems.append(
        f"{path} is one variable here, but several in it "
        f"({', '.join(place.keys)}): restore objects that have it by one of "
        "these paths alone"
      )
      return
    ((key, proof),) = place.keys.items()
    other = path if proof == _SHARED else used.setdefault(key, path)
    if other != path:
      self._problems.append(
        f"{other} and {path} are two variables here, but one in it ({key}): "
        "restore the objects of one at a time"
      )
      return
    source = Source(key, self._checkpoint.specs[key])
    problem = place.take(source, proof, self._wishes.cast)
    self._problems += [problem] if problem else []

  def _decide_missing(self, place: Place) -> None:
    """Decides about a variable that the checkpoint does not have."""
    path, excuse = place.name, place.why
    place.why = excuse or places.NOT_THERE
    place.is_kept = excuse == _NOT_USED
    if place.is_kept:
      return
    if excuse or self._initializes:
      if self._session is None:
        place.initial = self._initial.get(id(place.variables[0]))
      if self._initializes or self._session or place.initial is not None:
        return
    what, hint = path, ""
    if _SLOT in path:
      weight, _, rest = path.partition(_SLOT)
      owner, _, name = rest.rpartition("/")
      what = f"slot {name!r} of {owner} for {weight}"
    elif len(self._problems) < MOST:
      keys = self._checkpoint.specs
      hint = places.suggest(path, [key.split(_ATTRIBUTES)[0] for key in keys])
    self._problems.append(
      f"{what} ({place.variables[0].name}){hint} is not in it; "
      "missing='initialize' initializes the variable"
    )

  def _find_strangers(self) -> Iterator[str]:
    """Yields the slots of weights that are not among the objects."""
    for owner in self._walk.owners.values():
      if owner.is_v1:
        for variable in optimizers.list_variables(owner.optimizer):
          if id(variable) not in self._walk.places:
            yield f"{owner.path}/{places.get_name(variable)}"


def restore_objects(
  session: Any, checkpoint: Checkpoint, objects: Any, wishes: Wishes
) -> Report:
  """Restores a checkpoint by object, as `restoring.restore` says.

  A loss scale is initialized in any case if the checkpoint has none for its
  optimizer. Of the wishes, `missing` and `cast` count.
  """
  if session is None and not tf.executing_eagerly():
    raise ValueError(
      "session is None, but variables of a graph are restored in a session: "
      "pass the tf.compat.v1.Session that is to have them."
    )
  with session.graph.as_default() if session else contextlib.nullcontext():
    _objects.list_variables(objects)  # Or an error says that there are none.
    return _ObjectRestore(session, checkpoint, objects, wishes).run()


def _is_renamed(meaning: str, here: _Part, there: _Part) -> bool:
  return meaning.startswith("scale ") and here.name != there.name


def _find_class(item: Any) -> str:
  """Returns whose optimizer an object is; '' if that is unknown."""
  if isinstance(item, tf.compat.v1.train.Optimizer):
    return _V1
  if not _objects.is_keras_optimizer(item):
    return ""
  return _COUNTERS["iter" if hasattr(item, "get_slot_names") else "_iterations"]


def _is_built(optimizer: Any) -> bool:
  if isinstance(optimizer, tf.compat.v1.train.Optimizer):
    return bool(optimizers.list_variables(optimizer))
  return optimizer_states.is_built(optimizer)
