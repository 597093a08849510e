# SPDX-License-Identifier: Apache-2.0
"""Reads a run's loss scale back from TensorFlow's event files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import os
import struct
from typing import Any
from typing import NamedTuple

from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import terminal

_TAG = "loss_scale/value"
_SKIPPED = "loss_scale/skipped_total"
_FLOAT32 = 1  # Of the enum DataType.
_MANY_BYTES = 2**12  # A checksum in Python takes about a second for 2**20.


class Row(NamedTuple):
  """A step, the scale after it, and the steps skipped since the last row."""

  step: int
  scale: float
  skipped: int


class Log(NamedTuple):
  """What event files say of a loss scale.

  Attributes:
    name: The folder or file that was read.
    rows: The rows in the order of the steps; at least one.
    tells_skips: Whether the files tell skipped from good steps. If not, a step
      counts as skipped if the scale falls, and others may have been skipped.
    notes: Sentences about what was not read.
  """

  name: str
  rows: list[Row]
  tells_skips: bool = True
  notes: Sequence[str] = ()

  def count_skipped(self) -> tuple[int, float, str]:
    """Returns how many steps were skipped, their share, and words before."""
    count = sum(row.skipped for row in self.rows)
    steps = max(self.rows[-1].step - self.rows[0].step, 1)
    words = "" if self.tells_skips else "at least "
    return count, min(count / steps, 1.0), words


def add_arguments(parser: errors.Parser) -> None:
  """Adds the arguments that say what to read."""
  parser.add_argument(
    "dir",
    metavar="DIR",
    help="the output_dir of LossScaleHook, or another folder with event files "
    "of one run, also in folders below, or an event file",
  )
  parser.add_argument(
    "--tag",
    default=_TAG,
    help="the scalar that is the loss scale (default: %(default)s); without "
    f"{_SKIPPED}, a step counts as skipped if the scale falls",
  )


def read(arguments: argparse.Namespace) -> Log:
  """Returns what a folder's event files say, or those of a folder below.

  A session that starts at a step replaces what earlier sessions wrote from that
  step on.
  """
  top, tag = arguments.dir, arguments.tag
  gfile, parse = _load_library(top)
  if not gfile.exists(top):
    raise errors.Mistake(f"{top}: there is no such file or folder")
  top = top.rstrip("/") or top
  paths = [
    os.path.join(folder, name)
    for folder, _, names in sorted(gfile.walk(top))
    for name in sorted(names)  # The names begin with the time.
    if "tfevents" in name
  ]
  if not paths and gfile.isdir(top):
    raise errors.Mistake(f"{top}: there is no event file")
  logs: dict[str, Log] = {}
  tags: set[str] = set()
  notes: list[str] = []
  for path in paths or [top]:
    with gfile.GFile(path, "rb") as file:
      records = _read_records(file, path, tag.encode(), notes)
      rows, tells_skips = _list_rows(map(parse, records), tag, tags)
    if rows:
      name = os.path.dirname(path) if paths else top
      _, old, also, _ = logs.get(name) or Log(name, [], False)
      rows = [row for row in old if row.step < rows[0].step] + rows
      logs[name] = Log(name, rows, tells_skips or also)
  if not logs:
    choice = ", ".join(sorted(tags)) or "none"
    message = f"{top}: there is no scalar {tag}; choose one by --tag, of: "
    raise errors.Mistake(". ".join([message + choice, *notes]))
  own, *others = logs
  if others and own != top:
    raise errors.Mistake(f"{top}: choose a folder, of: {', '.join(logs)}")
  if others:
    notes.append(f"Folders below have loss scales, too: {', '.join(others)}.")
  return logs[own]._replace(notes=notes)


def _load_library(path: str) -> tuple[Any, Any]:
  """Returns what finds and opens files, and what parses an event.

  TensorBoard's modules load in a second, TensorFlow in up to twenty.
  """
  if "://" not in path:
    with contextlib.suppress(ImportError):
      from tensorboard.compat.proto import event_pb2
      from tensorboard.compat.tensorflow_stub.io import gfile

      return gfile, event_pb2.Event.FromString
  with terminal.quiet_tensorflow():
    import tensorflow as tf

  return tf.io.gfile, tf.compat.v1.Event.FromString


def _read_records(
  file: Any, path: str, tag: bytes, notes: list[str]
) -> Iterator[bytes]:
  """Yields the records of an event file that are short or have the tag.

  A record is its length, the checksum of that, its data, and the checksum of
  that. The readers of TensorFlow and TensorBoard end at a damaged record.
  """
  # A run that goes on, or was killed, has not finished its last record.
  while len(head := file.read(12)) == 12:
    length, checksum = struct.unpack("<QI", head)
    if checksum != _sum(head[:8]):
      notes.append(f"{path}: what follows a damaged record was not read.")
      return
    data, end = file.read(length), file.read(4)
    if len(end) == 4 and (length <= _MANY_BYTES or tag in data):
      if struct.unpack("<I", end) == (_sum(data),):
        yield data
      else:
        notes.append(f"{path}: a damaged record was left out.")


def _list_rows(
  events: Iterator[Any], tag: str, tags: set[str]
) -> tuple[list[Row], bool]:
  """Returns the rows of a file, and whether it tells which steps were skipped.

  The names of the file's scalars are added to `tags`.
  """
  rows: dict[int, Row] = {}
  scale = total = 0.0
  tells_skips = False
  for event in events:
    found = {}
    for value in event.summary.value:
      tensor = value.tensor
      if value.HasField("simple_value"):
        found[value.tag] = value.simple_value
      elif tensor.dtype == _FLOAT32 and not tensor.tensor_shape.dim:
        content = tensor.tensor_content or bytes(4)
        found[value.tag] = (*tensor.float_val, *struct.unpack("<f", content))[0]
    tags.update(found)
    if tag in found:
      before, scale = scale, found[tag]
      skipped = int(scale < before)
      if _SKIPPED in found and tag == _TAG:
        skipped, total = int(found[_SKIPPED] - total), found[_SKIPPED]
        tells_skips = True
      rows[event.step] = Row(event.step, scale, skipped)
  return [rows[step] for step in sorted(rows)], tells_skips


def _sum(data: bytes) -> int:
  """Returns the checksum of a record: a CRC-32C, rotated."""
  crc = 0xFFFFFFFF
  for byte in data:
    crc = _SUMS[(crc ^ byte) & 0xFF] ^ crc >> 8
  crc ^= 0xFFFFFFFF
  return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


_SUMS = [*range(256)]
for _ in range(8):
  _SUMS = [x >> 1 ^ (x & 1) * 0x82F63B78 for x in _SUMS]
