"""Checkpoints as files: an index of tensors, and the shards with their bytes.

The format is TensorFlow's second ("V2", since 0.12), that of Saver, of
`tf.train.Checkpoint` and of a SavedModel's variables: PREFIX.index is a sorted
table of `BundleEntryProto`, PREFIX.data-00000-of-00001 and so on the bytes.
Reading it here takes milliseconds; TensorFlow's import takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import glob
import hashlib
import math
import os
import struct
from typing import NamedTuple

from tf_compat_lossscale.checkpoint.files import crc32c as _crc32c
from tf_compat_lossscale.checkpoint.files import table as _table
from tf_compat_lossscale.checkpoint.files import wire as _wire
from tf_compat_lossscale.checkpoint.files.errors import CheckpointError

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_STRING = 7
_VARIANT = 21
# `DataType` of TensorFlow (types.proto): number -> (name, bytes, struct code).
_DTYPES: dict[int, tuple[str, int, str]] = {
  1: ("float32", 4, "f"),
  2: ("float64", 8, "d"),
  3: ("int32", 4, "i"),
  4: ("uint8", 1, "B"),
  5: ("int16", 2, "h"),
  6: ("int8", 1, "b"),
  _STRING: ("string", 0, ""),
  8: ("complex64", 8, ""),
  9: ("int64", 8, "q"),
  10: ("bool", 1, "?"),
  11: ("qint8", 1, ""),
  12: ("quint8", 1, ""),
  13: ("qint32", 4, ""),
  14: ("bfloat16", 2, ""),
  15: ("qint16", 2, ""),
  16: ("quint16", 2, ""),
  17: ("uint16", 2, "H"),
  18: ("complex128", 16, ""),
  19: ("float16", 2, "e"),
  20: ("resource", 0, ""),
  _VARIANT: ("variant", 0, ""),
  22: ("uint32", 4, "I"),
  23: ("uint64", 8, "Q"),
}
_NUMBERS = {name: number for number, (name, _, _) in _DTYPES.items()}
# Up to so much is read through at sight; TensorFlow's reader is faster, but
# its import takes as long as this package needs for a gigabyte.
CHECKED_AT_SIGHT = 64 << 20
_LARGE = 1 << 20
_Progress = Callable[[int], None]


class Tensor(NamedTuple):
  """What a tensor is like.

  Attributes:
    dtype: Its dtype's name, such as 'float32'.
    shape: Its dimensions.
  """

  dtype: str
  shape: tuple[int, ...]

  def __str__(self) -> str:
    return f"{self.dtype} {list(self.shape)}"


@dataclasses.dataclass(frozen=True)
class Entry:
  """A tensor of a checkpoint, or a slice of one, and where its bytes are."""

  dtype: int
  shape: tuple[int, ...]
  shard: int = 0
  offset: int = 0
  size: int = 0
  crc: int = 0  # Masked.
  slices: tuple[bytes, ...] = ()  # Of a partitioned variable; it has no bytes.

  @property
  def tensor(self) -> Tensor:
    name = _DTYPES.get(self.dtype, (f"dtype {self.dtype}", 0, ""))[0]
    return Tensor(name, self.shape)

  @classmethod
  def parse(cls, data: bytes) -> Entry:
    values: dict[int, int] = {}
    shape: list[int] = []
    slices = []
    for tag, value in _wire.fields(data):
      if tag == 2:
        for inner, dim in _wire.fields(_wire.part(value)):
          if inner == 2:
            sizes = [
              _wire.signed(_wire.number(n))
              for i, n in _wire.fields(_wire.part(dim))
              if i == 1
            ]
            shape.append(sizes[-1] if sizes else 0)
      elif tag == 7:
        slices.append(bytes(_wire.part(value)))
      else:
        values[tag] = _wire.number(value)
    dtype, shard, offset, size, crc = (
      values.get(tag, 0) for tag in (1, 3, 4, 5, 6)
    )
    entry = cls(dtype, tuple(shape), shard, offset, size, crc, tuple(slices))
    item = _DTYPES.get(entry.dtype, ("", 0, ""))[1]
    if min(shape, default=0) < 0 or (
      item and not slices and entry.size != item * math.prod(shape)
    ):
      raise ValueError(
        f"an entry of {entry.size} bytes is no {entry.tensor.dtype} "
        f"{list(shape)}"
      )
    return entry

  def encode(self) -> bytes:
    dims = b"".join(
      _wire.field(2, _wire.field(1, size) if size else b"")
      for size in self.shape
    )
    numbers = ((3, self.shard), (4, self.offset), (5, self.size))
    return b"".join(
      [
        _wire.field(1, self.dtype),
        _wire.field(2, dims),
        *(_wire.field(tag, value) for tag, value in numbers if value),
        _wire.fixed32(6, self.crc) if self.crc else b"",
        *(_wire.field(7, part) for part in self.slices),
      ]
    )


class Bundle:
  """A checkpoint that is open for reading.

  Attributes:
    prefix: Its path, without '.index'.
    entries: Key -> Entry, slices of partitioned variables included.
    shards: The number of files that have its bytes.
  """

  def __init__(self, prefix: str) -> None:
    """Reads the index.

    Args:
      prefix: The path, without '.index'.

    Raises:
      CheckpointError: There is none, it is damaged, or a shard is missing or
        too short.
    """
    self.prefix = prefix
    index = prefix + ".index"
    self.entries: dict[bytes, Entry] = {}
    with _naming(index):
      with open(index, "rb") as file:
        data = file.read()
      self._digest = hashlib.sha256(data).digest()
      items = _table.read(data)
      header = {
        tag: value
        for tag, value in _wire.fields(items.pop(b"", b""))
        if tag < 3
      }
      if header.get(2):
        raise ValueError("it was written on a big-endian machine")
      self.shards = _wire.number(header.get(1, 0))
      for key, value in items.items():
        self.entries[key] = Entry.parse(value)
        if not key.startswith(b"\0"):
          key.decode("utf-8")  # Names that are none show here.
    ends: dict[int, int] = {}
    for entry in self.entries.values():
      end = entry.offset + entry.size
      ends[entry.shard] = max(end, ends.get(entry.shard, 0))
    self._files: dict[str, tuple[int, int, int]] = {}
    for shard, end in ends.items():
      path = self.shard_path(shard)
      with _naming(path):
        _, size, _ = self._files[path] = stamp(path)
        if not 0 <= shard < self.shards or size < end:
          raise ValueError(
            f"it has {size} bytes where the index says {end}; it is cut off or "
            "of another checkpoint"
          )

  @property
  def names(self) -> list[str]:
    """The names of tensors, sorted."""
    keys = (key for key in self.entries if not key.startswith(b"\0"))
    return sorted(key.decode("utf-8") for key in keys)

  @property
  def size(self) -> int:
    """The bytes of all tensors."""
    return sum(entry.size for entry in self.entries.values())

  @property
  def is_small(self) -> bool:
    """Whether it is read through at sight."""
    return self.size <= CHECKED_AT_SIGHT

  def is_current(self) -> bool:
    """Whether its files are still those that were opened.

    What was read in between is then of one checkpoint: tensors are compared
    with their checksums in the index as they are read.
    """
    try:
      with open(self.prefix + ".index", "rb") as file:
        digest = hashlib.sha256(file.read()).digest()
      files = {path: stamp(path) for path in self._files}
    except OSError:
      return False
    return digest == self._digest and files == self._files

  def __contains__(self, name: str) -> bool:
    return name.encode("utf-8") in self.entries

  def tensor(self, name: str) -> Tensor:
    """What the tensor of that name is like."""
    return self.entries[name.encode("utf-8")].tensor

  def parts(self, name: str, new: str) -> Iterator[tuple[bytes, Entry]]:
    """A tensor's entry and, if it was partitioned, those of its slices.

    Args:
      name: The tensor's name.
      new: What it is called elsewhere.

    Yields:
      (the key that it has elsewhere, the entry).
    """
    old_key, new_key = name.encode("utf-8"), new.encode("utf-8")
    entry = self.entries[old_key]
    yield new_key, entry
    if entry.slices:
      for key, part in self.entries.items():
        if key.startswith(b"\0" + old_key + b"\0\1"):
          yield b"\0" + new_key + key[1 + len(old_key) :], part

  def shard_path(self, shard: int) -> str:
    """The file with the bytes of that shard."""
    return shard_path(self.prefix, shard, self.shards)

  def read(self, entry: Entry) -> bytes:
    """The bytes of an entry.

    Raises:
      CheckpointError: They fail their checksum, or cannot be read.
    """
    path = self.shard_path(entry.shard)
    with _naming(path):
      with open(path, "rb") as file:
        file.seek(entry.offset)
        data = file.read(entry.size)
      if entry.dtype == _VARIANT:  # Its checksum is of what is decoded from it.
        return data
      crc = (
        _string_crc(data, math.prod(entry.shape))
        if entry.dtype == _STRING
        else _crc32c.crc32c(data)
      )
      if _crc32c.mask(crc) != entry.crc:
        raise ValueError(
          f"the bytes from {entry.offset} to {entry.offset + entry.size} fail "
          "their checksum: it is damaged or of another checkpoint"
        )
    return data

  def scalar(self, name: str) -> float | int:
    """The value of a scalar number."""
    entry = self.entries[name.encode("utf-8")]
    code = _DTYPES.get(entry.dtype, ("", 0, ""))[2]
    if not code or entry.shape or entry.slices:
      raise CheckpointError(f"{self.prefix}: {name} is no scalar number")
    return struct.unpack("<" + code, self.read(entry))[0]

  def string(self, name: str) -> bytes:
    """The value of a scalar string."""
    entry = self.entries[name.encode("utf-8")]
    if entry.dtype != _STRING or entry.shape:
      raise CheckpointError(f"{self.prefix}: {name} is no scalar string")
    data = self.read(entry)
    _, at = _wire.read_varint(data, 0)
    return data[at + 4 :]

  def check(self, progress: _Progress = lambda size: None) -> None:
    """Compares every byte with its checksum.

    Args:
      progress: Called with the number of bytes that were looked at.

    Raises:
      CheckpointError: Some fail.
    """
    small, large = self.is_small, None
    for key, entry in self.entries.items():
      if entry.slices:  # The slices have entries of their own.
        continue
      if not small and entry.size > _LARGE and not key.startswith(b"\0"):
        if large is None:
          # Imports TensorFlow: seconds, and of use here alone.
          from tf_compat_lossscale.checkpoint.files import (
            tensorflow_reader as _tensorflow_reader,
          )

          large = _tensorflow_reader.Reader(self.prefix)
        large.check(key.decode("utf-8"), entry.tensor.dtype)
      else:
        self.read(entry)
      progress(entry.size)


def literal(dtype: str, value: float | bytes) -> tuple[Entry, bytes]:
  """A scalar that is in no file yet: its entry, and its bytes."""
  number = _NUMBERS[dtype]
  if isinstance(value, bytes):
    length = _wire.varint(len(value))
    crc = _crc32c.crc32c(len(value).to_bytes(4, "little"))
    data = length + _crc32c.mask(crc).to_bytes(4, "little") + value
    crc = _string_crc(data, 1)
  else:
    data = struct.pack("<" + _DTYPES[number][2], value)
    crc = _crc32c.crc32c(data)
  return Entry(number, (), size=len(data), crc=_crc32c.mask(crc)), data


def shard_path(prefix: str, shard: int, shards: int) -> str:
  """The file with the bytes of a shard, of so many."""
  return f"{prefix}.data-{shard:05}-of-{shards:05}"


def stamp(path: str) -> tuple[int, int, int]:
  """What shows that a file was replaced or written: inode, size and time."""
  status = os.stat(path)
  return status.st_ino, status.st_size, status.st_mtime_ns


def data_files(prefix: str) -> list[str]:
  """The files of any shard of that checkpoint."""
  return sorted(glob.glob(glob.escape(prefix) + ".data-?????-of-?????"))


def index_of(entries: dict[bytes, Entry], shards: int) -> bytes:
  """The bytes of an index."""
  header = _wire.field(1, shards) + _wire.field(3, _wire.field(1, 1))
  items = sorted((key, entry.encode()) for key, entry in entries.items())
  return _table.write([(b"", header), *items])


def _string_crc(data: bytes, count: int) -> int:
  """The checksum of strings: of their lengths, its own one, and their bytes."""
  at, lengths = 0, b""
  for _ in range(count):
    length, at = _wire.read_varint(data, at)
    lengths += length.to_bytes(4 if length < 2**32 else 8, "little")
  crc = _crc32c.crc32c(lengths)
  stored = data[at : at + 4]
  if _crc32c.mask(crc).to_bytes(4, "little") != stored:
    raise ValueError("the lengths of strings fail their checksum")
  return _crc32c.crc32c(memoryview(data)[at:], crc)


class _naming:
  """Names the file in what goes wrong with it."""

  def __init__(self, path: str) -> None:
    self._path = path

  def __enter__(self) -> None:
    pass

  def __exit__(self, kind: object, error: object, trace: object) -> None:
    if isinstance(error, CheckpointError):
      return
    if isinstance(error, OSError):
      reason = error.strerror or str(error)
      raise CheckpointError(f"{self._path}: {reason}") from None
    if isinstance(error, (ValueError, IndexError, OverflowError, MemoryError)):
      raise CheckpointError(
        f"{self._path}: no checkpoint that can be read: {error}"
      ) from None
