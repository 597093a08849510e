# SPDX-License-Identifier: Apache-2.0
"""Reads rows from `loss_scale.jsonl`, which has a JSON object in each line."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import gc
import json
import math
import os
from typing import Any
from typing import BinaryIO

from tf_compat_lossscale.monitoring.rows import Blame
from tf_compat_lossscale.monitoring.rows import GLOBAL_STEP
from tf_compat_lossscale.monitoring.rows import GOOD_STEPS
from tf_compat_lossscale.monitoring.rows import LogError
from tf_compat_lossscale.monitoring.rows import RARE
from tf_compat_lossscale.monitoring.rows import Row
from tf_compat_lossscale.monitoring.rows import SCALE
from tf_compat_lossscale.monitoring.rows import SKIPPED
from tf_compat_lossscale.monitoring.rows import Underflow

_COUNTS = (int, type(None))
_WORDS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
# Bytes that are compared, to notice that a run rewrote what was read.
_TAIL = 256
_LONGEST_LINE = 1 << 24
_CHUNK = 1 << 18


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
      try:
        with _pause_collector():
          self._read(file)
      except LogError:
        self._forget()
        raise
    return self._offset != before

  def finish(self) -> None:
    """Takes a last line that only lacks its end, as editors leave it."""
    with contextlib.suppress(LogError):
      if self._unfinished:
        self._add(self._unfinished)

  def _forget(self) -> None:
    """Begins anew."""
    self.rows: list[Row] = []
    self.restarts = 0
    self.config: dict[str, Any] = {}
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
      if lines:
        self._add_all(lines)
    self._unfinished = rest

  def _add_all(self, lines: list[bytes]) -> None:
    """Appends the rows of lines."""
    for line, record in zip(lines, _parse_all(lines)):
      self._number += 1
      if record is None or not RARE.isdisjoint(record):
        if line and not line.isspace():
          self._add(line)
      elif not self._add_common(record):
        self._add(line)
    self._offset += sum(map(len, lines)) + len(lines)
    self._tail = lines[-1][-_TAIL:] + b"\n"

  def _add_common(self, record: dict[str, Any]) -> bool:
    """Appends the row of an applied step without more, or returns False."""
    get = record.get
    step, scale, time = get("step"), get(SCALE), get("time")
    good, skipped, global_step = map(get, (GOOD_STEPS, SKIPPED, GLOBAL_STEP))
    if (
      type(step) is not int
      or step <= self._last
      or get("applied") is not True
      or type(scale) is not float
      or type(time) is not float
      or type(good) not in _COUNTS
      or type(skipped) not in _COUNTS
      or type(global_step) not in _COUNTS
    ):
      return False
    self._last = step
    self.rows.append(Row(step, True, scale, good, skipped, global_step, time))
    return True

  def _goes_on(self, descriptor: int) -> bool:
    """Returns whether the file still has what was read last."""
    if os.fstat(descriptor).st_size < self._offset:
      return False
    start = self._offset - len(self._tail)
    return os.pread(descriptor, len(self._tail), start) == self._tail

  def _add(self, line: bytes) -> None:
    """Appends the row of a line."""
    try:
      record = json.loads(line)
      if type(record) is not dict:
        raise ValueError("this is no JSON object")
      row = self._make_row(record)
    except (ValueError, RecursionError) as error:
      raise LogError(
        f"{self._path}:{self._number}: {_explain(error)}: {_quote(line)}"
      ) from None
    self._last = row.step
    self.rows.append(row)

  def _make_row(self, record: dict[str, Any]) -> Row:
    """Returns the row of a JSON object."""
    step = record.get("step")
    if type(step) is not int or step < 0:
      raise ValueError("`step` must be a whole number from 0 on")
    if step <= self._last:
      raise ValueError(
        f"step {step} comes after step {self._last}; let each run write into "
        "a folder of its own"
      )
    applied = record.get("applied")
    if applied is not None and type(applied) is not bool:
      raise ValueError("`applied` must be true or false")
    scale = record.get(SCALE)
    if type(scale) is not float:
      scale = _read_number(SCALE, scale)
    row = Row(
      step,
      applied,
      scale,
      _read_count(GOOD_STEPS, record.get(GOOD_STEPS)),
      _read_count(SKIPPED, record.get(SKIPPED)),
      _read_count(GLOBAL_STEP, record.get(GLOBAL_STEP)),
      _read_time(record.get("time")),
    )
    if applied is False or not RARE.isdisjoint(record):
      return self._add_rare(row, record)
    return row

  def _add_rare(self, row: Row, record: dict[str, Any]) -> Row:
    """Returns a row with what few lines have."""
    config, blame, stuck = (record.get(k) for k in ("config", "blame", "stuck"))
    if config is not None:
      if not isinstance(config, dict):
        raise ValueError("`config` must be an object")
      self.restarts += bool(self.rows)
      self.config = config
      self._blame = None
    if stuck is not None and not isinstance(stuck, str):
      raise ValueError("`stuck` must be a text")
    if blame is not None:
      self._blame = _read_blame(blame)
    elif row.applied is False and "gradients" not in record:
      self._blame = None  # Nobody looked at the gradients.
    underflow = record.get("underflow")
    return row._replace(
      blame=self._blame if "gradients" in record else None,
      underflow=None if underflow is None else _read_underflow(underflow),
      config=config,
      stuck=stuck,
    )


def _parse_all(lines: list[bytes]) -> list[dict[str, Any] | None]:
  """Returns the objects of lines; None for all if a line is wrong.

  Parsing many lines at once takes half the time.
  """
  with contextlib.suppress(ValueError, RecursionError):
    records = json.loads(b"[%b]" % b",".join(lines))
    if len(records) == len(lines) and {*map(type, records)} == {dict}:
      return records
  return [None] * len(lines)


@contextlib.contextmanager
def _pause_collector() -> Iterator[None]:
  """Makes many objects without a search for cycles, which there are not.

  The search would take more time than reading does.
  """
  was_enabled = gc.isenabled()
  gc.disable()
  try:
    yield
  finally:
    if was_enabled:
      gc.enable()


def _read_blame(value: Any) -> tuple[Blame, ...]:
  """Returns the gradients of `blame`."""
  if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
    raise ValueError("`blame` must be a list of objects")
  return tuple(
    Blame(
      name=_read_name(item.get("name")),
      inf=_read_count("inf", item.get("inf")) or 0,
      nan=_read_count("nan", item.get("nan")) or 0,
      size=_read_count("size", item.get("size")) or 0,
      largest=_read_number("largest", item.get("largest", "nan")),
    )
    for item in value
  )


def _read_underflow(value: Any) -> Underflow:
  """Returns the shares of `underflow`."""
  gradients = value.get("gradients", {}) if isinstance(value, dict) else None
  if not isinstance(gradients, dict) or not all(
    isinstance(pair, list) and len(pair) == 2 for pair in gradients.values()
  ):
    raise ValueError(
      "`underflow` must be an object, and its `gradients` pairs by name"
    )
  return Underflow(
    _read_number("zeros", value.get("zeros")),
    _read_number("largest", value.get("largest")),
    {
      name: (_read_number("zeros", zeros), _read_number("largest", largest))
      for name, (zeros, largest) in gradients.items()
    },
    None if "lost" not in value else _read_number("lost", value["lost"]),
    _read_number("unscaling", value.get("unscaling", 0.0)),
  )


def _read_name(value: Any) -> str:
  """Returns the name of a gradient."""
  if not isinstance(value, str):
    raise ValueError("`name` must be a text")
  return value


def _read_count(key: str, value: Any) -> int | None:
  """Returns a count, or None for none."""
  if type(value) is int or value is None:
    return value
  if isinstance(value, float) and value.is_integer():
    return int(value)
  raise ValueError(f"`{key}` must be a whole number")


def _read_time(value: Any) -> float | None:
  """Returns a time, or None for none."""
  if type(value) is float or value is None:
    return value
  return _read_number("time", value)


def _read_number(key: str, value: Any) -> float:
  """Returns a number; words stand for those that are not finite."""
  if isinstance(value, str):
    value = _WORDS.get(value)
  if isinstance(value, (int, float)) and not isinstance(value, bool):
    try:
      return float(value)
    except OverflowError:  # JSON has whole numbers of any size.
      return math.inf if value > 0 else -math.inf
  raise ValueError(f"`{key}` must be a number, or 'inf', '-inf' or 'nan'")


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
