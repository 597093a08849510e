# SPDX-License-Identifier: Apache-2.0
"""Describes checkpoints, without TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import os
import re
from typing import Any

from tf_compat_lossscale.checkpoint import description as kinds
from tf_compat_lossscale.checkpoint import paths
from tf_compat_lossscale.checkpoint.description import Description
from tf_compat_lossscale.checkpoint.description import LossScaleState
from tf_compat_lossscale.checkpoint.files import consistency
from tf_compat_lossscale.checkpoint.files import meta_graph as _meta_graph
from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.bundle import OBJECT_GRAPH
from tf_compat_lossscale.checkpoint.files.object_graph import Node
from tf_compat_lossscale.checkpoint.files.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.layouts import evidence
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts import policy_weights
from tf_compat_lossscale.checkpoint.layouts import slots
from tf_compat_lossscale.checkpoint.layouts.inventory import Inventory

_Path = Callable[[], str]
# Slots in an object graph that only TensorFlow 1's optimizers call so.
_OWN_SLOTS = {
  frozenset({"accum", "accum_update"}): "Adadelta",
  frozenset({"accum", "linear"}): "Ftrl",
}
_LONG = 1000  # Characters of a path from which on it is abbreviated.


def describe(path: str | os.PathLike[str], verify: bool = False) -> Description:
  """Describes a checkpoint: its format, its API and its loss scales.

  Nothing in the file is executed. TensorFlow is imported for paths of its file
  systems alone.

  Args:
    path: A checkpoint's prefix, its '.index', a folder or its file 'checkpoint'
      (the latest checkpoint) or a SavedModel. Paths such as
      gs://bucket/model.ckpt-1000, on TensorFlow's file systems, are read by
      `tf.io.gfile`.
    verify: Whether to compare every byte with its checksum, whatever the size.
      Checkpoints of up to 64 MiB are always compared.

  Returns:
    The description.

  Raises:
    CheckpointError: The checkpoint is missing or damaged, or the file is of
      another kind.
  """
  path = os.fspath(path)
  return consistency.read_consistently(
    lambda: paths.find(path).path, lambda bundle: _describe(bundle, verify)
  )


def _describe(bundle: Bundle, verify: bool) -> Description:
  """Describes an open checkpoint."""
  found = paths.find_at_prefix(bundle.prefix)
  checked = verify or bundle.is_small
  if checked:
    bundle.check()
  if OBJECT_GRAPH in bundle.specs:
    facts = _describe_objects(bundle, ObjectGraph.read(bundle))
  else:
    facts = _describe_names(bundle)
  if found.kind == kinds.SAVED_MODEL:
    facts["kind"] = found.kind
    facts["release"] = _meta_graph.read_saved_model_release(found.folder)
  if facts["step"] is None:
    facts["step"] = _find_step_in_path(found.path)
  return Description(
    path=found.path,
    keys=bundle.specs,
    checked=checked,
    **facts,
  )


def _find_step_in_path(path: str) -> int | None:
  """Returns the number at the end of a prefix, such as model.ckpt-10."""
  match = re.search(r"-([0-9]+)\Z", path)
  return int(match[1]) if match else None


def _describe_names(bundle: Bundle) -> dict[str, Any]:
  """Describes a checkpoint by the names of its variables."""
  bundle.largest_meta_graph = _meta_graph.LARGEST_TO_DESCRIBE
  meta, ignored = bundle.meta_graph
  tensors = bundle.specs
  inventory = Inventory(tensors, lambda: evidence.find_evidence(bundle))
  if any(inventory.scales):
    inventory.gather_evidence()  # The user may have variables of such names.
  # A MetaGraph may know loss scales that were not saved.
  scales = [s for s in inventory.scales.known if s.names[0] in tensors]
  incomplete = [
    scale
    for scale in inventory.scales.incomplete
    if inventory.is_likely_scale(scale)
    or (
      inventory.get_served(scale.names[0])
      and not inventory.is_constant(scale.names[0])
    )
  ]
  further = policy_weights.find_further(tensors, scales)
  proven = [s for s in incomplete if inventory.get_served(s.names[0])]
  api = ", ".join(sorted({s.api for s in [*scales, *proven]})) or None
  if meta and not scales and not incomplete and not api:
    api = names.CONTRIB if evidence.was_applied_by_contrib(meta) else api
  steps = [
    name
    for name, tensor in tensors.items()
    if names.split_scope(name)[1] == "global_step" and not tensor.shape
  ]
  return {
    "kind": kinds.SAVER,
    "api": api,
    "release": meta and meta.release,
    "control_flow": meta and meta.control_flow,
    "inner_optimizer": _find_optimizers(tensors),
    "loss_scales": tuple(
      _read_state(bundle, scale, further.get(scale.names[0], {}))
      for scale in [*scales, *incomplete]
    ),
    "notes": (
      *([ignored] if ignored else []),
      *_note_dead(inventory, scales),
    ),
    "step": int(bundle.read_scalar(steps[0])) if steps else None,
  }


def _find_optimizers(all_names: Iterable[str]) -> str | None:
  """Returns the optimizers after which TensorFlow 1 calls slots; or None."""
  found = {names.get_base(slot) for slot, _ in names.find_slots(all_names)}
  return ", ".join(sorted(found & slots.ROLES.keys())) or None


def _find_optimizer(node: Node) -> str | None:
  """Returns the optimizer whose slots an object has, or None."""
  found = {slot.name for slot in node.slots} - {"vhat"}
  kind = slots.find_kind(found) or _OWN_SLOTS.get(frozenset(found))
  is_keras = "iter" in node.children
  return "SGD" if is_keras and kind == "Momentum" else kind


def _note_dead(
  inventory: Inventory, scales: Sequence[names.ScaleNames]
) -> Iterator[str]:
  """Yields a sentence for each loss scale that nothing depends on."""
  alive = {name for scale in scales for name in scale.names}
  first = next(iter(names.SCALE_TENSORS[names.COMPAT]))
  for name in inventory.tensors:
    if names.get_base(name) != first or name in alive or not alive:
      continue
    if inventory.belongs_to_user(name):
      scope, last = names.split_scope(name)
      number = names.split_number(last)[1]
      members = [
        scope + names.add_number(base, number)
        for base in names.SCALE_TENSORS[names.COMPAT]
      ]
      listed = ", ".join(n for n in members if n in inventory.tensors)
      yield (
        f"dead: {listed}: no weight depends on it, as a Horovod wrapper around "
        "an optimizer of NVIDIA's TensorFlow 1 leaves one"
      )


def _read_state(
  bundle: Bundle, scale: names.ScaleNames, further: Mapping[str, str]
) -> LossScaleState:
  """Returns the state of a loss scale in a checkpoint by names.

  Args:
    bundle: The checkpoint.
    scale: The variables of the loss scale.
    further: The variables that only a policy has, by their base names.
  """
  values = [
    bundle.read_scalar(name) if name in bundle.specs else None
    for name in scale.names
  ]
  return _make_state(
    values,
    (
      *(name for name in scale.names if name in bundle.specs),
      *further.values(),
    ),
    {base: bundle.read_scalar(name) for base, name in further.items()},
  )


def _make_state(
  values: Sequence[Any], found: tuple[str, ...], further: Mapping[str, Any]
) -> LossScaleState:
  """Returns a loss scale's state.

  Args:
    values: The scale, the good steps and, for tf.contrib, the bad steps.
    found: The names of the variables.
    further: The values of the variables that only a policy has, by their base
      names.
  """
  scale, good, bad = (*values, None, None)[:3]
  return LossScaleState(
    float(scale),
    good,
    further.get(policy_weights.SPENT, bad),
    found,
    skipped_steps=further.get(policy_weights.SKIPPED),
  )


def _describe_objects(bundle: Bundle, graph: ObjectGraph) -> dict[str, Any]:
  """Describes a checkpoint by its object graph."""
  states, inner, steps = [], set(), []
  api = None
  paths_of = graph.find_paths()
  for number in paths_of:
    node = graph.nodes[number]
    path = functools.partial(paths_of.abbreviate, number, _LONG)
    if node.slots or "iter" in node.children or "_iterations" in node.children:
      inner.add(_find_optimizer(node))
      steps += [
        _read_scalar(bundle, graph, node, "iter"),
        _read_scalar(bundle, graph, node, "_iterations"),
      ]
    generation = _find_generation(graph, number)
    if generation:
      scale_api, state = _read_scale(bundle, graph, node, path)
      api = names.CONTRIB if scale_api == names.CONTRIB else generation
      states += [state] if state else []
  global_step = _read_scalar(bundle, graph, graph.nodes[0], "global_step")
  if global_step is None:
    global_step = max((s for s in steps if s is not None), default=None)
  return {
    "kind": kinds.OBJECT,
    "api": api,
    "inner_optimizer": ", ".join(sorted(filter(None, inner))) or None,
    "loss_scales": tuple(states),
    "step": global_step,
  }


def _read_scale(
  bundle: Bundle, graph: ObjectGraph, node: Node, path: _Path
) -> tuple[str, LossScaleState | None]:
  """Reads an optimizer's loss scale.

  Returns:
    The API, '' for Keras 3; and the state, None if there is none.
  """
  if names.KERAS_3_SCALE in node.children:
    api, wanted, prefix = "", list(names.KERAS_3), ""
  else:
    node = graph.nodes[node.children.get(names.LOSS_SCALE, 0)]
    prefix = "/loss_scale"
    contrib = "loss_scale" in node.children  # The variable in tf.contrib.
    api = names.CONTRIB if contrib else names.COMPAT
    wanted = list(names.SCALE_TENSORS[api])
  counts = sorted(policy_weights.COUNTS)
  further = [name for name in counts if name in node.children]
  values = {
    name: _read_scalar(bundle, graph, node, name) for name in wanted + further
  }
  if values[wanted[0]] is None:
    return api, None
  begin = path() + prefix
  found = tuple(
    f"{begin}/{name}".lstrip("/")
    for name, value in values.items()
    if value is not None
  )
  return api, _make_state(
    [values[name] for name in wanted], found, {n: values[n] for n in further}
  )


def _read_scalar(
  bundle: Bundle, graph: ObjectGraph, node: Node, name: str
) -> Any:
  """Returns the value of an object's scalar variable; None if there is none."""
  number = node.children.get(name)
  attribute = None if number is None else graph.find_value(number)
  spec = bundle.specs.get(attribute.key) if attribute else None
  if attribute is None or spec is None or spec.shape:
    return None
  return bundle.read_scalar(attribute.key)


def _find_generation(graph: ObjectGraph, number: int) -> str | None:
  """Returns the API of an optimizer with a loss scale; None for others."""
  node = graph.nodes[number]
  if (
    names.KERAS_3_SCALE in node.children and "inner_optimizer" in node.children
  ):
    return kinds.KERAS_3
  scale = node.children.get(names.LOSS_SCALE)
  if scale is not None and graph.find_value(scale):
    return None  # The user's variable.
  if scale is None and not _shares_counter(graph, node):
    return None
  if "_iterations" in node.children:
    return kinds.KERAS_211
  if "iter" in node.children:
    return kinds.KERAS_23
  if names.BASE_OPTIMIZER not in node.children:
    # Other objects may have a child `loss_scale`, too.
    others = node.children.keys() - {"beta1_power", "beta2_power"}
    own = others == {names.LOSS_SCALE} and number
    return kinds.ENVIRONMENT if own or node.slots else None
  base = graph.nodes[node.children[names.BASE_OPTIMIZER]]
  return kinds.KERAS_22 if "iter" in base.children else names.COMPAT


def _shares_counter(graph: ObjectGraph, node: Node) -> bool:
  """Returns whether an optimizer counts by the counter of its inner one.

  So does Keras's LossScaleOptimizer, which has no child for a fixed loss scale.
  """
  inner = graph.nodes[node.children.get(names.BASE_OPTIMIZER, 0)].children
  counters = {"iter", "_iterations"} & node.children.keys() & inner.keys()
  return any(node.children[name] == inner[name] for name in counters)
