# SPDX-License-Identifier: Apache-2.0
"""Tells the model's tensors from the state of training.

By name, docs/checkpoints.md lists what is dropped. In a checkpoint by objects,
the object graph tells: the model's tensors can be reached from the root without
passing an optimizer or a loss scale.

What may be either is kept: a tensor too many does no harm, and one too few
does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import fnmatch
import operator
from typing import NamedTuple

from tf_compat_lossscale._core.object_graph import ObjectGraph
from tf_compat_lossscale._core.slot_names import SHORT_SLOTS
from tf_compat_lossscale._core.slot_names import SLOTS
from tf_compat_lossscale.checkpoint import _targets
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import CheckpointError
from tf_compat_lossscale.checkpoint.reading import shorten
from tf_compat_lossscale.checkpoint.reading import TensorSpec

# Adafactor's factors of a slot lack one of the weight's dimensions.
_FACTORS = {"vc", "vr", "adafactor"}
# The names by which the root, or an optimizer, has counters of steps.
_COUNTERS = names.STEPS | {"step", "steps", "iterations", "epoch"}
# The names by which models of Keras have the metrics that they compute.
_METRICS = {"keras_metrics", "_metrics", "_compile_metrics", "_loss_tracker"}
_METRICS_OF_KERAS_2 = {"metrics", "layer_metrics"}  # Of the node `keras_api`.
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


class Selection(NamedTuple):
  """What is written of a checkpoint, as `convert` takes it."""

  masters: bool = False
  averages: bool = False
  include: Sequence[str] = ()
  exclude: Sequence[str] = ()

  def check(self) -> None:
    """Refuses what no checkpoint can fulfil."""
    if self.masters and self.averages:
      raise CheckpointError(
        "masters and averages exclude each other: both take the place of "
        "weights"
      )
    for patterns in (self.include, self.exclude):
      if isinstance(patterns, str):
        raise CheckpointError(
          f"include and exclude must be lists of patterns, but got {patterns!r}"
        )


@dataclasses.dataclass
class Weights:
  """The tensors of a checkpoint, sorted.

  Attributes:
    kept: Name of a model's tensor -> its key in the checkpoint.
    dropped: Key in the checkpoint of each other tensor -> what it is.
    unproven: The names of tensors that may be no model's, which are kept.
    masters: float16 weight -> its float32 master.
  """

  kept: dict[str, str] = dataclasses.field(default_factory=dict)
  dropped: dict[str, str] = dataclasses.field(default_factory=dict)
  unproven: list[str] = dataclasses.field(default_factory=list)
  masters: dict[str, str] = dataclasses.field(default_factory=dict)
  averages: dict[str, list[str]] = dataclasses.field(default_factory=dict)
  notes: list[str] = dataclasses.field(default_factory=list)


def find_weights(checkpoint: Checkpoint, selection: Selection) -> Weights:
  """Finds the model's tensors of a checkpoint that are to be written."""
  is_named = checkpoint.object_graph is None
  found = (_sort_names if is_named else _sort_objects)(checkpoint)
  if not found.kept:
    raise CheckpointError(f"{checkpoint.prefix}: it has no tensor of a model")
  try:
    if selection.masters:
      _replace(found, found.masters, "float32 masters")
    elif selection.averages:
      _replace(found, _choose_averages(found, selection), "averages")
    elif halves := found.masters.keys() & found.kept.keys():
      found.notes.append(
        f"{len(halves)} weights are written in float16; masters (--masters) "
        "writes their float32 masters in their place"
      )
    _choose(found, selection)
  except CheckpointError as error:
    raise CheckpointError(f"{checkpoint.prefix}: {error}") from None
  plain = sorted(found.kept.keys() - found.averages.keys())
  if plain and selection.averages:
    listed = ", ".join(shorten(plain, 5))
    found.notes.append(f"without an average, and written as they are: {listed}")
  return found


def _replace(found: Weights, others: Mapping[str, str], what: str) -> None:
  """Takes other tensors, called `what`, under the names of weights."""
  weights = found.kept.keys() & others.keys()
  if not weights:
    raise CheckpointError(f"it has no {what} of weights")
  for weight in sorted(weights):
    found.kept[weight] = other = others[weight]
    found.dropped.pop(other, None)
    found.dropped[weight] = f"replaced by {other}"


def _choose_averages(found: Weights, selection: Selection) -> dict[str, str]:
  """Returns weight -> its average; refuses several of one weight."""
  chosen: dict[str, str] = {}
  doubtful: dict[str, list[str]] = {}
  for weight, averages in found.averages.items():
    left = [a for a in averages if not _matches(a, selection.exclude)]
    left = [a for a in left if _matches(a, selection.include)] or left
    if len(left) > 1 and weight in found.kept:
      doubtful[weight] = left
    elif left:
      chosen[weight] = left[0]
  if doubtful:
    weight, averages = next(iter(doubtful.items()))
    listed = "; ".join(f"{w}: {', '.join(a)}" for w, a in doubtful.items())
    last = averages[-1].rpartition("/")[2]
    other = f"*/{last}" if last != names.AVERAGE else averages[-1]
    raise CheckpointError(
      f"{len(doubtful)} weights have several averages: {listed[:500]}; leave "
      f"out the others, for instance by exclude=[{other!r}], on the command "
      f"line by --exclude={other!r}"
    )
  return chosen


def _matches(name: str, patterns: Sequence[str]) -> bool:
  return any(name == p or fnmatch.fnmatchcase(name, p) for p in patterns)


def _choose(found: Weights, selection: Selection) -> None:
  """Leaves out what patterns say; refuses those that match nothing."""
  averages = [a for each in found.averages.values() for a in each]
  known = {*found.kept, *(averages if selection.averages else ())}
  for pattern in (*selection.include, *selection.exclude):
    if not any(_matches(name, [pattern]) for name in known):
      others = [name for name in found.dropped if _matches(name, [pattern])]
      why = _targets.suggest(pattern, found.kept)
      if others:
        why = f" ({others[0]} is dropped: {found.dropped[others[0]]})"
      raise CheckpointError(
        f"the pattern {pattern!r} matches no tensor of the model{why}; a "
        "pattern is that of a shell for the whole name, such as "
        "'bert/encoder/*'"
      )
  included = [n for n in found.kept if _matches(n, selection.include)]
  left = [
    name
    for name in included or found.kept
    if not _matches(name, selection.exclude)
  ]
  if not left:
    raise CheckpointError("include and exclude leave no tensor")
  for name in sorted(found.kept.keys() - left):
    found.dropped[found.kept.pop(name)] = "left out by its name"
  found.unproven = [name for name in found.unproven if name in left]


def _sort_names(checkpoint: Checkpoint) -> Weights:
  specs = checkpoint.specs
  found = Weights(masters=_find_masters(specs))
  scales = names.find_scales(specs)
  likely = [s for s in scales.incomplete if s.api == names.COMPAT]
  for scale in (*scales.known, *likely):
    for name in scale.all:
      if name in specs:
        found.dropped[name] = "loss scale"
  for weight, master in found.masters.items():
    found.dropped[master] = f"float32 master of {weight}"
  for name, spec in specs.items():
    if not spec.shape and name not in found.dropped:
      last = names.split_scope(name)[1]
      if last in names.STEPS and spec.dtype in names.INTEGERS:
        found.dropped[name] = "counter of steps"
      elif names.is_power(name, spec):
        found.dropped[name] = "power of an optimizer's decay"
      elif name in names.ACCUMULATION:
        found.dropped[name] = "counter of accumulated gradients"
  _sort_slots(specs, found)
  found.kept.update((n, n) for n in specs if n not in found.dropped)
  return found


def _find_masters(specs: Mapping[str, TensorSpec]) -> dict[str, str]:
  found: dict[str, str] = {}
  for name, spec in specs.items():
    scope, mark, weight = name.rpartition(names.MASTERS)
    if not mark or (scope and not scope.endswith("/")):
      continue
    half = TensorSpec("float16", spec.shape)
    if spec.dtype == "float32" and specs.get(weight) == half:
      found[weight] = name
  return found


def _sort_slots(specs: Mapping[str, TensorSpec], found: Weights) -> None:
  """Finds slots and averages, and what only looks like them."""
  of_masters = {master: w for w, master in found.masters.items()}
  slots = dict(names.find_slots(specs))
  for name, spec in specs.items():
    head, _, last = name.rpartition("/")
    base = names.get_base(name)
    if name in found.dropped:
      continue
    averaged = head if base == names.AVERAGE else ""
    while averaged and specs.get(averaged) != spec:
      averaged = averaged.partition("/")[2]  # Scopes may come before the name.
    if averaged:
      weight = of_masters.get(averaged, averaged)
      found.averages.setdefault(weight, []).append(name)
      found.dropped[name] = f"average of {weight}"
    elif (
      last in names.DEBIASING
      and head in specs
      and (spec == specs[head] if last == "biased" else not spec.shape)
    ):
      found.dropped[name] = f"state of the average {head}"
    elif name in slots:
      weight = slots[name]
      if _is_slot(name, weight, specs):
        found.dropped[name] = f"slot of {of_masters.get(weight, weight)}"
      else:
        found.unproven.append(name)
    elif base == names.AVERAGE or not spec.shape:
      found.unproven.append(name)


def _is_slot(name: str, weight: str, specs: Mapping[str, TensorSpec]) -> bool:
  """Returns whether a variable has the name and the shape of a slot."""
  base = names.get_base(name).lower()
  head = name.rpartition("/")[0]
  shape, whole = specs[name].shape, specs[weight].shape
  if base not in SLOTS:
    return False
  if base in SHORT_SLOTS and head != weight:
    # A program may call variables of its own m and v. Keras's optimizers have
    # slots such as `training/Adam/dense/kernel/m`.
    scope = head.removesuffix(weight).rstrip("/").rpartition("/")[2].lower()
    if names.split_number(scope)[0] not in SLOTS:
      return False
  if not head.endswith(weight):  # A part's.
    return len(shape) == len(whole) and all(map(operator.le, shape, whole))
  return shape == whole or (
    base in _FACTORS
    and (
      shape == (1,)
      or any(shape == whole[:i] + whole[i + 1 :] for i in range(len(whole)))
    )
  )


def _sort_objects(checkpoint: Checkpoint) -> Weights:
  graph, found = checkpoint.objects, Weights()
  slots = {slot: weight for (_, weight, _), slot in graph.slots.items()}
  others, counters = _find_others(graph)
  of_model = graph.find_paths(others)
  taken: dict[str, str] = {}  # Key -> the variable's own name.
  for number, node in enumerate(graph.nodes):
    for attribute in node.attributes:
      key = attribute.checkpoint_key
      if key not in checkpoint.specs:
        continue
      spec = checkpoint.specs[key]
      is_count = not spec.shape and spec.dtype in names.INTEGERS
      if number in slots:
        full = [a.full_name for a in graph.nodes[slots[number]].attributes]
        found.dropped[key] = f"slot of {''.join(full[:1]) or 'a weight'}"
      elif number in counters and is_count:
        found.dropped[key] = "counter of steps"
      elif number not in of_model:
        found.dropped[key] = "state of an optimizer, a loss scale or a metric"
      elif key.endswith(_SUFFIX):
        taken[key] = attribute.full_name
      else:
        found.dropped[key] = "state of an object that is no variable"
  found.kept.update(_name_apart(taken))
  for key in checkpoint.specs.keys() - taken.keys() - found.dropped.keys():
    found.dropped[key] = "no object has it"
  return found


def _find_others(graph: ObjectGraph) -> tuple[set[int], set[int]]:
  """Returns the optimizers, loss scales and metrics; and counters of steps."""
  others: set[int] = set()
  counters: set[int] = set()
  for number, children in enumerate(graph.children):
    is_optimizer = graph.is_optimizer(number)
    is_scale = children.keys() >= names.SCALE_TENSORS[names.COMPAT].keys()
    if is_optimizer or is_scale:
      others.add(number)
    counts = names.STEPS if number and not is_optimizer else _COUNTERS
    counters |= {children[name] for name in counts & children.keys()}
    others |= {children[name] for name in _METRICS & children.keys()}
    api = (
      graph.children[children["keras_api"]] if "keras_api" in children else {}
    )
    others |= {api[name] for name in _METRICS_OF_KERAS_2 & api.keys()}
  return others, counters


def _name_apart(taken: Mapping[str, str]) -> dict[str, str]:
  """Returns name -> key of variables, from key -> the variable's own name.

  Keras 3 gives many variables one name: such have the object's path.
  """
  paths = {key: key.removesuffix(_SUFFIX) for key in taken}
  chosen = {key: name or paths[key] for key, name in taken.items()}
  while len(set(chosen.values())) < len(chosen):
    uses = Counter(chosen.values())
    for key, path in paths.items():
      if uses[chosen[key]] > 1:
        chosen[key] = path
  return {name: key for key, name in chosen.items()}
