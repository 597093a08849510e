# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the wire format of protocol buffers, as checkpoints have it.

TensorFlow has message classes for that, but importing TensorFlow takes seconds.
Malformed input raises ValueError. See
protobuf.dev/programming-guides/encoding for the format.
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_BYTE = [bytes([value]) for value in range(128)]  # Varints of one byte.


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
  """Reads a varint; returns its value and the position of its end."""
  value = shift = 0
  while at < len(data) and shift < 64:
    byte = data[at]
    at += 1
    value |= (byte & 127) << shift
    if byte < 128:
      return value, at
    shift += 7
  raise ValueError("a number is cut off")


def encode_varint(value: int) -> bytes:
  """Returns a varint; negative numbers have 64 bits, in two's complement."""
  if 0 <= value < 128:
    return _BYTE[value]
  value &= 2**64 - 1
  out = bytearray()
  while value > 127:
    out.append(value & 127 | 128)
    value >>= 7
  out.append(value)
  return bytes(out)


def decode_signed(value: int) -> int:
  """Returns the value of an int64 field whose varint is `value`."""
  return value - 2**64 if value >= 2**63 else value


def read_fields(
  data: bytes | memoryview,
) -> Iterator[tuple[int, int | memoryview]]:
  """Yields a message's fields in their order: (tag, value).

  The tag is the field's number. Values that are numbers of any kind are
  unsigned integers. Strings, bytes and messages are memoryviews.
  """
  view = memoryview(data)
  at = 0
  while at < len(view):
    head = view[at]
    at += 1
    if head > 127:  # Most have one byte.
      head, at = read_varint(view, at - 1)
    tag, kind = head >> 3, head & 7
    if kind == _VARINT:
      value, at = read_varint(view, at)
      yield tag, value
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
    yield tag, part if kind == _BYTES else int.from_bytes(part, "little")


def find(data: bytes | memoryview, *tags: int) -> Iterator[int | memoryview]:
  """Yields the values of the fields at a path of tags.

  Args:
    data: The message.
    *tags: The tags of fields with messages, one in another; the last tag is
      that of any field.
  """
  first, *rest = tags
  for tag, value in read_fields(data):
    if tag == first and rest:
      yield from find(get_bytes(value), *rest)
    elif tag == first:
      yield value


def get_text(value: int | memoryview) -> str:
  """Returns a string field's value."""
  return get_bytes(value).tobytes().decode("utf-8")


def get_bytes(value: int | memoryview) -> memoryview:
  """Returns the value of a field with bytes or a message."""
  if isinstance(value, int):
    raise ValueError("a number stands where a message should")
  return value


def get_number(value: int | memoryview) -> int:
  """Returns a number field's value."""
  if not isinstance(value, int):
    raise ValueError("a message stands where a number should")
  return value


def encode_field(tag: int, value: int | bytes | str) -> bytes:
  """Returns a field with a varint or with bytes."""
  if isinstance(value, int):
    return encode_varint(tag << 3 | _VARINT) + encode_varint(value)
  data = value.encode("utf-8") if isinstance(value, str) else value
  return encode_varint(tag << 3 | _BYTES) + encode_varint(len(data)) + data


def encode_fixed32(tag: int, value: int) -> bytes:
  """Returns a field of the kind fixed32."""
  return encode_varint(tag << 3 | _FIXED32) + value.to_bytes(4, "little")
