# SPDX-License-Identifier: Apache-2.0
"""Reads and writes sorted string tables, the format of a checkpoint's index.

LevelDB has the same format (github.com/google/leveldb, doc/table_format.md). A
table has blocks of entries whose keys share prefixes, an index of the blocks
and a footer. Each block has a checksum.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator

from tf_compat_lossscale._core.bytes import crc32c as _crc32c
from tf_compat_lossscale._core.bytes import snappy as _snappy
from tf_compat_lossscale._core.bytes import wire as _wire

_MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
FOOTER = 48
_TRAILER = 5  # Bytes: a block's kind of compression, and its checksum.
_RESTARTS = 16  # One entry in so many has its whole key, as in TensorFlow.
_BLOCK = 1 << 18  # Bytes of a block, as in TensorFlow.
_KEPT = 1 << 24  # Bytes of blocks that are kept to be read again.
_MOST_ITEMS = _BLOCK  # Of a block: a writer ends one that has `_BLOCK` bytes.
_SNAPPY = 1  # TensorFlow before 1.2 compressed blocks.


def is_table(data: bytes) -> bool:
  """Returns whether bytes end as a table does."""
  return len(data) >= FOOTER and data.endswith(_MAGIC)


def read(data: bytes) -> dict[bytes, bytes]:
  """Reads a whole table.

  Args:
    data: The bytes of the file.

  Returns:
    Key -> value, in the order of keys.

  Raises:
    ValueError: The bytes are no table, or a checksum is wrong.
  """
  table = Table(lambda offset, size: data[offset : offset + size], len(data))
  return {key: bytes(value) for key, value in table.read_items()}


class Table:
  """A table that is read block by block.

  Its values may be large: a block has the size of its largest value.
  """

  def __init__(self, read_at: Callable[[int, int], bytes], size: int) -> None:
    """Reads the index of the blocks.

    Args:
      read_at: Returns the bytes of the file from an offset, as many as the
        second argument says or, at the end of the file, fewer.
      size: The number of bytes of the file.

    Raises:
      ValueError: The bytes are no table, or a checksum is wrong.
    """
    self._read_at, self._size = read_at, size
    footer = read_at(max(0, size - FOOTER), FOOTER)
    if not is_table(footer):
      raise ValueError("it does not end as a table does")
    at = 0
    for _ in range(2):  # The handle of the meta index, which is not used.
      _, at = _wire.read_varint(footer, at)
    index = self._read_block(_parse_handle(footer[at:]))
    # Such a key is at least as large as all keys of its block, and smaller than
    # those of the blocks that follow.
    self._lasts: list[bytes] = []
    self._handles: list[tuple[int, int]] = []
    # The number of a block -> its items, for blocks that were read.
    self._kept: dict[int, dict[bytes, memoryview]] = {}
    self._kept_bytes = 0
    end = 0
    for key, value in _read_entries(index):
      offset, length = _parse_handle(value)
      if offset < end:
        raise ValueError("a block of it is there twice")
      end = offset + length
      self._lasts.append(key)
      self._handles.append((offset, length))

  def read_items(self) -> Iterator[tuple[bytes, memoryview]]:
    """Yields all keys and values, in the order of keys.

    Raises:
      ValueError: A block fails its checksum, or its keys are not in order.
    """
    last = None
    for number in range(len(self._handles)):
      for key, value in self._read_items_of(number):
        if last is not None and key <= last:
          raise ValueError("its keys are not in order")
        yield key, value
        last = key

  def read_value(self, key: bytes) -> memoryview:
    """Returns the value of a key.

    Raises:
      ValueError: There is no such key, or its block fails its checksum.
    """
    number = bisect.bisect_left(self._lasts, key)
    if number == len(self._lasts):
      raise ValueError("a value of it is missing")
    items = self._kept.pop(number, None)
    if items is None:
      items = self._keep(number)
    self._kept[number] = items  # The last one is dropped last.
    if key not in items:
      raise ValueError("a value of it is missing")
    return items[key]

  def _keep(self, number: int) -> dict[bytes, memoryview]:
    """Reads a block, and drops blocks that were kept if they are too large."""
    items = {}
    for key, value in self._read_items_of(number):
      items[key] = value
      if len(items) > _MOST_ITEMS:
        raise ValueError("a block has more keys than those of any writer")
    self._kept_bytes += self._handles[number][1]
    while self._kept and self._kept_bytes > _KEPT:
      dropped = next(iter(self._kept))
      del self._kept[dropped]
      self._kept_bytes -= self._handles[dropped][1]
    return items

  def _read_items_of(self, number: int) -> Iterator[tuple[bytes, memoryview]]:
    """Yields the keys and values of a block."""
    return _read_entries(self._read_block(self._handles[number]))

  def _read_block(self, handle: tuple[int, int]) -> bytes:
    """Returns the bytes of a block, once its checksum is compared."""
    offset, size = handle
    if offset + size + _TRAILER > self._size:
      raise ValueError("a block is cut off")
    data = memoryview(self._read_at(offset, size + _TRAILER))
    if len(data) < size + _TRAILER:
      raise ValueError("a block is cut off")
    stored = int.from_bytes(data[size + 1 :], "little")
    if _crc32c.mask(_crc32c.crc32c(data[: size + 1])) != stored:
      raise ValueError("a block of it fails its checksum")
    kind = data[size]
    if kind == _SNAPPY:
      return _snappy.decompress(data[:size])
    if kind:
      raise ValueError(f"a block is compressed in the unknown way {kind}")
    return bytes(data[:size])


def write(items: Iterable[tuple[bytes, bytes]]) -> bytes:
  """Writes a table.

  Args:
    items: Keys and values, in the order of keys.

  Returns:
    The bytes of the file.
  """
  out = bytearray()
  index = []
  entries: list[tuple[bytes, bytes]] = []
  size = 0
  for item in items:
    entries.append(item)
    size += len(item[0]) + len(item[1])
    if size >= _BLOCK:
      index.append((entries[-1][0], _append(out, entries)))
      entries, size = [], 0
  if entries:
    index.append((entries[-1][0], _append(out, entries)))
  handles = _append(out, []) + _append(out, index)
  return bytes(out + handles.ljust(FOOTER - len(_MAGIC), b"\0") + _MAGIC)


def _parse_handle(data: bytes | memoryview) -> tuple[int, int]:
  """Parses the offset and the size of a block."""
  offset, at = _wire.read_varint(data, 0)
  size, _ = _wire.read_varint(data, at)
  return offset, size


def _read_entries(block: bytes) -> Iterator[tuple[bytes, memoryview]]:
  """Yields the keys and values of a block."""
  view = memoryview(block)
  if len(block) < 4:
    raise ValueError("a block is too short")
  restarts = int.from_bytes(block[-4:], "little")
  end = len(block) - 4 - 4 * restarts
  at, key, total = 0, b"", 0
  while at < end:
    shared, at = _wire.read_varint(block, at)
    rest, at = _wire.read_varint(block, at)
    size, at = _wire.read_varint(block, at)
    if shared > len(key) or at + rest + size > end:
      raise ValueError("an entry is cut off")
    key = key[:shared] + block[at : at + rest]
    # Keys share prefixes, so a small block could have keys without bound.
    total += len(key)
    if total > _RESTARTS * len(block):
      raise ValueError("its keys are longer than those of any writer")
    at += rest
    yield key, view[at : at + size]
    at += size
  if at != end:
    raise ValueError("an entry is cut off")


def _count_shared(key: bytes, other: bytes) -> int:
  """Returns how many bytes two keys have in common at their beginning."""
  most = min(len(key), len(other))
  differing = int.from_bytes(key[:most], "big") ^ int.from_bytes(
    other[:most], "big"
  )
  return most - (differing.bit_length() + 7) // 8


def _append(out: bytearray, entries: list[tuple[bytes, bytes]]) -> bytes:
  """Appends a block of entries to `out`, and returns its handle."""
  block = bytearray()
  restarts = []
  last = b""
  for i, (key, value) in enumerate(entries):
    shared = 0
    if i % _RESTARTS == 0:
      restarts.append(len(block))
    else:
      shared = _count_shared(key, last)
    lengths = (shared, len(key) - shared, len(value))
    block += b"".join(map(_wire.encode_varint, lengths)) + key[shared:] + value
    last = key
  for restart in restarts or [0]:
    block += restart.to_bytes(4, "little")
  block += max(1, len(restarts)).to_bytes(4, "little")
  handle = _wire.encode_varint(len(out)) + _wire.encode_varint(len(block))
  block.append(0)  # Not compressed.
  out += block
  out += _crc32c.mask(_crc32c.crc32c(bytes(block))).to_bytes(4, "little")
  return handle
