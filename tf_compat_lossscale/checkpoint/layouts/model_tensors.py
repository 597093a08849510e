# SPDX-License-Identifier: Apache-2.0
"""Tells the model's tensors from all else that training saves.

    dropped            proof
    slot of W          W is there, and the slot has a name that optimizers give
                       and W's shape, or a graph shows its optimizer
    average of W       W is there, and the name ends in ExponentialMovingAverage
    float32 master     SCOPE/FP32-master-copy/W, and W is there as float16
    loss scale         as `layouts/names.py` finds it
    power of Adam      its name and its shape; a graph must not show that it is
                       a weight
    step               an integer scalar that is called global_step

In a checkpoint by objects, the object graph tells: the model's tensors can be
reached from the root without passing an optimizer or a loss scale.

What has no proof is kept: a tensor too many does no harm, and one too few does.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import difflib
import fnmatch
import itertools

from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.bundle import OBJECT_GRAPH
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec
from tf_compat_lossscale.checkpoint.files.object_graph import Node
from tf_compat_lossscale.checkpoint.files.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.layouts import evidence
from tf_compat_lossscale.checkpoint.layouts import keras_slots
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts import policy_weights
from tf_compat_lossscale.checkpoint.layouts import slots
from tf_compat_lossscale.checkpoint.layouts.inventory import Inventory

_STEPS = {"global_step", "save_counter"}
_MASTERS = "FP32-master-copy/"
# The counters of `accumulate`; before its sums were slots, it had `kept`, too.
_ACCUMULATION = {"accumulation/micro_batches", "accumulation/kept"}
# The names by which the root, or an optimizer, has counters of steps.
_COUNTERS = _STEPS | {"step", "steps", "iterations", "epoch"}
# What optimizers call their slots, in lower case and without numbers. Most are
# the names of the optimizers.
_SLOTS = {
  # Of the optimizers that are in Keras, too.
  *(name.lower() for name in slots.ROLES),
  *itertools.chain(*itertools.chain(*slots.ROLES.values())),
  "vhat",
  # tf.train, tf.contrib.opt and their successors.
  "accumulated_gradient",
  "adagradda",
  "adamw",
  "addsign",
  "centeredrmsprop",
  "elasticaverageoptimizer",
  "ggt",
  "lamb",
  "larsoptimizer",
  "lazyadam",
  "lazyadamoptimizer",
  "modelaverageoptimizer",
  "momentumw",
  "movingaverageoptimizer",
  "nadam",
  "powersign",
  "proximaladagrad",
  "proximalgradientdescent",
  "shampoo",
  "sgdw",
  *keras_slots.OWN_NAMES,
  # Adafactor's.
  "adafactor",
  "vc",
  "vr",
  # NovoGrad's, and accumulators of gradients.
  "grad_acc",
  "grad_ema",
  "multistepoptimizer",
  "novograd",
}
# The names among them that are short enough for a program's own variables.
_SHORT = {"linear", "m", "mg", "rms", "v", "vc", "vr"}
# Adafactor's factors of a slot lack one of the weight's dimensions.
_FACTORS = {"vc", "vr", "adafactor"}
# What zero debiasing keeps beside an average.
_DEBIASING = {"biased", "local_step"}
# What an optimizer around another one has beside it.
_WRAPPERS = {
  names.BASE_OPTIMIZER: "loss_scale",
  "inner_optimizer": names.KERAS_3_SCALE,
}
# The scalars of Keras's optimizers up to TensorFlow 2.10. A layer may have a
# weight beta.
_SCALARS = {"iter", *keras_slots.HYPERPARAMETERS} - {"beta", "epsilon"}
# The names by which models of Keras have the metrics that they compute.
_METRICS = {"keras_metrics", "_metrics", "_compile_metrics", "_loss_tracker"}
_METRICS_OF_KERAS_2 = {"metrics", "layer_metrics"}  # Of the node `keras_api`.
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


@dataclasses.dataclass
class ModelTensors:
  """The tensors of a checkpoint, sorted.

  Attributes:
    kept: Name of a model's tensor -> its name in the checkpoint.
    dropped: Name in the checkpoint of each other tensor -> what it is.
    unproven: The names of tensors that may be no model's, which are kept.
    masters: float16 weight -> its float32 master.
    averages: Weight -> its average.
  """

  kept: dict[str, str] = dataclasses.field(default_factory=dict)
  dropped: dict[str, str] = dataclasses.field(default_factory=dict)
  unproven: list[str] = dataclasses.field(default_factory=list)
  masters: dict[str, str] = dataclasses.field(default_factory=dict)
  averages: dict[str, str] = dataclasses.field(default_factory=dict)

  def replace(self, others: Mapping[str, str], what: str) -> None:
    """Takes other tensors under the names of weights.

    Args:
      others: Weight -> the tensor to take.
      what: What these tensors are.

    Raises:
      CheckpointError: There are none.
    """
    others = {w: other for w, other in others.items() if w in self.kept}
    if not others:
      raise CheckpointError(f"it has no {what} of weights")
    for weight, other in others.items():
      self.dropped.pop(other, None)
      self.dropped[weight] = f"replaced by {other}"
      self.kept[weight] = other

  def choose(self, include: Sequence[str], exclude: Sequence[str]) -> None:
    """Keeps the tensors whose names match patterns of a shell.

    Args:
      include: Patterns, of which a name must match one; all names if empty.
      exclude: Patterns, of which a name may match none.

    Raises:
      CheckpointError: A pattern matches no name, or nothing is left.
    """
    left = set(self.kept)
    for word, patterns in (("include", include), ("exclude", exclude)):
      found = set()
      for pattern in patterns:
        matching = {n for n in self.kept if fnmatch.fnmatchcase(n, pattern)}
        if not matching:
          raise CheckpointError(self._explain_no_match(word, pattern))
        found |= matching
      if patterns:
        left = left & found if word == "include" else left - found
    for name in list(self.kept):
      if name not in left:
        self.dropped[self.kept.pop(name)] = "left out by its name"
    self.unproven = [name for name in self.unproven if name in left]
    if not self.kept:
      raise CheckpointError("include and exclude leave no tensor")

  def _explain_no_match(self, word: str, pattern: str) -> str:
    """Returns the error for a pattern that matches no name."""
    others = [n for n in self.dropped if fnmatch.fnmatchcase(n, pattern)]
    if others:
      why = f"{others[0]} is dropped: {self.dropped[others[0]]}"
    else:
      near = difflib.get_close_matches(pattern, self.kept, 3, 0.3)
      why = f"near it are {', '.join(near or sorted(self.kept)[:3])}"
    return (
      f"{word}={pattern!r} matches no tensor of the model ({why}); a pattern "
      "is that of a shell for the whole name, such as 'bert/encoder/*'"
    )


def find_model(bundle: Bundle) -> ModelTensors:
  """Sorts the tensors of a checkpoint.

  Raises:
    CheckpointError: The checkpoint is damaged, or has no tensor of a model.
  """
  if OBJECT_GRAPH in bundle.specs:
    found = _sort_objects(bundle)
  else:
    found = _sort_names(bundle)
  if not found.kept:
    raise CheckpointError(f"{bundle.prefix}: it has no tensor of a model")
  return found


def _sort_names(bundle: Bundle) -> ModelTensors:
  """Sorts variables by name."""
  specs = bundle.specs
  found = ModelTensors(masters=_find_masters(specs))
  dropped = found.dropped
  inventory = Inventory(specs, lambda: evidence.find_evidence(bundle))
  inventory.gather_evidence()
  dropped |= dict.fromkeys(_find_scales(inventory), "loss scale")
  dropped |= {
    master: f"float32 master of {weight}"
    for weight, master in found.masters.items()
  }
  for name, spec in specs.items():
    if name in dropped or inventory.is_trainable(name):
      continue
    if _is_step(name, spec):
      dropped[name] = "counter of steps"
    elif names.is_power(name, spec):
      dropped[name] = "power of an optimizer's decay"
    elif name in _ACCUMULATION and not spec.shape:
      dropped[name] = "counter of accumulated gradients"
  _sort_slots(bundle, specs, inventory, found)
  for name in specs:
    if name not in dropped:
      found.kept[name] = name
  return found


def _find_masters(specs: Mapping[str, TensorSpec]) -> dict[str, str]:
  """Returns float16 weight -> its float32 master."""
  found: dict[str, str] = {}
  for name, spec in specs.items():
    scope, mark, weight = name.rpartition(_MASTERS)
    if not mark or (scope and not scope.endswith("/")):
      continue
    half = TensorSpec("float16", spec.shape)
    if spec.dtype == "float32" and specs.get(weight) == half:
      found[weight] = name
  return found


def _find_scales(inventory: Inventory) -> list[str]:
  """Returns the names of the variables of all loss scales, also dead ones."""
  scales = [
    *inventory.scales.known,
    *(
      scale
      for scale in inventory.scales.incomplete
      if inventory.is_likely_scale(scale)
      or inventory.get_served(scale.names[0])
    ),
  ]
  if scales:  # A wrapper that no gradient passes leaves a dead one beside it.
    alive = {name for scale in scales for name in scale.names}
    scales += [
      each
      for each in names.find_scales(inventory.tensors).known
      if alive.isdisjoint(each.names)
    ]
  further = policy_weights.find_further(inventory.tensors, scales)
  listed = [name for scale in scales for name in scale.names]
  listed += [name for each in further.values() for name in each.values()]
  return [name for name in listed if name in inventory.tensors]


def _is_step(name: str, spec: TensorSpec) -> bool:
  last = names.split_scope(name)[1]
  return last in _STEPS and not spec.shape and spec.dtype in names.INTEGERS


def _sort_slots(
  bundle: Bundle,
  specs: Mapping[str, TensorSpec],
  inventory: Inventory,
  found: ModelTensors,
) -> None:
  """Finds slots and averages, and what only looks like them."""
  of_weights = {master: w for w, master in found.masters.items()}
  of_parts = dict(_find_part_slots(bundle))
  candidates = of_parts | dict(names.find_slots(specs))
  owners = inventory.find_owners(candidates)
  weights = inventory.weights
  updated = inventory.updated if inventory.trained_weights else None
  for name, spec in specs.items():
    head, _, last = name.rpartition("/")
    base = names.get_base(name)
    if name in found.dropped or inventory.is_trainable(name):
      continue
    averaged = (
      _find_averaged(head, spec, specs) if base == names.AVERAGE else ""
    )
    if averaged:
      weight = of_weights.get(averaged, averaged)
      found.averages.setdefault(weight, name)
      if name == f"{averaged}/{names.AVERAGE}":
        # It comes before those that a scope made, or that have a number.
        found.averages[weight] = name
      found.dropped[name] = f"average of {weight}"
    elif (
      last in _DEBIASING
      and head in specs
      and (spec == specs[head] if last == "biased" else not spec.shape)
    ):
      found.dropped[name] = f"state of the average {head}"
    elif name in candidates:
      weight = candidates[name]
      shown = of_weights.get(weight, weight)
      is_named = _is_named_slot(base, spec, specs[weight])
      if base in _SHORT:  # A program may call variables of its own m and v.
        is_named &= head == weight or _is_optimizers_scope(head, weight)
        is_named &= updated is None or name in updated
      if is_named or name in owners or name in of_parts:
        found.dropped[name] = f"slot of {shown}"
      else:
        found.unproven.append(name)
    elif base == names.AVERAGE or (not spec.shape and name not in weights):
      found.unproven.append(name)


def _is_optimizers_scope(head: str, weight: str) -> bool:
  """Returns whether a slot's name begins with an optimizer's.

  Keras's have names such as `training/Adam/dense/kernel/m`.
  """
  scope = head.removesuffix(weight).rstrip("/").rpartition("/")[2].lower()
  return names.split_number(scope)[0] in _SLOTS | {"sgd"}


def _find_averaged(
  head: str, spec: TensorSpec, specs: Mapping[str, TensorSpec]
) -> str:
  """Returns the variable of an average; "" if there is none.

  Args:
    head: The average's name without its last part. Scopes in which the average
      was made may come before the variable's name.
    spec: The average's dtype and shape.
    specs: Name -> dtype and shape.
  """
  while head and specs.get(head) != spec:
    head = head.partition("/")[2]
  return head


def _find_part_slots(bundle: Bundle) -> Iterator[tuple[str, str]]:
  """Yields each slot of one part of a partitioned variable, and the variable.

  Within a variable scope, TensorFlow 1 gave such slots names of their own: they
  begin with the variable's name, but what follows is cut out of another name,
  as in `a/v/rt_0/Momentum`. Such a tensor has only some of its slices.
  """
  for name in bundle.specs:
    if bundle.lacks_elements(name):
      head = name.rpartition("/")[0]
      while head and head not in bundle.specs:
        head = head.rpartition("/")[0]
      if head:
        yield name, head


def _is_named_slot(base: str, spec: TensorSpec, weight: TensorSpec) -> bool:
  """Returns whether a variable has the name and the shape of a slot."""
  base = base.lower()
  if base not in _SLOTS:
    return False
  if spec.shape == weight.shape:
    return True
  return base in _FACTORS and _is_factor(spec.shape, weight.shape)


def _is_factor(shape: tuple[int, ...], weight: tuple[int, ...]) -> bool:
  """Returns whether a shape is that of a weight without one dimension."""
  return shape == (1,) or any(
    shape == weight[:i] + weight[i + 1 :] for i in range(len(weight))
  )


def _sort_objects(bundle: Bundle) -> ModelTensors:
  """Sorts the tensors of objects."""
  graph = ObjectGraph.read(bundle)
  found = ModelTensors()
  by_slot = {s.slot: s for node in graph.nodes for s in node.slots}
  optimizers = {
    number for number, node in enumerate(graph.nodes) if _is_optimizer(node)
  }
  counters = {
    child
    for number, node in enumerate(graph.nodes)
    for name, child in node.children.items()
    if name in _STEPS or (name in _COUNTERS and number in {0, *optimizers})
  }
  metrics = {
    child
    for node in graph.nodes
    for name, child in node.children.items()
    if name in _METRICS
  }
  metrics |= {
    child
    for node in graph.nodes
    if "keras_api" in node.children
    for name, child in graph.nodes[node.children["keras_api"]].children.items()
    if name in _METRICS_OF_KERAS_2
  }
  loss_scales = {
    number
    for number, node in enumerate(graph.nodes)
    if node.children.keys() >= names.SCALE_TENSORS[names.COMPAT].keys()
  }
  of_model = {*graph.find_paths(optimizers | metrics | loss_scales)}
  taken: dict[str, tuple[str, str]] = {}
  for number, node in enumerate(graph.nodes):
    for attribute in node.attributes:
      key = attribute.key
      if key not in bundle.specs:
        continue
      spec = bundle.specs[key]
      is_count = not spec.shape and spec.dtype in names.INTEGERS
      if number in by_slot:
        weight = graph.find_value(by_slot[number].variable)
        name = weight.full_name if weight else ""
        found.dropped[key] = f"slot of {name or 'a weight'}"
      elif number in counters and is_count:
        found.dropped[key] = "counter of steps"
      elif number not in of_model:
        found.dropped[key] = "state of an optimizer, a loss scale or a metric"
      elif key.endswith(_SUFFIX):
        short = key[: -len(_SUFFIX)]
        taken[key] = (attribute.full_name or short, short)
      else:
        found.dropped[key] = "state of an object that is no variable"
  found.kept.update(_name_uniquely(taken))
  known = {*found.kept.values(), *found.dropped, OBJECT_GRAPH}
  for key in bundle.specs:
    if key not in known:
      found.dropped[key] = "no object has it"
  return found


def _name_uniquely(taken: Mapping[str, tuple[str, str]]) -> dict[str, str]:
  """Returns a name for each key: the variable's, or else the object's path.

  Keras 3 gives many variables one name.

  Args:
    taken: Key -> the variable's name, and the path.

  Returns:
    Name -> key.
  """
  chosen = {key: full_name for key, (full_name, _) in taken.items()}
  while len(set(chosen.values())) < len(chosen):
    uses = collections.Counter(chosen.values())
    for key, (_, path) in taken.items():
      if uses[chosen[key]] > 1:
        chosen[key] = path
  return {name: key for key, name in chosen.items()}


def _is_optimizer(node: Node) -> bool:
  """Returns whether an object is an optimizer, and no part of a model.

  An optimizer has slots, or it is around another one, or it counts steps and
  has the scalars of Keras's optimizers alone.
  """
  if node.slots:
    return True
  children = node.children
  if any(children.keys() >= {*pair} for pair in _WRAPPERS.items()):
    return True
  if "_iterations" in children:  # Since TensorFlow 2.11, and in Keras 3.
    return not children.keys().isdisjoint(("_variables", "_learning_rate"))
  return "iter" in children and children.keys() <= _SCALARS
