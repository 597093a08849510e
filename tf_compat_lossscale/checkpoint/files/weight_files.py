# SPDX-License-Identifier: Apache-2.0
"""Writes tensors into one file that other programs read: npz or safetensors.

NumPy reads `.npz` files without this package, and the `safetensors` package
reads `.safetensors` files. Tensors keep their names, which have slashes.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Container
from collections.abc import Mapping
import importlib
import os
from typing import Any
from typing import IO
import zipfile

import numpy as np

from tf_compat_lossscale.checkpoint.files import file_kinds
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.files.values import Stored

NPZ, SAFETENSORS = "npz", "safetensors"
FORMATS = (NPZ, SAFETENSORS)
_NUMBERS = {
  "bool",
  "float16",
  "float32",
  "float64",
  *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}
_DTYPES = {
  NPZ: _NUMBERS | {"complex64", "complex128"},
  SAFETENSORS: _NUMBERS | {"bfloat16"},
}
# In bytes. The name of a file in a zip file is `.npy` longer.
_LONGEST_NAME = (1 << 16) - 1 - len(".npy")
_Progress = Callable[[int], None]


def check(path: str, kind: str, overwrite: bool) -> None:
  """Checks that a file can be written, before anything is read.

  Args:
    path: The new file.
    kind: NPZ or SAFETENSORS.
    overwrite: Whether a file at that path may be replaced.

  Raises:
    CheckpointError: It cannot.
  """
  if os.path.isdir(path) or not os.path.basename(path):
    raise CheckpointError(
      f"{path}: a folder; name a file in it, such as "
      f"{os.path.join(path, f'weights.{kind}')}"
    )
  if os.path.lexists(path):
    if not overwrite:
      raise CheckpointError(
        f"{path}: it exists; --overwrite (overwrite=True) replaces it"
      )
    if not _is_of_kind(path, kind):  # It may be a part of the source.
      raise CheckpointError(
        f"{path}: it exists and is no {kind} file, so it is not replaced: name "
        "another path, or remove it"
      )
  if kind == SAFETENSORS:
    _import_safetensors()


def _is_of_kind(path: str, kind: str) -> bool:
  """Returns whether a file is one that `write` may have written."""
  if not os.path.isfile(path):
    return False
  if kind == SAFETENSORS:
    return file_kinds.is_safetensors(file_kinds.read_begin(path))
  try:
    with zipfile.ZipFile(path) as archive:
      names = archive.namelist()
  except zipfile.BadZipFile:
    return False
  return bool(names) and all(name.endswith(".npy") for name in names)


def check_tensors(path: str, kind: str, tensors: Mapping[str, Stored]) -> None:
  """Checks that a format has the dtypes and the names of all tensors.

  Raises:
    CheckpointError: It has not.
  """
  for name in tensors:
    if not _has_name(kind, name, tensors):
      raise CheckpointError(
        f"{path}: {kind} cannot have a tensor of the name {name!r}: leave it "
        "out by exclude, on the command line by --exclude"
      )
  unfit = {
    name: tensor.spec.dtype
    for name, tensor in tensors.items()
    if tensor.spec.dtype not in _DTYPES[kind]
  }
  if unfit:
    listed = [f"{name} ({dtype})" for name, dtype in unfit.items()]
    raise CheckpointError(
      f"{path}: {kind} has no {' and no '.join(sorted(set(unfit.values())))}: "
      f"leave out {', '.join(listed[:5])}{' and others' if listed[5:] else ''} "
      "by exclude, on the command line by --exclude"
    )


def _has_name(kind: str, name: str, names: Container[str]) -> bool:
  """Returns whether a format may have a name beside others."""
  try:
    length = len(name.encode("utf-8"))
  except UnicodeEncodeError:
    return False
  if kind == SAFETENSORS:
    return name != "__metadata__"
  # NumPy looks for the file's name first, which ends in .npy.
  is_hidden = name.endswith(".npy") and name[: -len(".npy")] in names
  return "\0" not in name and length <= _LONGEST_NAME and not is_hidden


def write(
  file: IO[bytes],
  kind: str,
  tensors: Mapping[str, Stored],
  progress: _Progress = lambda size: None,
) -> None:
  """Writes tensors in a format, in place of what the file has.

  `.npz` is written one tensor after the other; for safetensors, all of them are
  in memory twice.

  Args:
    file: The file, open for writing.
    kind: NPZ or SAFETENSORS.
    tensors: Name -> the tensor.
    progress: Called with each number of bytes that were read.

  Raises:
    CheckpointError: A tensor is damaged.
    OSError: The file cannot be written.
  """

  def read(tensor: Stored) -> np.ndarray:
    array = tensor.bundle.read_array(tensor.name)
    progress(array.nbytes)
    return array

  file.seek(0)
  file.truncate()
  if kind == SAFETENSORS:
    arrays = {name: read(tensor) for name, tensor in tensors.items()}
    file.write(_import_safetensors().save(arrays))
    return
  with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
    for name, tensor in tensors.items():
      # Its size is known when it has been written.
      with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array(member, read(tensor), allow_pickle=False)


def _import_safetensors() -> Any:
  """Returns the module that writes arrays of NumPy.

  Raises:
    CheckpointError: It is missing.
  """
  try:
    return importlib.import_module("safetensors.numpy")
  except ImportError:
    raise CheckpointError(
      "safetensors files need the package safetensors, which is missing: pip "
      "install 'tf_compat_lossscale[safetensors]'"
    ) from None
