# SPDX-License-Identifier: Apache-2.0
"""Decodes the values of a `TensorProto` of TensorFlow (tensor.proto).

Checkpoints of the first format hold tensors so: a field for each kind of
number, in which small integers are 64-bit varints. The result is the bytes
that a data file of the second format has.
"""

from __future__ import annotations

import array
import math

import numpy as np

from tf_compat_lossscale._core.bytes import wire as _wire
from tf_compat_lossscale.checkpoint.files import entries as _entries

_FIXED, _VARINT, _STRING = "fixed", "varint", "string"
_CHUNK = 1 << 20  # Bytes of varints that are decoded at a time.
_LONGEST = 10  # Bytes of a varint.
# The dtype's name -> (the field's number, how the field has the values, the
# dtype of NumPy for an element). A complex number is two floats.
_FIELDS: dict[str, tuple[int, str, str]] = {
  "float32": (5, _FIXED, "<f4"),
  "float64": (6, _FIXED, "<f8"),
  "complex64": (9, _FIXED, "<f4"),
  "complex128": (12, _FIXED, "<f8"),
  "int64": (10, _VARINT, "<i8"),
  "bool": (11, _VARINT, "?"),
  "float16": (13, _VARINT, "<u2"),
  "string": (8, _STRING, ""),
  **dict.fromkeys(("int32", "qint32"), (7, _VARINT, "<i4")),
  **dict.fromkeys(("int16", "qint16"), (7, _VARINT, "<i2")),
  **dict.fromkeys(("int8", "qint8"), (7, _VARINT, "<i1")),
  **dict.fromkeys(("uint16", "quint16"), (7, _VARINT, "<u2")),
  **dict.fromkeys(("uint8", "quint8"), (7, _VARINT, "<u1")),
}
_DTYPE, _SHAPE, _CONTENT = 1, 2, 4  # The numbers of other fields.


def is_known(dtype: str) -> bool:
  """Returns whether the first format can hold a dtype."""
  return dtype in _FIELDS


def decode(data: memoryview, entry: _entries.Entry) -> bytes:
  """Decodes a tensor.

  Args:
    data: The message's bytes.
    entry: The dtype and the shape that the tensor must have. In the message,
      both may be missing.

  Returns:
    The bytes that a data file has.

  Raises:
    ValueError: The bytes are no such message, or have not as many values as the
      shape.
  """
  field, kind, element = _FIELDS[entry.spec.dtype]
  # Values may be packed into one field, or each have a field of its own.
  parts: list[memoryview] = []
  single = bytearray()
  lengths = array.array("Q")
  content = None
  width = np.dtype(element).itemsize if element else 0
  for tag, value in _wire.read_fields(data):
    if tag == _DTYPE and value not in (0, entry.dtype):
      raise ValueError(f"a tensor has dtype {value}, not {entry.spec.dtype}")
    if tag == _SHAPE:
      shape = tuple(_entries.parse_shape(_wire.get_bytes(value)))
      if shape not in ((), entry.shape):
        raise ValueError(f"a tensor has the shape {shape}, not {entry.shape}")
    if tag == _CONTENT:
      content = _wire.get_bytes(value)
    if tag != field:
      continue
    if kind == _STRING:
      text = _wire.get_bytes(value)
      lengths.append(len(text))
      single += text
    elif isinstance(value, int):
      single += (
        value.to_bytes(width, "little")
        if kind == _FIXED
        else _wire.encode_varint(value)
      )
    else:
      if single:  # The order of both ways counts.
        parts.append(memoryview(bytes(single)))
        single = bytearray()
      parts.append(value)
  count = math.prod(entry.shape)
  if kind == _STRING:
    _check_count(len(lengths), count)
    return _entries.encode_strings(lengths, single)
  if single:
    parts.append(memoryview(single))
  packed = parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
  if content:
    if packed:
      raise ValueError("a tensor has its values twice")
    result = bytes(content)
  elif kind == _FIXED:
    result = bytes(packed)
  else:
    result = _decode_varints(packed, count, element)
  if len(result) != entry.size:
    raise ValueError(
      f"a tensor {entry.spec} has {len(result)} bytes, not {entry.size}"
    )
  return result


def _check_count(found: int, expected: int) -> None:
  """Checks the number of values.

  Raises:
    ValueError: It is not that of the shape.
  """
  if found != expected:
    raise ValueError(f"a tensor of {expected} elements has {found} values")


def _decode_varints(data: memoryview, count: int, element: str) -> bytes:
  """Decodes varints, one after the other.

  Args:
    data: The varints.
    count: The number of varints.
    element: The dtype of NumPy for each value, which wraps as in C.

  Raises:
    ValueError: There are not `count` varints.
  """
  if count > len(data):
    _check_count(len(data), count)
  codes = np.frombuffer(data, np.uint8)
  result = np.empty(count, element)
  at = done = 0
  while at < len(codes):
    chunk = codes[at : at + _CHUNK]
    ends = np.flatnonzero(chunk < 128) + 1
    if not len(ends):
      raise ValueError("a number is cut off")
    chunk = chunk[: ends[-1]]
    begins = np.concatenate(([0], ends[:-1]))
    if done + len(ends) > count:
      _check_count(done + len(ends), count)
    if len(ends) == len(chunk):
      values = chunk.astype(np.uint64)
    else:
      sizes = ends - begins
      if sizes.max() > _LONGEST:
        raise ValueError("a number is too long")
      digits = np.arange(len(chunk)) - np.repeat(begins, sizes)
      shifted = (chunk & 127).astype(np.uint64) << (7 * digits).astype(
        np.uint64
      )
      values = np.add.reduceat(shifted, begins)
    result[done : done + len(ends)] = values.astype(element)
    at += len(chunk)
    done += len(ends)
  _check_count(done, count)
  return result.tobytes()
