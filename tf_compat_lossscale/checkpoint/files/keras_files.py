# SPDX-License-Identifier: Apache-2.0
"""Reads Keras's own files: HDF5, and zip files with HDF5 in them.

The model's config is parsed as JSON. Nothing in it is deserialized or run.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import dataclasses
import io
import json
import os
import struct
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
_LOCAL_HEADER = 30  # Bytes before a file's name in a zip file.


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
      with _open_weights(archive) as weights, h5py.File(weights, "r") as file:
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


@contextlib.contextmanager
def _open_weights(archive: zipfile.ZipFile) -> Iterator[IO[bytes]]:
  """Opens the weights, an HDF5 file, once their checksum is compared.

  HDF5 seeks, which is slow in a compressed file. So such weights are unpacked
  into memory. Others are read where they are.

  Raises:
    ValueError: The unpacked weights are far larger than the file.
  """
  info = archive.getinfo(_WEIGHTS)
  assert archive.filename and archive.fp
  size = os.path.getsize(archive.filename)
  if info.file_size > max(_LARGEST_UNPACKED, _LARGEST_RATIO * size):
    raise ValueError(
      f"{_WEIGHTS} in it would have {info.file_size} bytes, but the file has "
      f"{size}; if that is right, unpack it and pack it again without "
      "compression"
    )
  stored = info.compress_type == zipfile.ZIP_STORED
  unpacked = io.BytesIO()
  with archive.open(info) as member:
    while chunk := member.read(_CHUNK):
      if not stored:
        unpacked.write(chunk)
  if not stored:
    yield unpacked
    return
  with open(archive.filename, "rb") as file:
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER)
    name, extra = struct.unpack("<HH", header[-4:])
    begin = info.header_offset + _LOCAL_HEADER + name + extra
    yield io.BufferedReader(_Part(file, begin, info.file_size))


class _Part(opening.RawFile):
  """A part of a file, as a file of its own."""

  def __init__(self, file: IO[bytes], begin: int, size: int) -> None:
    super().__init__(size)
    self._file, self._begin = file, begin

  def _read_at(self, offset: int, size: int) -> bytes:
    self._file.seek(self._begin + offset)
    return self._file.read(size)


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
