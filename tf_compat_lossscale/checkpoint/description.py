# SPDX-License-Identifier: Apache-2.0
"""The description of a checkpoint: its format, its API and its loss scales."""

from __future__ import annotations

import dataclasses
import math

from tf_compat_lossscale.checkpoint.files.entries import TensorSpec

SAVER, OBJECT, SAVED_MODEL = "saver", "object", "saved_model"
KERAS_H5, KERAS_ZIP = "keras_h5", "keras"
NPZ, SAFETENSORS = "npz", "safetensors"
KERAS_22, KERAS_23 = "Keras <=2.2", "Keras 2.3+"
KERAS_211, KERAS_3 = "Keras 2.11+", "Keras 3"
ENVIRONMENT = "NVIDIA's TensorFlow 1"  # By its environment variables.


@dataclasses.dataclass(frozen=True)
class LossScaleState:
  """A loss scale in a checkpoint.

  The last five attributes are of other systems' loss scales.

  Attributes:
    value: The loss scale; None if the file has the initial value only.
    good_steps: The number of finite steps since the loss scale last changed, or
      None.
    bad_steps: The number of steps that were not finite since the loss scale's
      hysteresis was filled, which tf.contrib and `policies.GrowthBackoff`
      count; None for others.
    names: The names of the variables: those of a Saver, or paths of objects.
    initial: The initial loss scale, if the file has it.
    skipped_steps: The number of all steps that were not finite, which only
      `policies.GrowthBackoff` counts; None for others.
    system: The system whose loss scale it is, such as 'OpenSeq2Seq (Backoff)';
      None for those of TensorFlow.
    counters: Name -> value of the system's own counters.
    rule: The arguments with which `DynamicLossScale` goes on, as far as they
      are known: 'increment_period' and 'multiplier'.
    policy: The loss scale of `policies` that has the rule, as Python code; None
      if there is none, or the constants are not known.
    notes: What `DynamicLossScale` cannot express, and what is not known, in
      sentences.
  """

  value: float | None
  good_steps: int | None = None
  bad_steps: int | None = None
  names: tuple[str, ...] = ()
  initial: float | None = None
  skipped_steps: int | None = None
  system: str | None = None
  counters: dict[str, int | float] = dataclasses.field(default_factory=dict)
  rule: dict[str, float] = dataclasses.field(default_factory=dict)
  policy: str | None = None
  notes: tuple[str, ...] = ()


def is_usable(value: float | None) -> bool:
  """Returns whether training can go on with a loss scale; None is unknown."""
  return value is None or (math.isfinite(value) and value >= 1)


@dataclasses.dataclass(frozen=True)
class Description:
  """The result of `describe`.

  Attributes:
    path: The checkpoint's prefix, or the file.
    kind: 'saver' (variables by name), 'object' (`tf.train.Checkpoint`),
      'saved_model', 'keras_h5', 'keras' (Keras's zip files), or 'npz' and
      'safetensors' (arrays by name, in which no loss scale is looked for).
    api: The API of the loss scale and the optimizer: 'contrib', 'compat.v1',
      "NVIDIA's TensorFlow 1" (an optimizer with a loss scale by environment
      variables; by name its checkpoints are those of 'compat.v1'),
      'Keras <=2.2' (that is, TensorFlow 1.14 to 2.2), 'Keras 2.3+' (and
      `optimizers.legacy`), 'Keras 2.11+' (its newer optimizers), 'Keras 3';
      'compat.v1, contrib' if it has loss scales of both; another system, such
      as 'OpenSeq2Seq'; or None if the checkpoint does not show it.
    step: The global step, or the optimizer's iterations; None if unknown.
    release: The TensorFlow or Keras that wrote the checkpoint, if the file or a
      MetaGraph beside it has the release.
    control_flow: 'v1' or 'v2', if the MetaGraph beside the checkpoint has conds
      of one kind. Names prove nothing: a program may have scopes called `cond`.
    loss_scales: The dynamic loss scales. A fixed loss scale has no state.
    inner_optimizer: The wrapped optimizers, separated by commas; None if the
      checkpoint does not show them. SGD has no state.
    masters: float16 weight -> its float32 master, in other systems' layouts.
    notes: What the names suggest and nothing proves, and loss scales that
      nothing depends on, in sentences.
    keys: Name -> dtype and shape of every tensor.
    is_first_format: Whether the file is of TensorFlow's first format (V1), that
      of the Savers before TensorFlow 0.12, and of later ones if asked for it.
    checked: Whether every byte was compared with its checksum. The values in
      this description were compared in any case.
  """

  path: str
  kind: str
  api: str | None = None
  step: int | None = None
  release: str | None = None
  control_flow: str | None = None
  loss_scales: tuple[LossScaleState, ...] = ()
  inner_optimizer: str | None = None
  masters: dict[str, str] = dataclasses.field(default_factory=dict)
  notes: tuple[str, ...] = ()
  keys: dict[str, TensorSpec] = dataclasses.field(default_factory=dict)
  checked: bool = False
  is_first_format: bool = False

  @property
  def advice(self) -> str:
    """The way to use the checkpoint today, in a sentence."""
    if any(not is_usable(state.value) for state in self.loss_scales):
      return (
        "Its loss scale has run away: repair it with tf-lossscale convert "
        "--reset or --set-loss-scale before you restore it."
      )
    scaled = "" if self.loss_scales else " (it has no dynamic loss scale)"
    if self.kind == SAVER:
      return (
        "Restore it with tf_compat_lossscale.checkpoint.Saver (or restore()), "
        f"which bridges names and a missing loss scale{scaled}."
      )
    if self.kind == KERAS_H5 or self.kind == KERAS_ZIP:
      if self.api == KERAS_3:
        return "Load it with keras.saving.load_model of Keras 3."
      return (
        "Load it with tf_compat_lossscale.keras.load_model; the file has no "
        "loss scale but the initial one."
      )
    if self.kind in (NPZ, SAFETENSORS):
      reader = "numpy.load" if self.kind == NPZ else "safetensors.numpy"
      if "bfloat16" in {spec.dtype for spec in self.keys.values()}:
        reader += " after import ml_dtypes"
      return (
        f"Load it with {reader}, and assign its arrays to the variables of "
        "their names."
      )
    if self.kind == SAVED_MODEL:
      return (
        "Load it with tf_compat_lossscale.keras.load_model, which brings the "
        "loss scale back."
        if self.api in (KERAS_22, KERAS_23, KERAS_211)
        else "Load it with tf.saved_model.load."
      )
    if self.api in (KERAS_22, KERAS_23):
      return (
        "Restore it with tf.train.Checkpoint into "
        "tf_compat_lossscale.keras.LossScaleOptimizer around an optimizer of "
        "tf.keras.optimizers.legacy (Keras 2)."
      )
    if self.api in (KERAS_211, KERAS_3):
      return (
        "Restore it with tf.train.Checkpoint into an optimizer of the same "
        f"generation ({self.api})."
      )
    return (
      "Restore it with tf_compat_lossscale.checkpoint.restore(session, path, "
      f"objects), objects called as in the file{scaled}."
    )
