# SPDX-License-Identifier: Apache-2.0
"""Entries of a checkpoint's index: dtype, shape, place and checksum.

An entry is a `BundleEntryProto` of TensorFlow (tensor_bundle.proto).
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools
import importlib
import math
from typing import Any
from typing import BinaryIO
from typing import NamedTuple

import numpy as np

from tf_compat_lossscale._core.bytes import crc32c as _crc32c
from tf_compat_lossscale._core.bytes import wire as _wire

_STRING = 7
_VARIANT = 21
_MOST_DIMENSIONS = 254  # As in TensorFlow.
_CHUNK = 1 << 20  # The number of bytes that are read at a time.
_MOST_PAIRS = 1 << 20  # Of slices that are compared: 1,400 in all dimensions.
# `DataType` of TensorFlow (types.proto): number -> its name, and its code in
# NumPy; "" if elements have no fixed size. Sessions return quantized numbers as
# integers. Of bfloat16, which NumPy does not have, the code tells the size.
_DTYPES: dict[int, tuple[str, str]] = {
  1: ("float32", "<f4"),
  2: ("float64", "<f8"),
  3: ("int32", "<i4"),
  4: ("uint8", "<u1"),
  5: ("int16", "<i2"),
  6: ("int8", "<i1"),
  _STRING: ("string", ""),
  8: ("complex64", "<c8"),
  9: ("int64", "<i8"),
  10: ("bool", "?"),
  11: ("qint8", "<i1"),
  12: ("quint8", "<u1"),
  13: ("qint32", "<i4"),
  14: ("bfloat16", "V2"),
  15: ("qint16", "<i2"),
  16: ("quint16", "<u2"),
  17: ("uint16", "<u2"),
  18: ("complex128", "<c16"),
  19: ("float16", "<f2"),
  20: ("resource", ""),
  _VARIANT: ("variant", ""),
  22: ("uint32", "<u4"),
  23: ("uint64", "<u8"),
}
_Box = tuple[tuple[int, int], ...]  # The begin and end in each dimension.
_WIDTHS = {
  number: np.dtype(code).itemsize
  for number, (_, code) in _DTYPES.items()
  if code
}
_NUMBERS = {name: number for number, (name, _) in _DTYPES.items()}


class TensorSpec(NamedTuple):
  """A tensor's dtype and shape.

  Attributes:
    dtype: The dtype's name, such as 'float32'.
    shape: The dimensions.
  """

  dtype: str
  shape: tuple[int, ...]

  def __str__(self) -> str:
    return f"{self.dtype} {list(self.shape)}"


class Slice(NamedTuple):
  """A part of a partitioned variable.

  Attributes:
    starts: The first index in each dimension.
    lengths: The number of indices in each dimension; -1 for all.
  """

  starts: tuple[int, ...]
  lengths: tuple[int, ...]

  @classmethod
  def parse(cls, data: bytes | memoryview) -> Slice:
    """Parses a TensorSliceProto.

    Raises:
      ValueError: The bytes are no such message.
    """
    starts, lengths = [], []
    for extent in _wire.find(data, 1):
      numbers = {
        tag: _wire.decode_signed(_wire.get_number(value))
        for tag, value in _wire.read_fields(_wire.get_bytes(extent))
      }
      starts.append(numbers.get(1, 0))
      lengths.append(numbers.get(2, -1))
    return cls(tuple(starts), tuple(lengths))

  def find_box(self, shape: tuple[int, ...]) -> _Box:
    """Returns the begin and the end in each dimension of a variable.

    Raises:
      ValueError: The slice does not fit the variable's shape.
    """
    box = tuple(
      (0, size) if length == -1 else (start, start + length)
      for start, length, size in zip(self.starts, self.lengths, shape)
    )
    if len(self.starts) != len(shape) or any(
      not 0 <= at <= end <= size for (at, end), size in zip(box, shape)
    ):
      raise ValueError(
        f"a slice of a partitioned variable does not fit {list(shape)}"
      )
    return box

  def make_key(self, name: bytes) -> bytes:
    """Returns the key of the slice's entry.

    The parts of the key sort as their values do, as in TensorFlow's
    ordered_code.h: numbers with their lengths first, and a name with its end.

    Args:
      name: The encoded name of the variable.
    """
    parts = (part.replace(b"\xff", b"\xff\0") for part in name.split(b"\0"))
    key = bytearray(b"\0" + b"\0\xff".join(parts) + b"\0\1")
    key += _encode_unsigned(len(self.starts))
    for pair in zip(self.starts, self.lengths):
      for number in pair:
        key += _encode_signed(number)
    return bytes(key)


@dataclasses.dataclass(frozen=True)
class Slices:
  """The values of a partitioned variable's slices, which do not overlap.

  Attributes:
    pieces: The begin and end in each dimension, and the array, of each slice.
  """

  pieces: list[tuple[_Box, np.ndarray]]

  def cut(self, starts: Sequence[int], sizes: Sequence[int]) -> Any:
    """Returns a part of the variable; None if it is not in the slices.

    Args:
      starts: The first index in each dimension.
      sizes: The number of indices in each dimension.
    """
    result = np.empty(sizes, self.pieces[0][1].dtype)
    count = 0
    for box, piece in self.pieces:
      ends = [
        (max(begin, at), min(end, at + size))
        for (begin, end), at, size in zip(box, starts, sizes)
      ]
      if all(begin < end for begin, end in ends):
        there = tuple(
          slice(begin - at, end - at)
          for (begin, end), (at, _) in zip(ends, box)
        )
        here = tuple(
          slice(begin - at, end - at) for (begin, end), at in zip(ends, starts)
        )
        result[here] = piece[there]
        count += math.prod(end - begin for begin, end in ends)
    return result if count == result.size else None


def _check_disjoint(boxes: list[_Box], shape: tuple[int, ...]) -> None:
  """Checks that no two boxes have an element in common.

  Boxes are compared that overlap in the dimension with the most begins.

  Raises:
    ValueError: Two boxes have, or there are too many boxes to compare.
  """
  boxes = [box for box in boxes if all(at < end for at, end in box)]
  axis = max(
    range(len(shape)),
    key=lambda axis: len({box[axis][0] for box in boxes}),
    default=0,
  )
  current: list[_Box] = []
  pairs = 0
  for box in sorted(boxes, key=lambda box: box[axis:]):
    current = [other for other in current if other[axis][1] > box[axis][0]]
    pairs += len(current)
    if pairs > _MOST_PAIRS or any(
      all(a < d and c < b for (a, b), (c, d) in zip(box, other))
      for other in current
    ):
      raise ValueError(
        f"slices of a partitioned variable of shape {list(shape)} overlap"
      )
    current.append(box)


def _encode_unsigned(value: int) -> bytes:
  """Encodes an unsigned number so that encoded numbers sort by their values."""
  size = (value.bit_length() + 7) // 8
  return bytes([size]) + value.to_bytes(size, "big")


def _encode_signed(value: int) -> bytes:
  """Encodes a signed number so that encoded numbers sort by their values.

  The first bits tell the size, in bytes, and the sign: for numbers that are
  not negative, as many ones as there are bytes, and a zero.
  """
  size = (value if value >= 0 else ~value).bit_length() // 7 + 1
  head = (1 << size) - 1 << 7 * size  # Ones, then room for the number.
  mask = (1 << 8 * size) - 1
  return ((value & mask) ^ head & mask).to_bytes(size, "big")


class Place(NamedTuple):
  """The place of a tensor's bytes.

  Attributes:
    shard: The number of the data file.
    offset: The position of the bytes in that file.
    size: The number of bytes.
  """

  shard: int
  offset: int
  size: int


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
  """An entry of the index: a tensor or a slice of one, and its bytes' place.

  Attributes:
    dtype: The number of the dtype in TensorFlow's `DataType`.
    shape: The dimensions.
    shard: The number of the data file.
    offset: The position of the bytes in that file.
    size: The number of bytes.
    crc: The masked checksum of the bytes.
    slices: The encoded slices of a partitioned variable, whose own entry has no
      bytes. Each slice has an entry of its own.
  """

  dtype: int
  shape: tuple[int, ...]
  shard: int = 0
  offset: int = 0
  size: int = 0
  crc: int = 0
  slices: tuple[bytes, ...] = ()

  @property
  def spec(self) -> TensorSpec:
    """The dtype and the shape."""
    name = _DTYPES.get(self.dtype, (f"dtype {self.dtype}", ""))[0]
    return TensorSpec(name, self.shape)

  @property
  def place(self) -> Place:
    """The place of the bytes."""
    return Place(self.shard, self.offset, self.size)

  def has_same_bytes(self, other: Entry) -> bool:
    """Returns whether bytes that are right for `other` are right here."""
    same = (self.dtype, self.crc) == (other.dtype, other.crc)
    fixed = self.dtype not in (_STRING, _VARIANT)
    return same and (fixed or self.shape == other.shape)

  @classmethod
  def parse(cls, data: bytes) -> Entry:
    """Parses an encoded entry.

    Args:
      data: The message's bytes.

    Returns:
      The entry.

    Raises:
      ValueError: The bytes are no such message, or the size does not fit the
        dtype and the shape.
    """
    values: dict[int, int] = {}
    shape: tuple[int, ...] = ()
    slices = []
    for tag, value in _wire.read_fields(data):
      if tag == 2:
        shape += parse_shape(bytes(_wire.get_bytes(value)))
      elif tag == 7:
        slices.append(bytes(_wire.get_bytes(value)))
      else:
        values[tag] = _wire.get_number(value)
    dtype, shard, offset, size, crc = (
      values.get(tag, 0) for tag in (1, 3, 4, 5, 6)
    )
    _check_dimensions(shape)
    entry = cls(dtype, shape, shard, offset, size, crc, tuple(slices))
    item = _get_width(dtype)
    if item and not slices and entry.size != item * math.prod(shape):
      raise ValueError(f"a tensor {entry.spec} has {entry.size} bytes")
    return entry

  def _count_elements(self, data: bytes) -> int:
    """Returns the number of elements of an encoded slice.

    Raises:
      ValueError: The slice does not fit the shape.
    """
    box = Slice.parse(data).find_box(self.shape)
    return math.prod(end - at for at, end in box)

  def encode(self) -> bytes:
    """Returns the message's bytes."""
    numbers = ((3, self.shard), (4, self.offset), (5, self.size))
    return b"".join(
      [
        _wire.encode_field(1, self.dtype),
        _encode_shape(self.shape),
        *(_wire.encode_field(tag, value) for tag, value in numbers if value),
        _wire.encode_fixed32(6, self.crc) if self.crc else b"",
        *(_wire.encode_field(7, part) for part in self.slices),
      ]
    )

  def find_parts(self, name: bytes) -> dict[bytes, TensorSpec]:
    """Finds the slices of a partitioned variable.

    Args:
      name: The encoded name of the variable.

    Returns:
      The key of each slice's entry -> its dtype and shape; {} if the variable
      is not partitioned.

    Raises:
      ValueError: Slices overlap, or do not fit the shape.
    """
    if not self.slices:
      return {}
    slices = [Slice.parse(data) for data in self.slices]
    if self.size:
      raise ValueError(f"a partitioned variable has {self.size} bytes itself")
    boxes = [part.find_box(self.shape) for part in slices]
    _check_disjoint(boxes, self.shape)
    dtype = self.spec.dtype
    return {
      part.make_key(name): TensorSpec(dtype, tuple(end - at for at, end in box))
      for part, box in zip(slices, boxes)
    }

  @property
  def lacks_elements(self) -> bool:
    """Whether the slices of a partitioned variable leave elements out."""
    # Slices do not overlap, as `find_parts` checks.
    found = sum(map(self._count_elements, self.slices))
    return bool(self.slices) and found < math.prod(self.shape)

  def check(self, data: bytes) -> None:
    """Checks the bytes of the tensor.

    Args:
      data: The bytes.

    Raises:
      ValueError: The bytes do not have the entry's checksum.
    """
    self._compare(self._compute_checksum(data))

  def seal(self, data: bytes) -> Entry:
    """Returns the entry with the size and the checksum of its bytes.

    Args:
      data: The bytes of the tensor.
    """
    crc = self._compute_checksum(data)
    return dataclasses.replace(self, size=len(data), crc=crc)

  def _compute_checksum(self, data: bytes) -> int:
    """Returns the masked checksum of the tensor's bytes."""
    if self.dtype == _STRING:
      crc = _compute_string_checksum(data, math.prod(self.shape))
    elif self.dtype == _VARIANT:
      crc = _compute_variant_checksum(data, math.prod(self.shape))
    else:
      crc = _crc32c.crc32c(data)
    return _crc32c.mask(crc)

  def check_file(self, file: BinaryIO) -> None:
    """Checks the bytes of the tensor in a file, without keeping numbers.

    Args:
      file: The data file, without a buffer, at the position of the bytes.

    Raises:
      ValueError: The bytes do not have the entry's checksum.
    """
    if self.dtype in (_STRING, _VARIANT):
      self.check(read_exactly(file, self.size))
      return
    crc, left = 0, self.size
    while left:
      data = file.read(min(left, _CHUNK))
      if not data:
        break  # The file became shorter.
      crc = _crc32c.crc32c(data, crc)
      left -= len(data)
    self._compare(_crc32c.mask(crc))

  def _compare(self, crc: int) -> None:
    """Compares a masked checksum of the bytes with the entry's."""
    if crc != self.crc:
      raise ValueError(
        f"the bytes from {self.offset} to {self.offset + self.size} fail their "
        "checksum: the file is damaged or belongs to another checkpoint"
      )

  def decode_number(self, data: bytes) -> float | int:
    """Returns the value of a scalar number.

    Args:
      data: The bytes of the tensor.

    Raises:
      ValueError: The tensor is no scalar number.
    """
    code = np.dtype(_DTYPES.get(self.dtype, ("", ""))[1] or "V")
    if code.kind not in "biuf" or self.shape or self.slices:
      raise ValueError(f"{self.spec} is no scalar number")
    value: float | int = np.frombuffer(data, code)[0].item()
    return value

  def decode_array(self, data: bytes) -> np.ndarray:
    """Returns the value of a tensor, as TensorFlow's sessions return it.

    Args:
      data: The bytes of the tensor.

    Raises:
      ValueError: NumPy has no such dtype.
    """
    if self.dtype == _STRING:
      return np.array(
        list(_split_strings(data, math.prod(self.shape))), object
      ).reshape(self.shape)
    name, code = _DTYPES.get(self.dtype, ("", ""))
    if name == "bfloat16":
      bfloat16 = importlib.import_module("ml_dtypes").bfloat16
      return np.frombuffer(data, bfloat16).reshape(self.shape)
    if not code:
      raise ValueError(f"NumPy has no {self.spec.dtype}")
    return np.frombuffer(data, code).reshape(self.shape)

  def decode_string(self, data: bytes) -> bytes:
    """Returns the value of a scalar string.

    Args:
      data: The bytes of the tensor.

    Raises:
      ValueError: The tensor is no scalar string.
    """
    if self.dtype != _STRING or self.shape:
      raise ValueError(f"{self.spec} is no scalar string")
    _, at = _wire.read_varint(data, 0)
    return data[at + 4 :]  # A checksum of the length comes first.


def encode_name(name: str) -> bytes:
  """Returns a tensor's name as the index has it: any bytes but none."""
  return name.encode("utf-8", "surrogateescape")


def decode_name(key: bytes) -> str:
  """Returns the name that `encode_name` would encode so."""
  return key.decode("utf-8", "surrogateescape")


def encode_scalar(dtype: str, value: float | bytes) -> tuple[Entry, bytes]:
  """Returns the entry and the bytes of a scalar.

  Args:
    dtype: The dtype's name; 'string' for bytes.
    value: The scalar.

  Raises:
    OverflowError: The dtype cannot hold the scalar.
  """
  number = _NUMBERS[dtype]
  if isinstance(value, bytes):
    data = _encode_string(value)
  else:
    # Older releases of NumPy warn if `np.array(value, dtype)` cuts an integer.
    with np.errstate(over="ignore", invalid="ignore"):
      array = np.array(value).astype(_DTYPES[number][1])
    if array.item() != value and (array.dtype.kind != "f" or np.isinf(array)):
      raise OverflowError(f"{value} does not fit into {dtype}")
    data = array.tobytes()
  return Entry(number, ()).seal(data), data


def _encode_string(content: bytes) -> bytes:
  """Returns the bytes of a scalar string."""
  length = len(content)
  crc = _crc32c.mask(_crc32c.crc32c(_encode_length(length)))
  return _wire.encode_varint(length) + crc.to_bytes(4, "little") + content


def _get_width(dtype: int) -> int:
  """Returns the number of bytes of an element; 0 if elements differ."""
  return _WIDTHS.get(dtype, 0)


def _check_dimensions(shape: Sequence[int]) -> None:
  """Checks the dimensions of a tensor.

  Raises:
    ValueError: There are too many, or a size is negative.
  """
  if len(shape) > _MOST_DIMENSIONS:
    raise ValueError(f"a tensor has {len(shape)} dimensions")
  if min(shape, default=0) < 0:
    raise ValueError(f"a tensor has the shape {list(shape)}")


def _split_strings(data: bytes, count: int) -> Iterator[bytes]:
  """Yields the strings of a tensor of `count` strings."""
  lengths, at = [], 0
  for _ in range(count):
    length, at = _wire.read_varint(data, at)
    lengths.append(length)
  at += 4  # The checksum of the lengths.
  for length in lengths:
    yield data[at : at + length]
    at += length


def read_exactly(file: BinaryIO, size: int) -> bytes:
  """Reads bytes of a file without a buffer, fewer only at the file's end."""
  parts = []
  while size and (part := file.read(size)):
    parts.append(part)
    size -= len(part)
  return parts[0] if len(parts) == 1 else b"".join(parts)


@functools.lru_cache(1024)
def _encode_shape(shape: tuple[int, ...]) -> bytes:
  """Returns the field of an entry that has the shape."""
  return _wire.encode_field(
    2,
    b"".join(
      _wire.encode_field(2, _wire.encode_field(1, size) if size else b"")
      for size in shape
    ),
  )


@functools.lru_cache(1024)  # Many tensors have the same shape.
def parse_shape(data: bytes) -> tuple[int, ...]:
  """Parses a TensorShapeProto."""
  shape = []
  for dim in _wire.find(data, 2):
    sizes = list(_wire.find(_wire.get_bytes(dim), 1)) or [0]
    shape.append(_wire.decode_signed(_wire.get_number(sizes[-1])))
  return tuple(shape)


def _compute_string_checksum(data: bytes, count: int) -> int:
  """Returns the checksum of a tensor of strings.

  The checksum covers the lengths as integers of fixed size, the checksum of the
  lengths, and the strings.

  Args:
    data: The bytes of the tensor: the lengths as varints, their checksum, and
      the strings.
    count: The number of strings.

  Raises:
    ValueError: The lengths fail their checksum.
  """
  at, lengths = 0, bytearray()
  for _ in range(count):
    length, at = _wire.read_varint(data, at)
    lengths += _encode_length(length)
  crc = _crc32c.crc32c(memoryview(lengths))
  if _crc32c.mask(crc).to_bytes(4, "little") != data[at : at + 4]:
    raise ValueError("the lengths of strings fail their checksum")
  return _crc32c.crc32c(memoryview(data)[at:], crc)


def _compute_variant_checksum(data: bytes, count: int) -> int:
  """Returns the checksum of a tensor of variants.

  Args:
    data: The bytes of the tensor: for each element its length as a varint, its
      bytes, and the masked checksum of all before.
    count: The number of elements.

  Raises:
    ValueError: The bytes are cut off.
  """
  view, at, crc = memoryview(data), 0, 0
  for _ in range(count):
    length, at = _wire.read_varint(data, at)
    end = at + length + 4
    if end > len(data):
      raise ValueError("a variant is cut off")
    crc = _crc32c.crc32c(length.to_bytes(8, "little"), crc)
    crc = _crc32c.crc32c(view[at:end], crc)
    at = end
  if at != len(data):
    raise ValueError("a tensor of variants has more bytes than its elements")
  return crc


def _encode_length(length: int) -> bytes:
  """Encodes a string's length as checksums have it."""
  return length.to_bytes(4 if length < 2**32 else 8, "little")
