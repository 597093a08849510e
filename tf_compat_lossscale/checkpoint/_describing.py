# SPDX-License-Identifier: Apache-2.0
"""Describes checkpoints: their format, their API and their loss scales."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import math
import os
import re
import shlex
from typing import Any

from tf_compat_lossscale._core import object_graph
from tf_compat_lossscale._core.object_graph import ObjectGraph
from tf_compat_lossscale._core.slot_names import ALIKE
from tf_compat_lossscale._core.slot_names import find_kind_of_roles
from tf_compat_lossscale._core.slot_names import ROLES
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint import reading
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import TensorSpec

_KERAS_2 = (
  object_graph.KERAS_22,
  object_graph.KERAS_23,
  object_graph.KERAS_211,
)
SAVER, OBJECT, SAVED_MODEL = "saver", "object", "saved_model"
# What slots are called by name -> the optimizer.
_OPTIMIZERS = {
  **{name: name for name in (*ROLES, *ALIKE)},
  "LazyAdam": "LazyAdam",
  "adam_m": "BERT's AdamWeightDecay",
  "lamb_m": "LAMB",
}
# The variables of loss scales in object graphs: the scale first, then counts.
_MEMBERS = tuple(dict.fromkeys((*names.MEANINGS, *names.COUNTS)))
_SMALL = 64 << 20  # Bytes up to which every tensor is read.
# The ops of conds, in TensorFlow 1's control flow and in TensorFlow 2's.
_V1, _V2 = {"Switch", "RefSwitch"}, {"If", "StatelessIf"}


@dataclasses.dataclass(frozen=True)
class LossScaleState:
  """A loss scale in a checkpoint.

  Attributes:
    value: The loss scale.
    good_steps: The number of finite steps since the loss scale last changed, or
      None.
    bad_steps: The number of steps that were not finite since the loss scale's
      hysteresis was filled, which tf.contrib and `policies.GrowthBackoff`
      count; None for others.
    names: The names of the variables: those of a Saver, or paths of objects.
    skipped_steps: The number of all steps that were not finite, which only the
      loss scales of `policies` count; None for others.
  """

  value: float
  good_steps: int | None = None
  bad_steps: int | None = None
  names: tuple[str, ...] = ()
  skipped_steps: int | None = None


@dataclasses.dataclass(frozen=True)
class Description:
  """The result of `describe`.

  Attributes:
    path: The checkpoint's prefix.
    kind: 'saver' (variables by name), 'object' (`tf.train.Checkpoint`) or
      'saved_model'.
    api: The API of the loss scale and the optimizer: 'contrib', 'compat.v1',
      "NVIDIA's TensorFlow 1" (an optimizer with a loss scale by environment
      variables; by name its checkpoints are those of 'compat.v1'),
      'Keras <=2.2' (that is, TensorFlow 1.14 to 2.2), 'Keras 2.3+' (and
      `optimizers.legacy`), 'Keras 2.11+' (its newer optimizers), 'Keras 3';
      'compat.v1, contrib' if it has loss scales of both; or None if the
      checkpoint does not show it.
    step: The global step, or the optimizer's iterations; None if unknown.
    release: The TensorFlow that wrote the checkpoint, if a SavedModel or a
      MetaGraph beside the checkpoint has the release.
    control_flow: 'v1' or 'v2', if the MetaGraph beside the checkpoint has conds
      of one kind. Names prove nothing: a program may have scopes called `cond`.
    loss_scales: The dynamic loss scales. A fixed loss scale has no state.
    inner_optimizer: The optimizers that have such slots, separated by commas;
      None if the names of slots do not show them.
    notes: What the names suggest and do not show, and how the checkpoint was
      chosen if the path left a choice, in sentences.
    keys: Name -> dtype and shape of every tensor.
    checked: Whether every tensor was read and compared with its checksum. The
      values in this description were compared in any case.
  """

  path: str
  kind: str
  api: str | None = None
  step: int | None = None
  release: str | None = None
  control_flow: str | None = None
  loss_scales: tuple[LossScaleState, ...] = ()
  inner_optimizer: str | None = None
  notes: tuple[str, ...] = ()
  keys: dict[str, TensorSpec] = dataclasses.field(default_factory=dict)
  checked: bool = False

  @property
  def advice(self) -> str:
    """The way to use the checkpoint today: a sentence with what to type."""
    has_run_away = any(
      not (math.isfinite(s.value) and s.value >= 1) for s in self.loss_scales
    )
    # What is pasted into a program runs in that program's folder.
    path = self.path if "://" in self.path else os.path.abspath(self.path)
    if self.kind == SAVED_MODEL:
      folder = os.path.dirname(os.path.dirname(path))
      advice = (
        "Load it: import tf_compat_lossscale as tfl; model = "
        f"tfl.keras.load_model({folder!r})"
        if self.api in _KERAS_2
        else "Load it: import tensorflow as tf; model = tf.saved_model.load("
        f"{folder!r})"
      )
    elif has_run_away:
      conds = any(map(names.has_cond, self.keys))
      is_v1 = self.control_flow == "v1" or (not self.control_flow and conds)
      to = "saver" if is_v1 and self.kind == SAVER else "saver-v2"
      to = names.CONTRIB if self.api == names.CONTRIB else to
      paths = map(shlex.quote, (self.path, self.path + "-repaired"))
      advice = (
        "Repair it, and restore by name: tf-lossscale convert "
        f"{' '.join(paths)} --to={to} --reset"
      )
    elif self.kind == SAVER:
      advice = (
        "Restore it, also under other names or without a loss scale: import "
        "tf_compat_lossscale as tfl; tfl.checkpoint.Saver().restore(session, "
        f"{path!r})"
      )
    else:
      found = sorted({key.partition("/")[0] for key in self.keys})
      found = [name for name in found if name != "save_counter"]
      objects = ", ".join(f"{name!r}: {name}" for name in found)
      are_few = len(found) < 9 and all(map(str.isidentifier, found))
      advice = (
        "Restore it into such objects, in TensorFlow 1's style with the "
        "session instead of None: import tf_compat_lossscale as tfl; "
        f"tfl.checkpoint.restore(None, {path!r}, "
        f"{f'{{{objects}}}' if are_few else 'objects'})"
      )
    return "Its loss scale has run away. " * has_run_away + advice


def describe(path: str | os.PathLike[str], verify: bool = False) -> Description:
  """Describes a checkpoint: its format, its API and its loss scales.

  Nothing in the file is executed.

  Args:
    path: A checkpoint's prefix, its '.index', a folder or its file 'checkpoint'
      (the latest checkpoint) or a SavedModel, also on TensorFlow's other file
      systems, such as gs://bucket/model.ckpt-1000.
    verify: Whether to read all tensors, whatever their size, so that each is
      compared with its checksum. Up to 64 MiB, they are always read.

  Returns:
    The description.

  Raises:
    CheckpointError: The checkpoint is missing or damaged, or the file is of
      another kind.
  """
  return reading.read_consistently(path, lambda each: _describe(each, verify))


def _describe(checkpoint: Checkpoint, verify: bool) -> Description:
  size = sum(spec.size for spec in checkpoint.specs.values())
  checked = verify or size <= _SMALL
  partial: list[str] = []
  for name, spec in checkpoint.specs.items() if checked else ():
    try:
      if spec.dtype != "variant":  # The state of a dataset's iterator.
        checkpoint.read(name)
    except reading.PartialError:
      partial.append(name)
  if partial:
    checkpoint.notes += (
      f"{len(partial)} tensors have one slice each, of a partitioned variable: "
      f"{', '.join(reading.shorten(partial, 5))}; their checksums are not "
      "compared, and restore reads them into a program with the same parts",
    )
  meta = checkpoint.meta_graph
  facts = (
    _describe_names(checkpoint)
    if checkpoint.object_graph is None
    else _describe_objects(checkpoint)
  )
  if checkpoint.saved_model is not None:
    facts["kind"] = SAVED_MODEL
  release = meta.meta_info_def.tensorflow_version if meta else ""
  if facts["step"] is None:
    match = re.search(r"-([0-9]+)\Z", checkpoint.prefix)
    facts["step"] = int(match[1]) if match else None
  return Description(
    path=checkpoint.prefix,
    release=f"TensorFlow {release}" if release else None,
    control_flow=_find_control_flow(meta) if meta else None,
    keys=checkpoint.specs,
    checked=checked,
    notes=(*checkpoint.notes, *facts.pop("notes", ())),
    **facts,
  )


def _find_control_flow(meta: Any) -> str | None:
  """Returns 'v1' or 'v2', if a MetaGraph has conds of one kind."""
  ops = {node.op for node in meta.graph_def.node}
  is_v1, is_v2 = not ops.isdisjoint(_V1), not ops.isdisjoint(_V2)
  return ("v1" if is_v1 else "v2") if is_v1 != is_v2 else None


def _describe_names(checkpoint: Checkpoint) -> dict[str, Any]:
  """Returns what names show: attributes of the description."""
  specs = checkpoint.specs
  scales = names.find_scales(specs)
  found = [
    [name for name in scale.all if name in specs]
    for scale in (*scales.known, *scales.likely)
  ]
  steps = [
    name
    for name, spec in specs.items()
    if names.is_global_step(name)
    and not spec.shape
    and spec.dtype in names.INTEGERS
  ]
  bases = {names.get_base(slot) for slot, _ in names.find_slots(specs)}
  optimizers = {_OPTIMIZERS[base] for base in bases & _OPTIMIZERS.keys()}
  return {
    "kind": SAVER,
    "api": ", ".join(sorted({scale.api for scale in scales.known})) or None,
    "inner_optimizer": ", ".join(sorted(optimizers)) or None,
    "loss_scales": tuple(
      _make_state({name: checkpoint.read_scalar(name) for name in each})
      for each in found
    ),
    "notes": tuple(_note_likenesses(checkpoint, scales)),
    "step": int(checkpoint.read_scalar(steps[0])) if steps else None,
  }


def _note_likenesses(
  checkpoint: Checkpoint, scales: names.FoundScales
) -> Iterator[str]:
  """Yields a sentence for what is called like a loss scale, and may be none."""
  specs = checkpoint.specs
  for scale in scales.incomplete:
    missing = ", ".join(n for n in scale.names if n not in specs)
    name = scale.names[0]
    value = checkpoint.read_scalar(name)
    kind = "has the name of" if scale in scales.likely else "may be"
    yield (
      f"{name} ({value:.9g}) {kind} a loss scale's variable, but {missing} "
      "is missing: it may as well be the program's own"
    )
  loose = sorted(scales.unclear | scales.counters)
  if loose:
    yield (
      f"{', '.join(loose)}: named like a loss scale's variables, but no whole "
      "loss scale has these names: all or some are the program's own"
    )


def _make_state(values: Mapping[str, Any]) -> LossScaleState:
  """Returns the state of a loss scale, whose own value comes first."""
  bases = map(names.get_base, values)
  found = dict(zip((names.get_meaning(b) for b in bases), values.values()))
  return LossScaleState(
    float(next(iter(values.values()))),
    found.get("good"),
    found.get("bad"),
    tuple(values),
    skipped_steps=found.get(names.SKIPPED),
  )


def _describe_objects(checkpoint: Checkpoint) -> dict[str, Any]:
  """Returns what the object graph shows, as `_describe_names` does."""
  graph = checkpoint.objects
  slots = [{s.slot_name for s in node.slot_variables} for node in graph.nodes]
  states, inner = [], set()
  steps: list[int | None] = []
  api = None
  for number, path in graph.find_paths().items():
    children = graph.children[number]
    if graph.is_optimizer(number):
      kind = find_kind_of_roles(slots[number] - {"vhat"})
      is_sgd = kind == "Momentum" and "iter" in children
      inner.add("SGD" if is_sgd else kind)
      steps += [
        _read_child(checkpoint, graph, children, n)
        for n in object_graph.COUNTERS
      ]
    generation = graph.find_api(number)
    if generation:
      if object_graph.LOSS_SCALE in children:
        children = graph.children[children[object_graph.LOSS_SCALE]]
        path = f"{path}/{object_graph.LOSS_SCALE}".lstrip("/")
      values = {
        name: value
        for name in _MEMBERS
        if (value := _read_child(checkpoint, graph, children, name)) is not None
      }
      api = names.CONTRIB if object_graph.LOSS_SCALE in values else generation
      if "value" in map(names.get_meaning, values):
        states.append(
          _make_state({f"{path}/{n}".lstrip("/"): values[n] for n in values})
        )
  step = _read_child(checkpoint, graph, graph.children[0], "global_step")
  if step is None:
    step = max((s for s in steps if s is not None), default=None)
  return {
    "kind": OBJECT,
    "api": api,
    "inner_optimizer": ", ".join(sorted(filter(None, inner))) or None,
    "loss_scales": tuple(states),
    "step": step,
  }


def _read_child(
  checkpoint: Checkpoint,
  graph: ObjectGraph,
  children: Mapping[str, int],
  name: str,
) -> Any:
  """Returns the value of an object's scalar variable; None if there is none."""
  key = graph.get_key(children.get(name))
  if key is None or checkpoint.specs[key].shape:
    return None
  return checkpoint.read_scalar(key)
