# SPDX-License-Identifier: Apache-2.0
"""Reads which arrays are in `.npz` and `.safetensors` files.

Only the headers are read, without the safetensors package. Nothing in the files
is unpickled.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
import contextlib
import json
import math
from typing import Any
from typing import IO
import zipfile

import numpy as np

from tf_compat_lossscale.checkpoint.files import opening
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.files.checkpoint_error import name_damage
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec

# Bytes of headers. NumPy's have some hundred, those of safetensors a hundred
# for each tensor.
_LARGEST_NPY, _LARGEST_SAFETENSORS = 1 << 16, 16 << 20
_CHUNK = 1 << 20
# The names of dtypes in safetensors -> (the names here, bits).
_DTYPES = {
  "BOOL": ("bool", 8),
  "U8": ("uint8", 8),
  "I8": ("int8", 8),
  "F8_E4M3": ("float8_e4m3fn", 8),
  "F8_E5M2": ("float8_e5m2", 8),
  "I16": ("int16", 16),
  "U16": ("uint16", 16),
  "F16": ("float16", 16),
  "BF16": ("bfloat16", 16),
  "I32": ("int32", 32),
  "U32": ("uint32", 32),
  "F32": ("float32", 32),
  "F64": ("float64", 64),
  "I64": ("int64", 64),
  "U64": ("uint64", 64),
  "C64": ("complex64", 64),
}


def is_npz(path: str) -> bool:
  """Returns whether a zip file has arrays of NumPy alone.

  Raises:
    CheckpointError: The file is damaged.
  """
  with _open_zip(path) as archive:
    names = archive.namelist()
  return bool(names) and all(name.endswith(".npy") for name in names)


def read_npz(path: str, verify: bool = False) -> dict[str, TensorSpec]:
  """Reads which arrays an `.npz` file has.

  Args:
    path: The file.
    verify: Whether to compare all bytes with their checksums.

  Returns:
    Name -> dtype and shape.

  Raises:
    CheckpointError: The file is damaged.
  """
  specs: dict[str, TensorSpec] = {}
  with _open_zip(path) as archive:
    for info in archive.infolist():
      name = info.filename.removesuffix(".npy")
      if name in specs:
        raise ValueError(f"it has {name!r} twice")
      with archive.open(info) as member:
        dtype, shape, size = _read_npy_header(member)
        if not dtype.hasobject and (
          info.file_size != size + dtype.itemsize * math.prod(shape)
        ):
          raise ValueError(f"{name!r} has {info.file_size} bytes")
        while verify and member.read(_CHUNK):
          pass  # The end of the member is compared with its checksum.
      specs[name] = TensorSpec(_name_dtype(dtype), shape)
  return specs


def read_safetensors(path: str) -> dict[str, TensorSpec]:
  """Reads which tensors a `.safetensors` file has.

  Args:
    path: The file.

  Returns:
    Name -> dtype and shape.

  Raises:
    CheckpointError: The file is damaged.
  """
  with name_damage(path), opening.open_file(path) as file:
    size = int.from_bytes(file.read(8), "little")
    if size > _LARGEST_SAFETENSORS:
      raise CheckpointError(
        f"{path}: its header has {size} bytes; headers of up to "
        f"{_LARGEST_SAFETENSORS} are read, which is enough for a hundred "
        "thousand tensors"
      )
    header = file.read(size)
    total = opening.read_stamp(path).size - 8 - size
    if len(header) < size:
      raise ValueError("its header is cut off")
    items = json.loads(header.decode("utf-8"), object_pairs_hook=_make_dict)
    specs: dict[str, TensorSpec] = {}
    places = []
    for name, item in items.items():
      if name != "__metadata__":
        specs[name], place = _parse_safetensor(name, item)
        places.append(place)
    end = 0
    for begin, next_end in sorted(places):
      if begin != end:
        raise ValueError("its tensors do not follow one another")
      end = next_end
    if end != total:
      raise ValueError(
        f"its tensors should have {end} bytes, but {total} are there: it is "
        "cut off, or not whole yet"
      )
  return specs


def _parse_safetensor(
  name: str, item: Any
) -> tuple[TensorSpec, tuple[int, int]]:
  """Parses an entry of the header: dtype and shape, begin and end."""
  shape, (begin, end) = tuple(item["shape"]), item["data_offsets"]
  if not all(type(n) is int and n >= 0 for n in (*shape, begin, end)):
    raise ValueError(f"{name!r} has {item}")
  dtype, bits = _DTYPES.get(item["dtype"], (str(item["dtype"]), 0))
  if begin > end or (bits and 8 * (end - begin) != bits * math.prod(shape)):
    raise ValueError(f"{name!r} is {item}, which has not {end - begin} bytes")
  return TensorSpec(dtype, shape), (begin, end)


def _make_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  """Returns a JSON object, in which no name is there twice."""
  result = dict(pairs)
  if len(result) != len(pairs):
    raise ValueError("a name is there twice")
  return result


def _read_npy_header(
  file: IO[bytes],
) -> tuple[np.dtype[Any], tuple[int, ...], int]:
  """Reads the header of an array: its dtype and shape, and the header's size.

  Raises:
    ValueError: It is no such header.
  """
  begin = file.read(8)
  if not begin.startswith(b"\x93NUMPY") or len(begin) < 8:
    raise ValueError("an array in it does not begin as NumPy's do")
  width = 2 if begin[6] == 1 else 4
  size = int.from_bytes(file.read(width), "little")
  if size > _LARGEST_NPY:
    raise ValueError(f"the header of an array in it has {size} bytes")
  header = ast.literal_eval(file.read(size).decode("latin-1").strip())
  shape = header["shape"]
  if not isinstance(shape, tuple) or not all(
    type(n) is int and n >= 0 for n in shape
  ):
    raise ValueError(f"an array in it has the shape {shape}")
  return np.dtype(header["descr"]), shape, 8 + width + size


def _name_dtype(dtype: np.dtype[Any]) -> str:
  """Returns the name of a dtype of NumPy as checkpoints have it."""
  if dtype.hasobject:
    return "pickled objects"
  return "string" if dtype.kind in "SU" else dtype.name


@contextlib.contextmanager
def _open_zip(path: str) -> Iterator[zipfile.ZipFile]:
  """Opens a zip file; raises errors as `CheckpointError`s with its name."""
  with (
    name_damage(path),
    opening.open_file(path) as file,
    zipfile.ZipFile(file) as archive,
  ):
    yield archive
