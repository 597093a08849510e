# SPDX-License-Identifier: Apache-2.0
"""Reads Keras's own files: HDF5, and zip files with HDF5 in them.

The model's config is parsed as JSON. Nothing in it is deserialized or run.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from typing import Any
from typing import IO
import zipfile

from tf_compat_lossscale.checkpoint.files import file_kinds
from tf_compat_lossscale.checkpoint.files import opening
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.files.checkpoint_error import name_damage
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec

_WEIGHTS = "model.weights.h5"
# Bytes of JSON; configs are far shorter.
_SMALL, _LARGEST = 1 << 20, 16 << 20
# Keras does not compress its files. If others did, the weights must not have
# more bytes than this, or than so many times the bytes of the file.
_LARGEST_UNPACKED = 64 << 20
_LARGEST_RATIO = 16
_CHUNK = 1 << 20


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
  with name_damage(path), opening.make_local(path) as local:
    if not is_zip:
      with h5py.File(local, "r") as file:
        return _read_h5(file)
    with zipfile.ZipFile(local) as archive:
      _check_names(path, archive.namelist())
      config = _read_json(archive, "config.json")
      metadata = _read_json(archive, "metadata.json")
      with tempfile.TemporaryFile() as weights:
        _unpack_weights(archive, weights)
        with h5py.File(weights, "r") as file:
          found = _read_h5(file)
    found.version = metadata.get("keras_version") or found.version
    if found.optimizer is None:
      found.optimizer = (config.get("compile_config") or {}).get("optimizer")
    return found


def _check_names(path: str, names: list[str]) -> None:
  """Checks that a zip file is one of Keras.

  Raises:
    CheckpointError: The zip file is another program's.
  """
  needed = {"config.json", "metadata.json", _WEIGHTS}
  if needed.isdisjoint(names):
    raise CheckpointError(
      f"{path}: neither a checkpoint of TensorFlow nor a Keras file, but "
      f"{file_kinds.name_zip(names)}"
    )
  missing = sorted(needed.difference(names))
  if missing:
    raise CheckpointError(f"{path}: it is damaged: it has no {missing[0]}")


def _unpack_weights(archive: zipfile.ZipFile, file: IO[bytes]) -> None:
  """Copies the weights into a file, and compares their checksum.

  They are an HDF5 file. HDF5 seeks, which is slow in a zip file.

  Raises:
    ValueError: The unpacked weights are far larger than the file.
  """
  info = archive.getinfo(_WEIGHTS)
  assert archive.filename
  size = os.path.getsize(archive.filename)
  if info.file_size > max(_LARGEST_UNPACKED, _LARGEST_RATIO * size):
    raise ValueError(
      f"{_WEIGHTS} in it would have {info.file_size} bytes, but the file has "
      f"{size}; if that is right, unpack it and pack it again without "
      "compression"
    )
  with archive.open(info) as member:
    shutil.copyfileobj(member, file, _CHUNK)


def _read_json(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
  """Reads a JSON object of a zip file."""
  assert archive.filename
  size = _LARGEST_RATIO * os.path.getsize(archive.filename)
  most = min(_LARGEST, max(_SMALL, size))
  if archive.getinfo(name).file_size > most:
    raise ValueError(f"{name} is longer than {most} bytes")
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
