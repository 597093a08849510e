# SPDX-License-Identifier: Apache-2.0
"""Decompresses Snappy, by which old TensorFlow compressed blocks of tables.

A stream has the number of its decompressed bytes, then literals and copies of
what was decompressed before. See github.com/google/snappy,
format_description.txt.
"""

from __future__ import annotations

from tf_compat_lossscale._core.bytes import wire as _wire

MOST = 22  # Bytes that one byte can become: a copy makes at most 64 bytes of 3.


def decompress(data: bytes | memoryview) -> bytes:
  """Decompresses a stream.

  Time and memory are bounded by the stream's size.

  Args:
    data: The stream.

  Returns:
    The decompressed bytes.

  Raises:
    ValueError: The bytes are no such stream.
  """
  data = memoryview(data)
  size, at = _wire.read_varint(data, 0)
  if size > MOST * len(data):
    raise ValueError(f"{len(data)} bytes cannot be {size} compressed bytes")
  out = bytearray()
  while at < len(data):
    tag = data[at]
    at += 1
    kind = tag & 3
    if kind == 0:
      length = (tag >> 2) + 1
      if length > 60:  # The length less one follows, in up to 4 bytes.
        more = length - 60
        length = int.from_bytes(data[at : at + more], "little") + 1
        at += more
      if at + length > len(data) or len(out) + length > size:
        raise ValueError("compressed bytes are cut off")
      out += data[at : at + length]
      at += length
      continue
    if kind == 1:
      width, length = 1, (tag >> 2 & 7) + 4
      high = tag >> 5 << 8
    else:
      width, length, high = (2 if kind == 2 else 4), (tag >> 2) + 1, 0
    if at + width > len(data):
      raise ValueError("compressed bytes are cut off")
    offset = high | int.from_bytes(data[at : at + width], "little")
    at += width
    begin = len(out) - offset
    if not offset or begin < 0 or len(out) + length > size:
      raise ValueError("a copy in compressed bytes goes beyond their ends")
    if offset >= length:
      out += out[begin : begin + length]
    else:  # The copy reads what it writes, so it repeats the last bytes.
      out += (out[begin:] * (length // offset + 1))[:length]
  if len(out) != size:
    raise ValueError("compressed bytes are cut off")
  return bytes(out)
