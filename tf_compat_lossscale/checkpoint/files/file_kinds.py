# SPDX-License-Identifier: Apache-2.0
"""Names files that hold weights but are no checkpoints that are read here."""

from __future__ import annotations

import os
import re

from tf_compat_lossscale.checkpoint.files import opening
from tf_compat_lossscale.checkpoint.files import table
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)

_BEGIN = 16  # The number of bytes at a file's beginning that tell its kind.
_MOST_HEADER = 100 << 20  # Bytes, as the safetensors package allows.
# One of a V1 checkpoint's shards, or the pattern of all shards that TensorFlow
# takes as a path. Data files of later checkpoints have similar names.
_SHARD = re.compile(
  r"(.+)(?<!\.data)-(?:[0-9]{5}|\?{5})-of-[0-9]{5}", re.DOTALL
)
_V1 = (
  "a checkpoint of TensorFlow's first format (V1): TensorFlow's own "
  "tf.compat.v1.train.Saver restores it, whole, sharded or partitioned; "
  "restore it once with that Saver, save once without write_version, then go "
  "on with the new checkpoint"
)
_KERAS = (
  "Keras loads its own files, for instance by "
  "tf_compat_lossscale.keras.load_model"
)


def refuse_others(path: str) -> None:
  """Raises an error that says what a file is, if it is known to be no bundle.

  Args:
    path: A file, or a path that has no index.

  Raises:
    CheckpointError: The file is of Keras, NumPy or safetensors, or of the first
      format of TensorFlow's checkpoints.
    OSError: The file cannot be read.
  """
  what = None
  if _is_v1(path):
    what = _V1
  elif opening.is_file(path):
    begin = read_begin(path)
    if begin.startswith(b"\x89HDF\r\n\x1a\n"):
      what = f"an HDF5 file, as Keras writes it (.h5), no checkpoint: {_KERAS}"
    elif is_zip(begin) and path.endswith(".npz"):
      what = "a file of NumPy arrays (.npz), no checkpoint: numpy.load reads it"
    elif is_zip(begin):
      what = f"a zip file, as Keras writes it (.keras), no checkpoint: {_KERAS}"
    elif is_safetensors(begin):
      what = (
        "a file of the safetensors package, no checkpoint: "
        "safetensors.numpy.load_file reads it"
      )
  if what:
    raise CheckpointError(f"{path}: {what}")


def is_zip(begin: bytes) -> bool:
  """Returns whether a file begins as a zip file does."""
  return begin.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def is_safetensors(begin: bytes) -> bool:
  """Returns whether a file begins as one of the safetensors package does."""
  size = int.from_bytes(begin[:8], "little")
  return len(begin) > 9 and 2 <= size <= _MOST_HEADER and begin[8:9] == b"{"


def read_begin(path: str) -> bytes:
  """Returns the first bytes of a file, as the functions above take them."""
  with opening.open_file(path) as file:
    return file.read(_BEGIN)


def _is_v1(path: str) -> bool:
  """Returns whether a path is a V1 checkpoint: a file, or a name of shards."""
  if opening.is_file(path):
    return _ends_as_table(path)
  match = _SHARD.fullmatch(path)
  folder, name = os.path.split(match[1] if match else path)
  try:
    others = opening.list_folder(folder)
  except OSError:
    return False
  for other in others:
    match = _SHARD.fullmatch(other)
    if match and match[1] == name:
      return _ends_as_table(opening.join(folder, other))
  return False


def _ends_as_table(path: str) -> bool:
  """Returns whether a file ends as a table does."""
  with opening.open_file(path) as file:
    file.seek(max(0, opening.read_stamp(path).size - table.FOOTER))
    return table.is_table(file.read())
