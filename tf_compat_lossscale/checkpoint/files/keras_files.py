"""What Keras's own files hold: HDF5, and zip files with HDF5 in them.

Of a model's config only the optimizer's part is looked at, as JSON; nothing
is made of it, let alone run.
"""

from __future__ import annotations

import io
import json
from typing import Any
import zipfile

from tf_compat_lossscale.checkpoint import description as kinds
from tf_compat_lossscale.checkpoint.description import Description
from tf_compat_lossscale.checkpoint.description import LossScaleState
from tf_compat_lossscale.checkpoint.files.bundle import Tensor
from tf_compat_lossscale.checkpoint.files.errors import CheckpointError

_WEIGHTS = "model.weights.h5"
_LARGEST = 16 << 20  # Bytes of JSON; no config is as long.


def describe(path: str, kind: str) -> Description:
  """Describes a Keras file.

  Args:
    path: The file.
    kind: KERAS_H5 or KERAS_ZIP.

  Returns:
    What it is.

  Raises:
    CheckpointError: It is damaged.
  """
  try:
    import h5py
  except ImportError:
    raise CheckpointError(
      f"{path}: reading it needs h5py: pip install h5py"
    ) from None
  try:
    if kind == kinds.KERAS_H5:
      with h5py.File(path, "r") as file:
        return _of_h5(path, kind, file, {})
    with zipfile.ZipFile(path) as archive:
      config = _json(archive, "config.json")
      config["metadata"] = _json(archive, "metadata.json")
      weights = archive.read(_WEIGHTS)
    with h5py.File(io.BytesIO(weights), "r") as file:
      return _of_h5(path, kind, file, config)
  except CheckpointError:
    raise
  except (
    *(AttributeError, EOFError, KeyError, NotImplementedError, OSError),
    *(RuntimeError, TypeError, ValueError, zipfile.BadZipFile),
    *(MemoryError, OverflowError, RecursionError, SystemError),
  ) as error:  # What h5py and zipfile have for files that are damaged.
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    raise CheckpointError(f"{path}: it is damaged: {reason}") from None


def _json(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
  if archive.getinfo(name).file_size > _LARGEST:
    raise ValueError(f"{name} is too long")
  value = json.loads(archive.read(name))
  if not isinstance(value, dict):
    raise ValueError(f"{name} is no JSON object")
  return value


def _of_h5(
  path: str, kind: str, file: Any, config: dict[str, Any]
) -> Description:
  keys: dict[str, Tensor] = {}

  def note(name: str, item: Any) -> None:
    if hasattr(item, "shape"):
      shape = tuple(int(size) for size in item.shape or ())
      if item.dtype.kind not in "biufc":
        return
      keys[name] = Tensor(str(item.dtype), shape)

  file.visititems(note)
  version = config.get("metadata", {}).get("keras_version")
  version = version or _text(file.attrs.get("keras_version"))
  version = version or _text(
    file.get("model_weights", file).attrs.get("keras_version")
  )
  training = _text(file.attrs.get("training_config"))
  optimizer: Any = None
  if training:
    optimizer = json.loads(training).get("optimizer_config")
  elif config:
    optimizer = (config.get("compile_config") or {}).get("optimizer")
  named = _optimizer(optimizer)
  of_keras_3 = _scale_of_keras_3(file, keys)
  state = of_keras_3 or _initial(optimizer)
  return Description(
    path=path,
    kind=kind,
    api=kinds.KERAS_3 if of_keras_3 else _generation(version, optimizer),
    step=_step(file, keys),
    release=f"Keras {version}" if version else None,
    loss_scales=(state,) if state else (),
    inner_optimizer=named,
    keys=dict(sorted(keys.items())),
    checked=kind == kinds.KERAS_ZIP,  # Zip files have checksums, and were read.
  )


def _text(value: Any) -> str | None:
  if isinstance(value, bytes):
    return value.decode("utf-8")
  return value if isinstance(value, str) else None


def _inner(optimizer: Any) -> Any:
  """The config of the optimizer that a loss scale optimizer wraps."""
  if not isinstance(optimizer, dict):
    return None
  config = optimizer.get("config")
  config = config if isinstance(config, dict) else {}
  inner = config.get("inner_optimizer") or config.get("optimizer")
  return inner if isinstance(inner, dict) else optimizer


def _optimizer(optimizer: Any) -> str | None:
  inner = _inner(optimizer)
  name = inner.get("class_name") if inner else None
  return name.rpartition(">")[2] if isinstance(name, str) else None


def _initial(optimizer: Any) -> LossScaleState | None:
  """Where a loss scale starts from, by the config of its optimizer."""
  if not isinstance(optimizer, dict) or _inner(optimizer) is optimizer:
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


def _generation(version: str | None, optimizer: Any) -> str | None:
  if not version:
    return None
  if version.endswith("-tf"):  # Keras in TensorFlow 1.x to 2.2: 2.2.4-tf, …
    numbers = version[:-3].split(".")
    return kinds.KERAS_22 if int(numbers[1]) < 4 else kinds.KERAS_23
  if int(version.split(".")[0]) >= 3:
    return kinds.KERAS_3
  name = str(optimizer.get("class_name")) if optimizer else ""
  inner = _inner(optimizer) or {}
  config = inner.get("config")
  newer = isinstance(config, dict) and "jit_compile" in config
  return kinds.KERAS_211 if newer or name.endswith("V3") else kinds.KERAS_23


def _scale_of_keras_3(
  file: Any, keys: dict[str, Tensor]
) -> LossScaleState | None:
  """The loss scale that Keras 3 has among its optimizer's variables."""
  pairs = [
    (name, name[: -len("dynamic_scale")] + "step_counter")
    for name in keys
    if name.endswith("/dynamic_scale")
  ]
  # By number: iterations, learning rate, counter, scale.
  first = ("optimizer/vars/0", "optimizer/vars/1")
  scale, counter = "optimizer/vars/3", "optimizer/vars/2"
  if "inner_optimizer" in file.get("optimizer", {}) and all(
    keys.get(name) == Tensor(dtype, ())
    for name, dtype in zip(
      (*first, counter, scale), ("int64", "float32", "int64", "float32")
    )
  ):
    pairs.append((scale, counter))
  for scale, counter in pairs:
    good = int(file[counter][()]) if counter in keys else None
    return LossScaleState(float(file[scale][()]), good, names=(scale, counter))
  return None


def _step(file: Any, keys: dict[str, Tensor]) -> int | None:
  """The optimizer's iterations."""
  steps = [
    int(file[name][()])
    for name, tensor in keys.items()
    if tensor == Tensor("int64", ())
    and (
      name.endswith(("/iter:0", "/iteration:0", "/iteration"))
      or name in ("optimizer/vars/0", "optimizer/inner_optimizer/vars/0")
    )
  ]
  return max(steps, default=None)
