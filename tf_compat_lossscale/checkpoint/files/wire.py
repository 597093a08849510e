"""The wire format of protocol buffers, as far as checkpoints need it.

Read here, not by TensorFlow's message classes, so that looking into a
checkpoint does not wait for TensorFlow's import. Malformed input raises
ValueError. (protobuf.dev/programming-guides/encoding)
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
  """Reads a varint: (its value, where it ends)."""
  value = shift = 0
  while at < len(data) and shift < 64:
    byte = data[at]
    at += 1
    value |= (byte & 127) << shift
    if byte < 128:
      return value, at
    shift += 7
  raise ValueError("a number is cut off")


def varint(value: int) -> bytes:
  """Writes a varint; a negative number as two's complement of 64 bits."""
  value &= 2**64 - 1
  out = bytearray()
  while value > 127:
    out.append(value & 127 | 128)
    value >>= 7
  out.append(value)
  return bytes(out)


def signed(value: int) -> int:
  """What an int64 field means whose varint is `value`."""
  return value - 2**64 if value >= 2**63 else value


def fields(data: bytes | memoryview) -> Iterator[tuple[int, int | memoryview]]:
  """Yields a message's fields: (number, value), in their order.

  Numbers of whatever kind come as int, unsigned; strings, bytes and messages
  come as memoryview.
  """
  view = memoryview(data)
  at = 0
  while at < len(view):
    tag, at = read_varint(view, at)
    kind = tag & 7
    if kind == _VARINT:
      value, at = read_varint(view, at)
      yield tag >> 3, value
      continue
    if kind == _BYTES:
      size, at = read_varint(view, at)
    elif kind in (_FIXED32, _FIXED64):
      size = 4 if kind == _FIXED32 else 8
    else:
      raise ValueError(f"a field is of the unknown kind {kind}")
    part = view[at : at + size]
    if len(part) < size:
      raise ValueError("a field is cut off")
    at += size
    yield (
      tag >> 3,
      part if kind == _BYTES else int.from_bytes(part, "little"),
    )


def text(value: int | memoryview) -> str:
  """A string field's value."""
  return part(value).tobytes().decode("utf-8")


def part(value: int | memoryview) -> memoryview:
  """A message field's value."""
  if isinstance(value, int):
    raise ValueError("a number stands where a message should")
  return value


def number(value: int | memoryview) -> int:
  """A number field's value."""
  if not isinstance(value, int):
    raise ValueError("a message stands where a number should")
  return value


def field(tag: int, value: int | bytes | str) -> bytes:
  """Writes a varint or bytes field."""
  if isinstance(value, int):
    return varint(tag << 3 | _VARINT) + varint(value)
  data = value.encode("utf-8") if isinstance(value, str) else value
  return varint(tag << 3 | _BYTES) + varint(len(data)) + data


def fixed32(tag: int, value: int) -> bytes:
  """Writes a fixed32 field."""
  return varint(tag << 3 | _FIXED32) + value.to_bytes(4, "little")
