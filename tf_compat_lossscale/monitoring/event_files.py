# SPDX-License-Identifier: Apache-2.0
"""Reads and writes TensorBoard's event files, without TensorFlow.

An event file is a row of records: the data's length in 8 bytes, the length's
masked checksum in 4, the data, the data's masked checksum in 4. The data is a
protocol buffer `Event`. TensorBoard reads the event files of a folder in the
order of their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
import os
import re
import socket
import struct
import time
from typing import BinaryIO
from typing import NamedTuple

from tf_compat_lossscale._core import whole_files
from tf_compat_lossscale._core.bytes import crc32c
from tf_compat_lossscale._core.bytes import wire

PREFIX = "events.out.tfevents."
SUFFIX = ".loss_scale"

_VERSION = "brain.Event:2"
_START = 1  # SessionLog.START.
_HEAD = struct.Struct("<QI")  # The length and its checksum.
_CHECKSUM = struct.Struct("<I")
_NAME = re.compile(re.escape(PREFIX) + r"(\d+)\..+")


class Event(NamedTuple):
  """An event of a file.

  Attributes:
    step: The step.
    wall_time: The time, in seconds since the epoch.
    scalars: Tag -> value, for the scalars of the event.
    is_start: Whether a session starts here: readers drop all earlier events
      that have this step or a later step.
    end: The position in the file at which the next event begins.
  """

  step: int
  wall_time: float
  scalars: dict[str, float]
  is_start: bool
  end: int


class EventFile:
  """A new event file, which holds whole records at any time.

  Attributes:
    path: The file's path.
  """

  def __init__(self, folder: str | os.PathLike[str]) -> None:
    """Creates the file, with a name after those of all event files there.

    Args:
      folder: A folder that exists.

    Raises:
      OSError: The file cannot be created or written.
    """
    self._file: int | None
    self.path, self._file = _create_in(os.fspath(folder))
    self._size = 0
    try:
      self._write(_encode(time.time(), 0, wire.encode_field(3, _VERSION)))
    except BaseException:
      self.close()
      os.unlink(self.path)
      raise

  def add_scalars(
    self, step: int, values: Mapping[str, float], wall_time: float
  ) -> None:
    """Writes an event with scalars.

    Args:
      step: The step, an int64.
      values: Tag -> value, which becomes a float32. Numbers that float32 does
        not have become infinities.
      wall_time: The time, in seconds since the epoch.

    Raises:
      OSError: The disk is full, or there is another error; the file is as
        before the call.
      ValueError: The file is closed.
    """
    summary = b"".join(
      wire.encode_field(
        1,
        wire.encode_field(1, tag) + wire.encode_fixed32(2, _float_bits(value)),
      )
      for tag, value in values.items()
    )
    self._write(_encode(wall_time, step, wire.encode_field(5, summary)))

  def add_start(self, step: int, wall_time: float) -> None:
    """Writes that a session starts, whose first step is `step`.

    Readers drop all events of earlier files from that step on.

    Args:
      step: The step, an int64.
      wall_time: The time, in seconds since the epoch.

    Raises:
      OSError: The disk is full, or there is another error; the file is as
        before the call.
      ValueError: The file is closed.
    """
    log = wire.encode_field(1, _START)
    self._write(_encode(wall_time, step, wire.encode_field(7, log)))

  def __enter__(self) -> EventFile:
    """Returns the file, which closes when the context ends."""
    return self

  def __exit__(self, *error: object) -> None:
    """Closes the file."""
    self.close()

  def close(self) -> None:
    """Closes the file. Closing a closed file does nothing."""
    if self._file is not None:
      file, self._file = self._file, None
      os.close(file)

  def _write(self, data: bytes) -> None:
    """Appends a record, or leaves the file as it is."""
    if self._file is None:
      raise ValueError(f"{self.path}: the event file is closed")
    record = _frame(data)
    self._size = whole_files.append(self._file, self._size, record, self.path)


def list_files(folder: str | os.PathLike[str]) -> list[str]:
  """Returns the paths of a folder's event files, in TensorBoard's order.

  Raises:
    OSError: The folder cannot be read.
  """
  names = sorted(name for name in os.listdir(folder) if is_event_file(name))
  return [os.path.join(folder, name) for name in names]


def is_event_file(path: str | os.PathLike[str]) -> bool:
  """Returns whether a path is named as event files are."""
  return "tfevents" in os.path.basename(os.fspath(path))


def read_events(
  path: str | os.PathLike[str], offset: int = 0
) -> Iterator[Event]:
  """Yields the events of a file, each when it is asked for.

  A writer that was killed, or that goes on writing, may leave a part of a
  record at the end of the file: there the events end, too.

  Args:
    path: The file.
    offset: The position to begin at: 0, or `end` of an event.

  Raises:
    OSError: The file cannot be read.
    ValueError: A checksum or a record is wrong; the message names the file and
      the position.
  """
  with open(path, "rb") as file:
    size = os.fstat(file.fileno()).st_size
    file.seek(offset)
    while True:
      try:
        data = _read_record(file, size - offset)
        if data is None:
          return
        event = _decode(data, offset + _HEAD.size + len(data) + _CHECKSUM.size)
      except ValueError as error:
        raise ValueError(
          f"{os.fspath(path)}: the record at byte {offset} is damaged: {error}"
        ) from None
      offset = event.end
      yield event


def _create_in(folder: str) -> tuple[str, int]:
  """Creates a file whose name comes after those of a folder's event files.

  The clock may have been set back since a run before, and a process may open
  several files in a second.
  """
  found = (_NAME.fullmatch(name) for name in os.listdir(folder))
  # Names sort as their numbers do if all numbers have ten digits.
  seconds = (int(match[1]) for match in found if match and len(match[1]) == 10)
  second = max([int(time.time()), *(number + 1 for number in seconds)])
  flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
  while True:
    name = f"{PREFIX}{second:010d}.{socket.gethostname()}.{os.getpid()}{SUFFIX}"
    path = os.path.join(folder, name)
    try:
      return path, os.open(path, flags, 0o666)
    except FileExistsError:
      second += 1


def _frame(data: bytes) -> bytes:
  """Returns a record."""
  length = struct.pack("<Q", len(data))
  return b"".join([length, _pack_checksum(length), data, _pack_checksum(data)])


def _pack_checksum(data: bytes) -> bytes:
  """Returns the masked checksum of bytes."""
  return _CHECKSUM.pack(crc32c.mask(crc32c.crc32c(data)))


def _encode(wall_time: float, step: int, what: bytes) -> bytes:
  """Returns an `Event`.

  Args:
    wall_time: The time, in seconds since the epoch.
    step: The step.
    what: The encoded field that says what happened.
  """
  (bits,) = struct.unpack("<Q", struct.pack("<d", wall_time))
  return wire.encode_fixed64(1, bits) + wire.encode_field(2, step) + what


def _float_bits(value: float) -> int:
  """Returns the bits of a number as a float32."""
  try:
    data = struct.pack("<f", value)
  except OverflowError:
    data = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
  return int.from_bytes(data, "little")


def _read_record(file: BinaryIO, left: int) -> bytes | None:
  """Returns the data of the next record.

  Args:
    file: The file, at the begin of a record.
    left: The number of bytes up to the file's end.

  Returns:
    The data; None if the file ends before the record does.
  """
  head = file.read(_HEAD.size)
  if len(head) < _HEAD.size:
    return None
  length, checksum = _HEAD.unpack(head)
  _check(head[:8], checksum, "its length")
  if length > left - _HEAD.size - _CHECKSUM.size:
    return None
  data = file.read(length)
  tail = file.read(_CHECKSUM.size)
  if len(tail) < _CHECKSUM.size:
    return None
  _check(data, _CHECKSUM.unpack(tail)[0], "its data")
  return data


def _check(data: bytes, checksum: int, what: str) -> None:
  """Compares bytes with their masked checksum."""
  found = crc32c.mask(crc32c.crc32c(data))
  if found != checksum:
    raise ValueError(
      f"{what} should have the checksum {checksum:#010x}, but has {found:#010x}"
    )


def _decode(data: bytes, end: int) -> Event:
  """Returns the event of a record."""
  step, wall_time, is_start = 0, 0.0, False
  scalars: dict[str, float] = {}
  for tag, value in wire.read_fields(data):
    if tag == 1:
      wall_time = _as_double(wire.get_number(value))
    elif tag == 2:
      step = wire.decode_signed(wire.get_number(value))
    elif tag == 5:
      scalars.update(_read_summary(wire.get_bytes(value)))
    elif tag == 7:
      is_start = (1, _START) in wire.read_fields(wire.get_bytes(value))
  return Event(step, wall_time, scalars, is_start, end)


def _read_summary(data: memoryview) -> Iterator[tuple[str, float]]:
  """Yields (tag, value) for each scalar of a summary."""
  for tag, value in wire.read_fields(data):
    if tag != 1:
      continue
    name, number = "", None
    for part, content in wire.read_fields(wire.get_bytes(value)):
      if part == 1:
        name = wire.get_text(content)
      elif part == 2:
        number = _as_float(wire.get_number(content))
      elif part == 8:
        number = _read_tensor(wire.get_bytes(content))
    if number is not None:
      yield name, number


# A `DataType` of numbers -> the layout of `tensor_content`, and the field of a
# `TensorProto` that has the number if there is no `tensor_content`.
_NUMBERS = {1: ("<f", 5), 2: ("<d", 6), 3: ("<i", 7), 9: ("<q", 10)}


def _read_tensor(data: memoryview) -> float | None:
  """Returns the number of a `TensorProto`; None if it is no scalar."""
  dtype, content = 0, None
  found: dict[int, int | memoryview] = {}
  for tag, value in wire.read_fields(data):
    if tag == 1:
      dtype = wire.get_number(value)
    elif tag == 2:
      # A dimension, or the mark that the rank is unknown.
      if any(True for _ in wire.read_fields(wire.get_bytes(value))):
        return None
    elif tag == 4:
      content = wire.get_bytes(value)
    else:
      found[tag] = value
  if dtype not in _NUMBERS:
    return None
  layout, field = _NUMBERS[dtype]
  if content is not None and len(content) == struct.calcsize(layout):
    return float(struct.unpack(layout, content)[0])
  return _read_number(dtype, found[field]) if field in found else 0.0


def _read_number(dtype: int, value: int | memoryview) -> float:
  """Returns the number of a repeated field, which may be packed."""
  if isinstance(value, memoryview):
    if dtype in (1, 2):
      layout = _NUMBERS[dtype][0]
      return float(struct.unpack_from(layout, value)[0]) if value else 0.0
    value = wire.read_varint(value, 0)[0] if value else 0
  if dtype == 1:
    return _as_float(value)
  return _as_double(value) if dtype == 2 else float(wire.decode_signed(value))


def _as_float(bits: int) -> float:
  """Returns the float32 that has these bits."""
  return struct.unpack("<f", (bits & 0xFFFFFFFF).to_bytes(4, "little"))[0]


def _as_double(bits: int) -> float:
  """Returns the float64 that has these bits."""
  return struct.unpack("<d", bits.to_bytes(8, "little"))[0]
