# SPDX-License-Identifier: Apache-2.0
"""Reads Keras's own files: HDF5, and zip files with HDF5 in them.

The model's config is parsed as JSON. Nothing in it is deserialized or run.
"""

from __future__ import annotations

import dataclasses
import io
import json
from typing import Any
import zipfile

from tf_compat_lossscale.checkpoint.files.entries import TensorSpec
from tf_compat_lossscale.checkpoint.files.errors import CheckpointError

_WEIGHTS = "model.weights.h5"
_LARGEST = 16 << 20  # Bytes of JSON; configs are far shorter.


@dataclasses.dataclass
class KerasFile:
  """The contents of a Keras file.

  Attributes:
    specs: Path of a dataset of numbers -> its dtype and shape.
    scalars: Path of a dataset -> its value, for scalars.
    groups: The paths of the HDF5 groups.
    version: The version of Keras that wrote the file, if the file has it.
    optimizer: The config of the optimizer, parsed from JSON; None if the file
      has none.
  """

  specs: dict[str, TensorSpec] = dataclasses.field(default_factory=dict)
  scalars: dict[str, Any] = dataclasses.field(default_factory=dict)
  groups: set[str] = dataclasses.field(default_factory=set)
  version: str | None = None
  optimizer: Any = None


def read(path: str, is_zip: bool) -> KerasFile:
  """Reads a Keras file.

  Args:
    path: The file.
    is_zip: Whether the file is a zip file ('.keras') and not HDF5.

  Returns:
    The contents.

  Raises:
    CheckpointError: The file is damaged, or h5py is not installed.
  """
  try:
    import h5py
  except ImportError:
    raise CheckpointError(
      f"{path}: reading it needs h5py: pip install h5py"
    ) from None
  try:
    if not is_zip:
      with h5py.File(path, "r") as file:
        return _read_h5(file)
    with zipfile.ZipFile(path) as archive:
      config = _read_json(archive, "config.json")
      metadata = _read_json(archive, "metadata.json")
      weights = archive.read(_WEIGHTS)
    with h5py.File(io.BytesIO(weights), "r") as file:
      found = _read_h5(file)
    found.version = metadata.get("keras_version") or found.version
    if found.optimizer is None:
      found.optimizer = (config.get("compile_config") or {}).get("optimizer")
    return found
  except (
    *(AttributeError, EOFError, KeyError, NotImplementedError, OSError),
    *(RuntimeError, TypeError, ValueError, zipfile.BadZipFile),
    *(MemoryError, OverflowError, RecursionError, SystemError),
  ) as error:  # h5py and zipfile raise all of these for damaged files.
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    raise CheckpointError(f"{path}: it is damaged: {reason}") from None


def _read_json(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
  """Reads a JSON object of a zip file."""
  if archive.getinfo(name).file_size > _LARGEST:
    raise ValueError(f"{name} is longer than {_LARGEST} bytes")
  value = json.loads(archive.read(name))
  if not isinstance(value, dict):
    raise ValueError(f"{name} is no JSON object")
  return value


def _read_h5(file: Any) -> KerasFile:
  """Reads an open HDF5 file."""
  found = KerasFile()

  def visit(name: str, item: Any) -> None:
    if not hasattr(item, "shape"):
      found.groups.add(name)
    elif item.dtype.kind in "biufc":
      shape = tuple(int(size) for size in item.shape or ())
      found.specs[name] = TensorSpec(str(item.dtype), shape)
      if item.shape == ():
        found.scalars[name] = item[()].item()

  file.visititems(visit)
  found.version = _decode_text(file.attrs.get("keras_version")) or _decode_text(
    file.get("model_weights", file).attrs.get("keras_version")
  )
  training = _decode_text(file.attrs.get("training_config"))
  if training:
    found.optimizer = json.loads(training).get("optimizer_config")
  return found


def _decode_text(value: Any) -> str | None:
  """Returns an attribute of HDF5 as text; None if it is no text."""
  if isinstance(value, bytes):
    return value.decode("utf-8")
  return value if isinstance(value, str) else None
