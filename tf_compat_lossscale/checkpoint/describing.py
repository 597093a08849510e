"""Finds out what a checkpoint is, without TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
import os
import re
from typing import Any

from tf_compat_lossscale.checkpoint import _describing_keras
from tf_compat_lossscale.checkpoint import description as kinds
from tf_compat_lossscale.checkpoint import paths
from tf_compat_lossscale.checkpoint.description import Description
from tf_compat_lossscale.checkpoint.description import LossScaleState
from tf_compat_lossscale.checkpoint.files import meta_graph as _meta_graph
from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.bundle import OBJECT_GRAPH
from tf_compat_lossscale.checkpoint.files.object_graph import Node
from tf_compat_lossscale.checkpoint.files.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.layouts import evidence
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts.inventory import Inventory

# Slots of an optimizer in an object graph -> what it is.
_BY_SLOTS: dict[frozenset[str], str] = {
  frozenset({"m", "v"}): "Adam",
  frozenset({"m", "v", "vhat"}): "Adam",
  frozenset({"momentum"}): "Momentum",
  frozenset({"rms"}): "RMSProp",
  frozenset({"rms", "momentum"}): "RMSProp",
  frozenset({"rms", "mg"}): "RMSProp",
  frozenset({"rms", "mg", "momentum"}): "RMSProp",
  frozenset({"accumulator"}): "Adagrad",
  frozenset({"accum", "accum_update"}): "Adadelta",
  frozenset({"accum_grad", "accum_var"}): "Adadelta",
  frozenset({"accum", "linear"}): "Ftrl",
  frozenset({"accumulator", "linear"}): "Ftrl",
}


def describe(path: str | os.PathLike[str], verify: bool = False) -> Description:
  """Says what a checkpoint is, and what its loss scales are.

  Nothing in the file is executed, and TensorFlow is not needed, except to
  compare large files with their checksums.

  Args:
    path: A checkpoint's prefix, its '.index', a folder (its latest
      checkpoint), a SavedModel, an '.h5' or a '.keras' file.
    verify: Whether to compare every byte with its checksum, whatever the
      size. Up to 64 MiB that is done anyway. (HDF5 has no checksums.)

  Returns:
    What it is.

  Raises:
    CheckpointError: There is none, or it is damaged.
  """
  found = paths.find(os.fspath(path))
  if found.kind in (kinds.KERAS_H5, kinds.KERAS_ZIP):
    return _describing_keras.describe(found.path, found.kind)
  bundle = Bundle(found.path)
  checked = verify or bundle.is_small
  if checked:
    bundle.check()
  if OBJECT_GRAPH in bundle:
    facts = _of_objects(bundle, ObjectGraph.read(bundle))
  elif found.kind == kinds.SAVED_MODEL:
    facts = _of_names(bundle, _meta_graph.Summary())
  else:
    facts = _of_names(bundle, _meta_graph.summarize(found.path + ".meta"))
  if found.kind == kinds.SAVED_MODEL:
    facts["kind"] = found.kind
    facts["release"] = _meta_graph.saved_model_release(found.folder)
  if facts["step"] is None:
    facts["step"] = _step_in_path(found.path)
  keys = {name: bundle.spec(name) for name in bundle.names}
  return Description(path=found.path, keys=keys, checked=checked, **facts)


def _step_in_path(path: str) -> int | None:
  match = re.search(r"-(\d+)$", path)
  return int(match[1]) if match else None


def _of_names(bundle: Bundle, meta: _meta_graph.Summary) -> dict[str, Any]:
  """What the names of variables show."""
  tensors = {name: bundle.spec(name) for name in bundle.names}
  side = Inventory(tensors, lambda: evidence.find_evidence(bundle))
  if side.scales.unclear:
    side.gather_evidence()
  found = side.scales.known
  powers = [name for name in tensors if names.is_power(name, tensors[name])]
  conds = {names.get_cond_number(name) for name in powers} - {None}
  api: str | None = None
  if found:
    apis = {state.api for state in found}
    api = names.CONTRIB if apis == {names.CONTRIB} else names.COMPAT
  elif 0 in conds or 0 in map(names.get_cond_number, meta.apply_ops):
    api = names.CONTRIB  # A fixed scale: nobody else applied in that cond.
  flow = meta.control_flow
  if conds:
    flow = "v1"
  elif powers and found:
    flow = "v2"
  steps = [
    name
    for name, tensor in tensors.items()
    if names.split_scope(name)[1] == "global_step" and not tensor.shape
  ]
  return {
    "kind": kinds.SAVER,
    "api": api,
    "release": meta.release,
    "control_flow": flow,
    "inner_optimizer": names.guess_optimizers(tensors),
    "loss_scales": tuple(
      _state([bundle.scalar(name) for name in state.names], state.names)
      for state in found
    ),
    "step": int(bundle.scalar(steps[0])) if steps else None,
  }


def _state(values: Sequence[Any], found: tuple[str, ...]) -> LossScaleState:
  """A loss scale of its values: the scale, good steps and maybe bad ones."""
  scale, good, bad = (*values, None, None)[:3]
  return LossScaleState(float(scale), good, bad, found)


def _of_objects(bundle: Bundle, graph: ObjectGraph) -> dict[str, Any]:
  """What the graph of objects shows."""
  states, inner, flows, steps = [], set(), set(), []
  api = None
  for number, path in graph.paths().items():
    node = graph.nodes[number]
    if node.slots or "iter" in node.children or "_iterations" in node.children:
      inner.add(_optimizer(graph, node))
      count = _Reader(bundle, graph, path)
      steps += [count(node, "iter"), count(node, "_iterations")]
    if "beta1_power" in node.children:
      inner.add("Adam")
      power = graph.value(node.children["beta1_power"])
      flows.add("v1" if power and "cond" in power.full_name else "v2")
    generation = _generation(graph, node)
    if generation:
      layout, state = _scale_of(bundle, graph, node, path)
      api = names.CONTRIB if layout == names.CONTRIB else generation
      states += [state] if state else []
  global_step = _Reader(bundle, graph, "")(graph.nodes[0], "global_step")
  if global_step is None:
    global_step = max((s for s in steps if s is not None), default=None)
  dynamic = states and api == names.COMPAT and len(flows) == 1
  return {
    "kind": kinds.OBJECT,
    "api": api,
    "control_flow": flows.pop() if dynamic else None,
    "inner_optimizer": ", ".join(sorted(filter(None, inner))) or None,
    "loss_scales": tuple(states),
    "step": global_step,
  }


def _scale_of(
  bundle: Bundle, graph: ObjectGraph, node: Node, path: str
) -> tuple[str, LossScaleState | None]:
  """How an optimizer's loss scale is laid out, and its state."""
  if "dynamic_scale" in node.children:
    layout, wanted = "", ["dynamic_scale", "step_counter"]
  else:
    node = graph.nodes[node.children.get("loss_scale", 0)]
    path = f"{path}/loss_scale"
    contrib = "loss_scale" in node.children
    layout = names.CONTRIB if contrib else names.COMPAT
    wanted = list(names.SCALE_TENSORS[layout])
  read = _Reader(bundle, graph, path)
  values = [read(node, name) for name in wanted]
  return layout, None if values[0] is None else _state(values, read.names)


class _Reader:
  """Reads scalar variables of an object, and keeps the paths of those read."""

  def __init__(self, bundle: Bundle, graph: ObjectGraph, path: str) -> None:
    self._bundle, self._graph, self._path = bundle, graph, path
    self.names: tuple[str, ...] = ()

  def __call__(self, node: Node, name: str) -> Any:
    attribute = (
      self._graph.value(node.children[name]) if name in node.children else None
    )
    if attribute is None or attribute.key not in self._bundle:
      return None
    if self._bundle.spec(attribute.key).shape:
      return None
    self.names += (f"{self._path}/{name}".lstrip("/"),)
    return self._bundle.scalar(attribute.key)


def _generation(graph: ObjectGraph, node: Node) -> str | None:
  """Who wrote this object, if it is an optimizer with a loss scale."""
  if "dynamic_scale" in node.children and "inner_optimizer" in node.children:
    return kinds.KERAS_3
  if "base_optimizer" not in node.children and (
    "loss_scale" not in node.children
  ):
    return None
  if "_iterations" in node.children:
    return kinds.KERAS_211
  if "iter" in node.children:
    return kinds.KERAS_23
  if "base_optimizer" not in node.children:
    return None
  base = graph.nodes[node.children["base_optimizer"]]
  return kinds.KERAS_22 if "iter" in base.children else names.COMPAT


def _optimizer(graph: ObjectGraph, node: Node) -> str | None:
  """What an optimizer is, as far as its slots and hyperparameters show."""
  slots = frozenset(slot.name for slot in node.slots)
  keras = "iter" in node.children or "_iterations" in node.children
  if "_velocities" in node.children or "beta_1" in node.children:
    return "Adam"
  if keras and ("momentum" in node.children and "rho" not in node.children):
    return "SGD"
  if "_momentums" in node.children or (keras and "momentums" in node.children):
    return "SGD"
  if "rho" in node.children and "rms" in slots:
    return "RMSProp"
  found = _BY_SLOTS.get(slots)
  return "SGD" if keras and found == "Momentum" else found
