# SPDX-License-Identifier: Apache-2.0
"""Describes Keras's own files."""

from __future__ import annotations

from typing import Any

from tf_compat_lossscale.checkpoint import description as kinds
from tf_compat_lossscale.checkpoint.description import Description
from tf_compat_lossscale.checkpoint.description import LossScaleState
from tf_compat_lossscale.checkpoint.files import keras_files as _keras_files
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec

_INT64, _FLOAT32 = TensorSpec("int64", ()), TensorSpec("float32", ())
# Keras 3 numbers the variables of its LossScaleOptimizer.
_NUMBERED = {
  "optimizer/vars/0": _INT64,  # Iterations.
  "optimizer/vars/1": _FLOAT32,  # Learning rate.
  "optimizer/vars/2": _INT64,  # Finite steps since the scale last changed.
  "optimizer/vars/3": _FLOAT32,  # Loss scale.
}


def describe(path: str, kind: str) -> Description:
  """Describes a Keras file.

  Args:
    path: The file.
    kind: KERAS_H5 or KERAS_ZIP.

  Returns:
    The description.

  Raises:
    CheckpointError: The file is damaged.
  """
  file = _keras_files.read(path, is_zip=kind == kinds.KERAS_ZIP)
  try:
    return _describe(path, kind, file)
  except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
    raise CheckpointError(
      f"{path}: it is damaged: its optimizer's config or the version of Keras "
      f"is malformed ({error})"
    ) from None


def _describe(
  path: str, kind: str, file: _keras_files.KerasFile
) -> Description:
  scale_of_keras_3 = _find_scale_of_keras_3(file)
  state = scale_of_keras_3 or _find_initial_scale(file.optimizer)
  return Description(
    path=path,
    kind=kind,
    api=(
      kinds.KERAS_3
      if scale_of_keras_3
      else _find_generation(file.version, file.optimizer)
    ),
    step=_find_step(file),
    release=f"Keras {file.version}" if file.version else None,
    loss_scales=(state,) if state else (),
    inner_optimizer=_find_optimizer_name(file.optimizer),
    keys=dict(sorted(file.specs.items())),
    checked=kind == kinds.KERAS_ZIP,  # Reading a zip file compares checksums.
  )


def _find_inner(optimizer: Any) -> Any:
  """Returns the config of the optimizer that a LossScaleOptimizer wraps.

  Args:
    optimizer: The config of the outermost optimizer.

  Returns:
    The wrapped config; `optimizer` if it wraps none; None if it is no config.
  """
  if not isinstance(optimizer, dict):
    return None
  config = optimizer.get("config")
  config = config if isinstance(config, dict) else {}
  inner = config.get("inner_optimizer") or config.get("optimizer")
  return inner if isinstance(inner, dict) else optimizer


def _find_optimizer_name(optimizer: Any) -> str | None:
  """Returns the class of the innermost optimizer."""
  inner = _find_inner(optimizer)
  name = inner.get("class_name") if inner else None
  return name.rpartition(">")[2] if isinstance(name, str) else None


def _find_initial_scale(optimizer: Any) -> LossScaleState | None:
  """Returns the initial loss scale in an optimizer's config."""
  if not isinstance(optimizer, dict) or _find_inner(optimizer) is optimizer:
    return None
  config = optimizer["config"]
  scale = config.get("loss_scale")
  if isinstance(scale, dict):
    if scale.get("class_name") != "DynamicLossScale":
      return None
    scale = scale.get("config", {}).get("initial_loss_scale")
  elif config.get("dynamic", True):
    scale = config.get("initial_scale")
  if isinstance(scale, (int, float)) and not isinstance(scale, bool):
    return LossScaleState(None, initial=float(scale))
  return None


def _find_generation(version: str | None, optimizer: Any) -> str | None:
  """Returns the generation of Keras that wrote a file."""
  if not version:
    return None
  if version.endswith("-tf"):  # TensorFlow 1.x to 2.4 have 2.2.4-tf, 2.4.0-tf.
    numbers = version[:-3].split(".")
    return kinds.KERAS_22 if int(numbers[1]) < 4 else kinds.KERAS_23
  if int(version.split(".")[0]) >= 3:
    return kinds.KERAS_3
  name = str(optimizer.get("class_name")) if optimizer else ""
  inner = _find_inner(optimizer) or {}
  config = inner.get("config")
  newer = isinstance(config, dict) and "jit_compile" in config
  return kinds.KERAS_211 if newer or name.endswith("V3") else kinds.KERAS_23


def _find_scale_of_keras_3(
  file: _keras_files.KerasFile,
) -> LossScaleState | None:
  """Returns the loss scale that Keras 3 has among an optimizer's variables."""
  pairs = [
    (name, name.removesuffix("dynamic_scale") + "step_counter")
    for name in file.scalars
    if name.endswith("/dynamic_scale")
  ]
  *_, counter, scale = _NUMBERED
  if "optimizer/inner_optimizer" in file.groups and all(
    file.specs.get(name) == spec for name, spec in _NUMBERED.items()
  ):
    pairs.append((scale, counter))
  for scale, counter in pairs:
    good = file.scalars.get(counter)
    return LossScaleState(
      float(file.scalars[scale]),
      None if good is None else int(good),
      names=(scale, counter),
    )
  return None


def _find_step(file: _keras_files.KerasFile) -> int | None:
  """Returns the optimizer's iterations."""
  steps = [
    int(value)
    for name, value in file.scalars.items()
    if file.specs[name] == _INT64
    and (
      name.endswith(("/iter:0", "/iteration:0", "/iteration"))
      or name in ("optimizer/vars/0", "optimizer/inner_optimizer/vars/0")
    )
  ]
  return max(steps, default=None)
