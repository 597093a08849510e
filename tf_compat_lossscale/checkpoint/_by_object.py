# SPDX-License-Identifier: Apache-2.0
"""Restores object-based checkpoints, also of objects laid out otherwise.

`tf.train.Checkpoint` restores by paths: the value at `opt/base_optimizer/m`
goes to the object at that path. The program's objects and the checkpoint's
object graph are walked side by side, by the names of children. Optimizers are
compared by what is in them, not by their paths, so that it does not matter
which side has a wrapper: `object_graph` has the table of layouts. What Keras 3
has beside its wrapper's inner_optimizer and loss scale, nothing reads.

The variables of a loss scale are compared by what they mean.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import dataclasses
from typing import Any
from typing import NamedTuple

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core import object_graph
from tf_compat_lossscale._core import slot_names
from tf_compat_lossscale._core.object_graph import ObjectGraph
from tf_compat_lossscale._core.tf import optimizers
from tf_compat_lossscale.checkpoint import _objects
from tf_compat_lossscale.checkpoint import _targets
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint._report import Report
from tf_compat_lossscale.checkpoint._targets import make_target
from tf_compat_lossscale.checkpoint._targets import Source
from tf_compat_lossscale.checkpoint._targets import Target
from tf_compat_lossscale.checkpoint._targets import Wishes
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import CheckpointError
from tf_compat_lossscale.checkpoint.reading import MOST
from tf_compat_lossscale.checkpoint.reading import shorten
from tf_compat_lossscale.keras import optimizer_states

_ATTRIBUTES = "/.ATTRIBUTES/"
# How wrappers call the optimizer inside: compat.v1 and Keras 2, Keras 3.
_BASES = (object_graph.BASE_OPTIMIZER, object_graph.INNER_OPTIMIZER)
_SCALE = "scale "  # What the meaning of a loss scale's variable begins with.
_OTHER_LAYOUT = "the same optimizer, laid out otherwise"
_V1 = "TensorFlow 1's"
# Keras's counter of steps -> whose optimizer it is.
_COUNTERS = {
  "iter": "one of tf.keras.optimizers.legacy",
  "_iterations": "one of Keras 2.11 or later",
}


class _Layout(NamedTuple):
  """What is in an object, or in an optimizer whatever its layout.

  Attributes:
    parts: What a thing means -> the object or the number of the node, and its
      path.
    bases: The names by which wrappers lead to the optimizer inside.
    items: All wrappers, and at last the optimizer inside.
  """

  parts: dict[str, tuple[Any, str]]
  bases: list[str]
  items: list[Any]


def _lay_out(
  item: Any,
  list_children: Callable[[Any], Mapping[str, Any]],
  is_inside: Callable[[Any], bool],
  like: Any,
) -> _Layout:
  """Returns what is in an object of the program, or in a node; or in None.

  `is_inside` says whether a child may be the optimizer inside a wrapper, and
  `like` is the object of the program at this target.
  """
  found = _Layout({}, [], [])
  is_optimizer = _objects.is_optimizer(like)
  is_scale = isinstance(like, graph_weights.GraphWeights)
  while item is not None:
    found.items.append(item)
    way = "".join(f"{base}/" for base in found.bases)
    children = list_children(item)
    inside = [
      name
      for name in _BASES
      if is_optimizer
      and name in children
      and children[name] not in found.items
      and is_inside(children[name])
    ]
    base = inside[0] if inside else None
    has_scale = is_optimizer and object_graph.KERAS_3_SCALE in children
    for name, child in children.items():
      weights = {}
      if is_scale or (has_scale and name in object_graph.KERAS_3_MEMBERS):
        weights = {name: child}
      elif is_optimizer and name == object_graph.LOSS_SCALE:
        below = list_children(child)
        weights = {f"{name}/{key}": weight for key, weight in below.items()}
      for path, weight in weights.items():
        key = path.rpartition("/")[2]
        found.parts[_SCALE + names.get_meaning(key)] = weight, way + path
      if weights:
        continue
      is_ignored = name in _BASES or base == object_graph.INNER_OPTIMIZER
      if not (is_optimizer and is_ignored):
        found.parts[name] = child, way + name
    if base is None:
      break
    found.bases.append(base)
    item = children[base]
  return found


class _Step(NamedTuple):
  """An object to visit, and the number of the node for it, if there is one.

  Attributes:
    proof: How the node was found, if not by the path.
    excuse: Why what is below may start anew if there is no value.
    is_again: Whether it is in Keras's second list of variables.
  """

  item: Any
  number: int | None
  path: str = ""
  proof: str = ""
  excuse: str = ""
  is_again: bool = False


class _Owner(NamedTuple):
  """An optimizer without wrappers; `numbers` has node -> how it was found."""

  optimizer: Any
  path: str
  numbers: dict[int, str]

  @property
  def has_slots(self) -> bool:
    return hasattr(self.optimizer, "get_slot_names")

  @property
  def family(self) -> str:
    """Whose optimizer it is; "" if that is unknown."""
    if isinstance(self.optimizer, tf.compat.v1.train.Optimizer):
      return _V1
    is_keras = _objects.is_keras_optimizer(self.optimizer)
    return _COUNTERS["iter" if self.has_slots else "_iterations"] * is_keras


class _Walk:
  """A walk through a program's objects beside the graph of a checkpoint.

  Attributes:
    targets: The targets by `id` of the variable. They are called by the paths
      in the objects; `why` says why they may start anew.
    nodes: The numbers of the nodes for each variable, by `id`.
    owners: The optimizers by `id`.
    unbuilt: The paths of Keras's layers that have yet to make variables which
      the checkpoint has.
    rules: Pairs of a variable and a value that say how an optimizer of Keras 2
      counts steps.
  """

  def __init__(self, graph: ObjectGraph, attached: Mapping[str, Any]) -> None:
    self._graph, self._attached = graph, attached
    self.targets: dict[int, Target] = {}
    self.nodes: dict[int, set[int]] = {}
    self.owners: dict[int, _Owner] = {}
    self.unbuilt: list[str] = []
    self.rules: list[tuple[Any, int]] = []

  def add(self, step: _Step) -> None:
    """Adds a variable, or another path of one."""
    number, target = step.number, self.targets.get(id(step.item))
    if target is None:
      target = self.targets[id(step.item)] = make_target(step.path, step.item)
    elif step.is_again and (target.keys or number in self._graph.named):
      return
    key = self._graph.get_key(number)
    if number is not None:
      self.nodes.setdefault(id(step.item), set()).add(number)
    if key is None:
      target.why = target.why or step.excuse
      return
    if not target.keys:
      target.name = step.path
    target.keys.setdefault(key, step.proof)

  def list_steps(self, step: _Step) -> Iterator[_Step]:
    """Yields what is in an object, each with the node for it."""
    item, number = step.item, step.number
    here = _lay_out(item, _objects.list_children, _objects.is_optimizer, item)
    graph = self._graph
    there = _lay_out(
      number,
      graph.children.__getitem__,
      lambda node: bool(
        graph.children[node] or graph.nodes[node].slot_variables
      ),
      item,
    )
    if not step.path:  # What tf.train.Checkpoint has beside its root.
      here.parts.update((n, (child, n)) for n, child in self._attached.items())
    other_layout = "" if here.bases == there.bases else _OTHER_LAYOUT
    is_optimizer = _objects.is_optimizer(item)
    saved = {
      meaning
      for meaning, (node, _) in there.parts.items()
      if self._graph.get_key(node)
    }
    if is_optimizer:
      path = "/".join([step.path, *here.bases]).strip("/")
      owner = _Owner(here.items[-1], path, {})
      owner = self.owners.setdefault(id(owner.optimizer), owner)
      for node in there.items:
        owner.numbers.setdefault(node, step.proof or other_layout)
      if number is not None and hasattr(item, "follow_skips"):
        children = self._graph.children[number]
        self.rules += item.follow_skips(self._graph.nodes, children)
    elif getattr(item, "built", True) is False and saved - here.parts.keys():
      self.unbuilt.append(step.path or type(item).__name__)
    has_scale = any(meaning.startswith(_SCALE) for meaning in saved)
    for meaning, (child, way) in here.parts.items():
      node, other_way = there.parts.get(meaning, (None, way))
      proof = other_layout if way != other_way else ""
      excuse = ""
      if meaning.startswith(_SCALE) and number is not None:
        proof = _targets.OTHER_API if way != other_way else ""
        excuse = _targets.NO_SCALE if is_optimizer else ""
        excuse = _targets.NO_COUNT if has_scale else excuse
      yield _Step(
        child,
        node,
        f"{step.path}/{way}".lstrip("/"),
        step.proof or proof,
        step.excuse or excuse,
        step.is_again or meaning == object_graph.AGAIN,
      )

  def add_slots(self) -> None:
    weights = list(self.targets.values())
    for owner in self.owners.values():
      listed = owner.optimizer.get_slot_names() if owner.has_slots else []
      for name in listed:
        for weight in weights:
          variable = weight.variables[0]
          slot = _objects.get_slot(owner.optimizer, variable, name)
          if slot is None or id(slot) in self.targets:
            continue
          path = f"{weight.name}{_objects.SLOT}{owner.path}/{name}"
          target = make_target(path, slot)
          self.targets[id(slot)] = target
          for number, proof in owner.numbers.items():
            for node in self.nodes.get(id(variable), ()):
              to = self._graph.slots.get((number, node, name))
              key = self._graph.get_key(to)
              if key is not None:
                proofs = filter(None, [proof, *weight.keys.values()])
                target.keys.setdefault(key, next(proofs, ""))


def _walk(graph: ObjectGraph, objects: Any) -> _Walk:
  """Visits all objects, each with each node for it."""
  root, attached = _objects.find_root(objects)
  walk = _Walk(graph, attached)
  # Keras's second lists of variables come last: their numbers decide about
  # nothing that attributes name on both sides.
  queue = collections.deque([_Step(root, 0)])
  later: collections.deque[_Step] = collections.deque()
  seen: dict[Any, Any] = {}  # With the objects, so that no `id` is used again.
  while queue or later:
    step = (queue or later).popleft()
    key = id(step.item), step.number
    if key in seen or step.path == "save_counter":
      continue
    seen[key] = step.item
    if _objects.is_variable(step.item):
      walk.add(step)
      continue
    for new in walk.list_steps(step):
      (later if new.is_again else queue).append(new)
  walk.add_slots()
  return walk


@dataclasses.dataclass
class _ObjectRestore:
  """A restore by object: a decision about each target of a walk.

  Attributes:
    initial: `id` of a variable -> its initial value, if that is known eagerly.
    problems: What does not fit, in sentences.
  """

  session: Any
  checkpoint: Checkpoint
  wishes: Wishes
  walk: _Walk
  initial: Mapping[int, Any]
  problems: list[str] = dataclasses.field(default_factory=list)

  def run(self) -> Report:
    unbuilt = list(self.walk.unbuilt)
    for owner in self.walk.owners.values():
      unbuilt += [owner.path] if self._check_optimizer(owner) else []
    if self.wishes.missing == "error":
      self.problems += [
        f"{path} is not built, and lacks variables that are in it: call "
        f"{_objects.BUILD}, or the layer once, first; missing='initialize' "
        "restores without them"
        for path in unbuilt
      ]
    used: dict[str, str] = {}
    listed = list(self.walk.targets.values())
    for target in listed:
      self._decide(target, used)
    prefix = self.checkpoint.prefix
    if self.problems:
      raise CheckpointError(
        f"{prefix}: it does not fit, and nothing was restored: "
        + "; ".join(shorten(self.problems))
      )
    if not used:
      raise CheckpointError(
        f"{prefix}: none of its values is for an object that was given, so "
        "nothing was restored: give the objects by the names that "
        "tf.train.Checkpoint had for them, "
        + ", ".join(list(self.checkpoint.objects.children[0])[:MOST])
      )
    _targets.check_powers(self.checkpoint, listed, None)
    keys = self.checkpoint.specs
    return _targets.fill(
      self.session,
      self.checkpoint,
      listed,
      keys=[k for k in keys if not k.startswith("save_counter/")],
      rules=self.walk.rules,
    )

  def _check_optimizer(self, owner: _Owner) -> bool:
    """Checks that an optimizer is of the checkpoint's kind; finds betas.

    Returns:
      Whether it has yet to make slots that the checkpoint has.
    """
    optimizer, nodes = owner.optimizer, owner.numbers
    children = {
      name for n in nodes for name in self.checkpoint.objects.children[n]
    }
    roles = {name for n, _, name in self.checkpoint.objects.slots if n in nodes}
    kind = slot_names.find_kind_of_optimizer(optimizer)
    if owner.has_slots:
      here, there = set(optimizer.get_slot_names()), roles
      kind = kind or slot_names.find_kind_of_roles(here)
      other = slot_names.find_kind_of_roles(roles)
    else:
      here, there = set(slot_names.LISTS.get(kind or "", {}).values()), children
      other = slot_names.find_kind_of_lists(children)
    families = [_COUNTERS[name] for name in _COUNTERS if name in children]
    families = families or [_V1] * bool(roles)
    # Roles do not tell AdaMax from Adam.
    are_alike = kind == other or {kind, other} <= slot_names.CORRECTED
    shared = here & there if kind and other and not are_alike else ()
    is_family = not (owner.family and families) or owner.family in families
    if shared or not is_family:
      what = f"{type(optimizer).__name__} ({owner.family})"
      self.problems.append(
        f"{owner.path} is {what} here, but {other or 'an optimizer'} "
        f"({', '.join(families)}) in it, whose slots have other meanings: make "
        "an optimizer of that kind, restore the other objects alone, or "
        "restore by name, which converts between Keras and TensorFlow 1"
      )
    if self.session is not None:
      return False
    is_v1 = owner.family == _V1
    betas = optimizers.find_betas(optimizer) if is_v1 else {}
    for name in betas:
      child = _objects.list_children(optimizer).get(name)
      if id(child) in self.walk.targets:
        self.walk.targets[id(child)].beta = betas[name]
    if not roles and not other:
      return False  # To ask a legacy optimizer would make variables.
    if is_v1:
      has_any = bool(optimizers.list_variables(optimizer))
      return not has_any or self._lacks_slots(optimizer, nodes)
    return not optimizer_states.is_built(optimizer)

  def _lacks_slots(self, optimizer: Any, nodes: Iterable[int]) -> bool:
    """Returns whether the checkpoint has slots of weights that it lacks."""
    walk, names = self.walk, optimizer.get_slot_names()
    return any(
      _objects.get_slot(optimizer, target.variables[0], name) is None
      for target in walk.targets.values()
      for node in walk.nodes.get(id(target.variables[0]), ())
      for name in names
      if any(
        (number, node, name) in self.checkpoint.objects.slots
        for number in nodes
      )
    )

  def _decide(self, target: Target, used: dict[str, str]) -> None:
    """Decides which value a variable gets, or notes a problem."""
    path = target.name
    if not target.keys:
      self._decide_missing(target)
      return
    ((key, proof), *others) = target.keys.items()
    if others:
      self.problems.append(
        f"{path} is one variable here, but several in it "
        f"({', '.join(target.keys)}): restore objects that have it by one of "
        "these paths alone"
      )
    elif used.setdefault(key, path) != path:
      self.problems.append(
        f"{used[key]} and {path} are two variables here, but one in it "
        f"({key}): restore the objects of one at a time"
      )
    else:
      source = Source(key, self.checkpoint.specs[key])
      problem = target.take(source, proof, self.wishes.cast)
      self.problems += [problem] if problem else []

  def _decide_missing(self, target: Target) -> None:
    """Decides about a variable that the checkpoint does not have."""
    excuse, variable = target.why, target.variables[0]
    target.why = excuse or _targets.NOT_THERE
    target.initial = self.initial.get(id(variable))
    is_known = self.session is not None or target.initial is not None
    if self.wishes.missing == "initialize" or (excuse and is_known):
      return
    known = [key.split(_ATTRIBUTES)[0] for key in self.checkpoint.specs]
    is_shown = len(self.problems) < MOST
    hint = _targets.suggest(target.name, known) if is_shown else ""
    self.problems.append(
      f"{target.name} ({variable.name}){hint} is not in it; "
      "missing='initialize' initializes the variable"
    )


def restore_objects(
  session: Any, checkpoint: Checkpoint, objects: Any, wishes: Wishes
) -> Report:
  """Restores a checkpoint by object. Of the wishes, `missing` and `cast` count.

  A loss scale is initialized in any case if the checkpoint has none for its
  optimizer.
  """
  if session is None and not tf.executing_eagerly():
    raise ValueError(
      "session is None, but variables of a graph are restored in a session: "
      "pass the tf.compat.v1.Session that is to have them."
    )
  with session.graph.as_default() if session else contextlib.nullcontext():
    items = _objects.walk(objects)
    initial = {} if session else _objects.find_initial_values(items)
    walk = _walk(checkpoint.objects, objects)
    return _ObjectRestore(session, checkpoint, wishes, walk, initial).run()
