# SPDX-License-Identifier: Apache-2.0
"""Computes CRC-32C, the checksum of TensorFlow's checkpoints.

The polynomial is Castagnoli's (RFC 3720, appendix B.4). The package
google-crc32c, if it is installed, computes the checksum by the processor's
instruction. Otherwise NumPy does: the checksum is linear in the data, so NumPy
computes the checksums of many short stretches side by side, and then joins them
two by two.
"""

from __future__ import annotations

from collections.abc import Callable
import functools
from typing import TypeAlias
import warnings

import numpy as np

_POLYNOMIAL = 0x82F63B78
_ONES = 0xFFFFFFFF
_WORDS = 64  # The number of 4-byte words in a stretch.
_LEVELS = 12  # Up to 2**12 stretches are computed side by side.
_SHORT = 2048  # For fewer bytes, building the tables takes longer.
# A linear map of 32 bits: its values for the lower half, and for the upper.
_Map: TypeAlias = tuple[np.ndarray, np.ndarray]


def _find_extend() -> Callable[[int, bytes], int] | None:
  """Returns google-crc32c's function; None if its C code is not installed.

  In Python, without its C code, that package is slower than NumPy.
  """
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # It warns if its C code is missing.
    try:
      import google_crc32c
    except ImportError:
      return None
  if google_crc32c.implementation != "c":
    return None
  extend: Callable[[int, bytes], int] = google_crc32c.extend
  return extend


_extend = _find_extend()
_COPIED = 1 << 20  # Bytes of a view that are copied at a time.


def crc32c(data: bytes | memoryview, value: int = 0) -> int:
  """Computes the checksum of bytes.

  Args:
    data: The bytes.
    value: The checksum of the bytes that precede them.

  Returns:
    The checksum of the preceding bytes and `data`.
  """
  if _extend is None:
    return _compute_by_numpy(memoryview(data).cast("B"), value)
  if isinstance(data, bytes):
    return _extend(value, data)
  data = data.cast("B")
  for at in range(0, len(data), _COPIED):  # It takes nothing but `bytes`.
    value = _extend(value, bytes(data[at : at + _COPIED]))
  return value


def _compute_by_numpy(data: memoryview, value: int) -> int:
  """Computes the checksum as `crc32c` does."""
  register = value ^ _ONES
  begin = 0
  if len(data) >= _SHORT:
    joins = _map_stretches()
    for level in range(_LEVELS, -1, -1):
      size = 4 * _WORDS << level
      while len(data) - begin >= size:
        register = int(_apply(joins[level], np.array([register]))[0])
        register ^= _process_stretches(data[begin : begin + size], level)
        begin += size
  table = _make_byte_table()
  for byte in data[begin:]:
    register = table[(register ^ byte) & 255] ^ (register >> 8)
  return register ^ _ONES


def mask(crc: int) -> int:
  """Returns a checksum as files store it.

  A checksum of data that contains checksums would be weak without the mask.
  """
  return ((crc >> 15 | crc << 17) + 0xA282EAD8) & _ONES


def _process_stretches(data: memoryview, level: int) -> int:
  """Returns the register after 2**level stretches, starting from 0."""
  words = np.frombuffer(data, "<u4").reshape(-1, _WORDS).T.copy()
  lower, upper = _map_zeros(4)
  registers = np.zeros(1 << level, np.uint32)
  for row in words:
    registers ^= row
    registers = lower[registers & 0xFFFF] ^ upper[registers >> np.uint32(16)]
  for join in _map_stretches()[:level]:
    registers = _apply(join, registers[0::2]) ^ registers[1::2]
  return int(registers[0])


def _apply(linear: _Map, registers: np.ndarray) -> np.ndarray:
  """Applies a linear map to each register."""
  return linear[0][registers & 0xFFFF] ^ linear[1][registers >> 16]


@functools.cache
def _make_byte_table() -> list[int]:
  """Returns, for each byte, the register that 0 becomes by that byte."""
  table = []
  for register in range(256):
    for _ in range(8):
      register = register >> 1 ^ (_POLYNOMIAL if register & 1 else 0)
    table.append(register)
  return table


@functools.cache
def _map_zeros(count: int) -> _Map:
  """Returns the map that `count` zero bytes apply to a register."""
  table = np.array(_make_byte_table(), np.uint32)
  halves = []
  for shift in (0, 16):
    registers = np.arange(1 << 16, dtype=np.uint32) << np.uint32(shift)
    for _ in range(count):
      registers = table[registers & 255] ^ registers >> np.uint32(8)
    halves.append(registers)
  return halves[0], halves[1]


@functools.cache
def _map_stretches() -> list[_Map]:
  """Returns, for each level, the map that 2**level stretches of zeros apply."""
  linear = _map_zeros(4)
  maps = []
  for _ in range(_LEVELS + _WORDS.bit_length()):
    maps.append(linear)
    linear = (_apply(linear, linear[0]), _apply(linear, linear[1]))
  return maps[_WORDS.bit_length() - 1 :]
