# SPDX-License-Identifier: Apache-2.0
"""Reads rows from `loss_scale.jsonl`, which has a JSON object in each line."""

from __future__ import annotations

from collections.abc import Mapping
import contextlib
import gc
import json
import os
from typing import Any
from typing import BinaryIO

from tf_compat_lossscale.monitoring import rows
from tf_compat_lossscale.monitoring.rows import Blame
from tf_compat_lossscale.monitoring.rows import LogError
from tf_compat_lossscale.monitoring.rows import Row

# Bytes that are compared, to notice that a run rewrote what was read.
_TAIL = 256
_LONGEST_LINE = 1 << 24
_CHUNK = 1 << 18
_DECODER = json.JSONDecoder()


class JsonReader:
  """A reader that goes on where it stopped.

  Attributes:
    rows: The rows so far.
    restarts: How many times the run was started again.
    config: The newest configuration of the loss scale; empty if unknown.
  """

  def __init__(self, path: str) -> None:
    """Creates a reader of a file, which need not exist yet."""
    self._path = path
    self._forget()

  def update(self) -> bool:
    """Reads what is new, and returns whether there was anything.

    A run that starts again may cut the file and write other lines: then the
    reader begins anew. An unfinished last line is left for the next call.

    Raises:
      LogError: A line is wrong; the message names the file and the line.
      OSError: The file cannot be read.
    """
    with open(self._path, "rb") as file:
      before = self._offset
      if before and not self._goes_on(file.fileno()):
        self._forget()
        before = -1
      file.seek(self._offset)
      is_collecting = gc.isenabled()
      gc.disable()  # Rows have no cycles, and a search for some takes long.
      try:
        self._read(file)
      except LogError:
        self._forget()
        raise
      finally:
        if is_collecting:
          gc.enable()
    return self._offset != before

  def finish(self) -> None:
    """Reads a last line that has no line feed, as some editors leave it."""
    with contextlib.suppress(LogError):
      if self._unfinished:
        self._add(self._unfinished)

  def _forget(self) -> None:
    """Begins anew."""
    self.rows: list[Row] = []
    self.restarts = 0
    self.config: Mapping[str, Any] = {}
    self._offset = self._number = 0
    self._last = -1  # The step of the last row.
    self._tail = self._unfinished = b""
    self._blame: tuple[Blame, ...] | None = None

  def _read(self, file: BinaryIO) -> None:
    """Reads all whole lines that follow in a file."""
    rest = b""
    while chunk := file.read(_CHUNK):
      *lines, rest = (rest + chunk).split(b"\n")
      if len(rest) > _LONGEST_LINE:
        raise LogError(
          f"{self._path}:{self._number + len(lines) + 1}: the line has more "
          f"than {_LONGEST_LINE} bytes: {_quote(rest)}"
        )
      for line in lines:
        self._number += 1
        if line and not line.isspace():
          self._add(line)
        self._offset += len(line) + 1
        self._tail = line[-_TAIL:] + b"\n"
    self._unfinished = rest

  def _goes_on(self, descriptor: int) -> bool:
    """Returns whether the file still has what was read last."""
    if os.fstat(descriptor).st_size < self._offset:
      return False
    start = self._offset - len(self._tail)
    return os.pread(descriptor, len(self._tail), start) == self._tail

  def _add(self, line: bytes) -> None:
    """Appends the row of a line."""
    try:
      record = _parse(line)
      if type(record) is not dict:
        raise ValueError("this is no JSON object")
      row = rows.decode(record)
      if row.step <= self._last:
        raise ValueError(
          f"step {row.step} comes after step {self._last}; let each run write "
          "into a folder of its own"
        )
    except (ValueError, RecursionError) as error:
      raise LogError(
        f"{self._path}:{self._number}: {_explain(error)}: {_quote(line)}"
      ) from None
    self._last = row.step
    self.rows.append(self._complete(row))

  def _complete(self, row: Row) -> Row:
    """Returns a row with the blame that an earlier line has."""
    if row.config is not None:
      self.restarts += bool(self.rows)
      self.config = row.config
      self._blame = None
    if row.blame is not None:
      self._blame = row.blame
    elif row.gradients is not None:
      return row._replace(blame=self._blame)
    elif row.applied is False:
      self._blame = None  # Nobody looked at the gradients.
    return row


def _parse(line: bytes) -> Any:
  """Returns what a line holds, as `json.loads` does, which takes longer.

  Raises:
    ValueError: The line is no JSON, or no UTF-8.
  """
  try:
    text = line.decode("utf-8")
    record, end = _DECODER.raw_decode(text)
    if end == len(text):
      return record
  except ValueError:
    pass  # The other one says what is wrong.
  return json.loads(line)


def _explain(error: Exception) -> str:
  """Returns what is wrong with a line."""
  if isinstance(error, UnicodeDecodeError):
    return "this is no UTF-8 text"
  if isinstance(error, (json.JSONDecodeError, RecursionError)):
    return "this is no JSON object"
  return str(error)


def _quote(line: bytes) -> str:
  """Returns the begin of a line, as Python writes a text."""
  text = repr(line[:200].decode("utf-8", "replace").strip())
  return text if len(text) <= 60 else f"{text[:56]}..."
