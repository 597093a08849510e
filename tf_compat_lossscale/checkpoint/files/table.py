# SPDX-License-Identifier: Apache-2.0
"""Reads and writes sorted string tables, the format of a checkpoint's index.

LevelDB has the same format (github.com/google/leveldb, doc/table_format.md). A
table has blocks of entries whose keys share prefixes, an index of the blocks
and a footer. Each block has a checksum.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator

from tf_compat_lossscale._core.bytes import crc32c as _crc32c
from tf_compat_lossscale._core.bytes import wire as _wire

_MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
FOOTER = 48
_TRAILER = 5  # Bytes: a block's kind of compression, and its checksum.
_RESTARTS = 16  # One entry in so many has its whole key, as in TensorFlow.
_BLOCK = 1 << 18  # Bytes of a block, as in TensorFlow.


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
  if not is_table(data):
    raise ValueError("it does not end as a table does")
  footer = data[-FOOTER:]
  at = 0
  for _ in range(2):  # The handle of the meta index, which is not used.
    _, at = _wire.read_varint(footer, at)
  items: dict[bytes, bytes] = {}
  last, end = None, 0
  for _, handle in _read_entries(_read_block(data, footer[at:])):
    offset, length = _parse_handle(handle)
    if offset < end:
      raise ValueError("a block of it is there twice")
    end = offset + length
    for key, value in _read_entries(_read_block(data, handle)):
      if last is not None and key <= last:
        raise ValueError("its keys are not in order")
      items[key] = bytes(value)
      last = key
  return items


def _read_block(data: bytes, handle: bytes | memoryview) -> bytes:
  """Returns the bytes of a block, once its checksum is compared."""
  offset, size = _parse_handle(handle)
  block = memoryview(data)[offset : offset + size + _TRAILER]
  if len(block) < size + _TRAILER:
    raise ValueError("a block is cut off")
  stored = int.from_bytes(block[size + 1 :], "little")
  if _crc32c.mask(_crc32c.crc32c(block[: size + 1])) != stored:
    raise ValueError("a block of it fails its checksum")
  if block[size]:
    raise ValueError(f"a block is compressed in the unknown way {block[size]}")
  return bytes(block[:size])


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
