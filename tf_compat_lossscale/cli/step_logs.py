# SPDX-License-Identifier: Apache-2.0
"""Reads which steps of a past run were finite, from logs of three formats."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from collections.abc import Iterator
import csv
import itertools
import json
import math
from typing import Any
from typing import BinaryIO
from typing import NamedTuple

from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import selection

# A longer run would need minutes and gigabytes.
MOST_STEPS = 10**7
# A line may hold all words of a run.
_LONGEST_LINE = 10 * MOST_STEPS
_LARGEST_STEP = 2**63 - 1

# Keys and columns, with what "true" says there about the step: whether it was
# finite.
_FLAGS = {"finite": True, "applied": True, "skipped": False, "overflow": False}
_SCALE = "value"
_STEP = "step"
_NAMES = ", ".join(_FLAGS)

_BITS = {"1": True, "0": False}
_BOOLS = {"true": True, "false": False}
_WORDS = {"finite": True, "overflow": False}
_VOCABULARIES = (_BITS, _BOOLS, _WORDS)

_Line = tuple[int, str]
# A line's number, its step if it names one, and either whether the step was
# finite or the loss scale.
_Row = tuple[int, int | None, bool | float]


class Steps(NamedTuple):
  """Which steps of a run were finite.

  Attributes:
    first: The number of the first step.
    finite: For each step from `first` on, whether it was finite.
    notes: Sentences on what the log does not say.
  """

  first: int
  finite: list[bool]
  notes: tuple[str, ...] = ()


def read(path: str, restarted: bool = False) -> Steps:
  """Reads a log, whose format its content shows.

  Args:
    path: A file, or "-" for standard input.
    restarted: Whether a step that is not above the step of the line before
      replaces all lines from that step on.

  Raises:
    Mistake: A line is wrong; the message names the line.
    OSError: The file cannot be read.
  """
  if path == selection.STANDARD_INPUT:
    return _read_stream(path, selection.open_standard_input(), restarted)
  with open(path, "rb") as file:
    return _read_stream(path, file, restarted)


def _read_stream(name: str, stream: BinaryIO, restarted: bool) -> Steps:
  """Reads the log of a stream."""
  lines = _decode(name, stream)
  head = list(itertools.islice(lines, 2))
  if not head:
    raise errors.Mistake(f"{name}: there is no step in it")
  read_rows = _find_reader(name, head)
  return _collect(
    name, read_rows(name, itertools.chain(head, lines)), restarted
  )


def _decode(name: str, stream: BinaryIO) -> Iterator[_Line]:
  """Yields the number and the text of each line that is not blank."""
  for number in itertools.count(1):
    data = stream.readline(_LONGEST_LINE)
    if not data:
      return
    if b"\0" in data:
      raise errors.Mistake(
        f"{name}:{number}: this is no UTF-8 text: it has a byte 0"
      )
    if len(data) == _LONGEST_LINE:
      raise errors.Mistake(
        f"{name}:{number}: the line has more than {_LONGEST_LINE} bytes"
      )
    try:
      text = data.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError as error:
      raise errors.Mistake(
        f"{name}:{number}: this is no UTF-8 text: {error.reason} at byte "
        f"{error.start + 1} of the line"
      ) from None
    if text:
      yield number, text


def _find_reader(
  name: str, head: list[_Line]
) -> Callable[[str, Iterator[_Line]], Iterator[_Row]]:
  """Returns the function that reads a format.

  Args:
    name: The log's name.
    head: The first line or the first two lines.
  """
  number, first = head[0]
  if first.startswith("{"):
    return _read_json
  if first.startswith("["):
    raise errors.Mistake(
      f"{name}:{number}: this is a JSON list: write an object into each line; "
      "TensorBoard also downloads CSV"
    )
  if "," in first:
    return _read_csv
  column = first.strip('"').lower()
  if column in _WORDS:
    # The word of a step, or a column's name: the next line tells.
    following = head[-1][1].lower().split()[0]
    return _read_words if following in _WORDS else _read_csv
  return _read_csv if column in (*_FLAGS, _SCALE) else _read_words


def _read_words(name: str, lines: Iterator[_Line]) -> Iterator[_Row]:
  """Yields a row for each word."""
  vocabulary: dict[str, bool] | None = None
  for number, text in lines:
    for word in text.lower().split():
      if vocabulary is None:
        vocabulary = next((v for v in _VOCABULARIES if word in v), None)
      if vocabulary is None:
        raise errors.Mistake(
          f"{name}:{number}: {_quote(word)} is none of 1, 0, true, false, "
          "finite, overflow; nor is the line a JSON object or the header of a "
          "CSV"
        )
      if word not in vocabulary:
        raise errors.Mistake(
          f"{name}:{number}: {_quote(word)} is neither "
          f"{' nor '.join(vocabulary)}, as the words before are"
        )
      yield number, None, vocabulary[word]


def _read_json(name: str, lines: Iterator[_Line]) -> Iterator[_Row]:
  """Yields a row for each line, which is a JSON object."""
  for number, text in lines:
    where = f"{name}:{number}"
    try:
      record = json.loads(text)
    except (ValueError, RecursionError):
      record = None
    if not isinstance(record, dict):
      raise errors.Mistake(
        f"{where}: {_quote(text)} is no whole JSON object: write an object "
        "into each line, and remove a line that a stopped run left unfinished"
      )
    flags = {key: record[key] for key in _FLAGS if key in record}
    if not flags:
      raise errors.Mistake(
        f"{where}: the object {_quote(text)} has none of the keys {_NAMES}"
      )
    step = _parse_step(where, record[_STEP]) if _STEP in record else None
    yield number, step, _parse_flags(where, flags)


def _read_csv(name: str, lines: Iterator[_Line]) -> Iterator[_Row]:
  """Yields a row for each line of a CSV below its header."""
  number = 0

  def read_texts() -> Iterator[str]:
    nonlocal number
    for number, text in lines:  # noqa: B007
      yield text

  rows = csv.reader(read_texts(), skipinitialspace=True, strict=True)
  try:
    header = [column.strip().lower() for column in next(rows)]
    places = {column: place for place, column in enumerate(header)}
    flags = [column for column in _FLAGS if column in places]
    if not flags and _SCALE not in places:
      raise errors.Mistake(
        f"{name}:{number}: the header has none of the columns {_NAMES}, "
        f"{_SCALE}, but {_quote(', '.join(header))}"
      )
    for row in rows:
      where = f"{name}:{number}"
      if len(row) != len(header):
        raise errors.Mistake(
          f"{where}: expected {len(header)} columns, as the header has, got "
          f"{len(row)}"
        )
      step = _parse_step(where, row[places[_STEP]]) if _STEP in places else None
      if flags:
        values = {column: row[places[column]] for column in flags}
        yield number, step, _parse_flags(where, values)
      else:
        yield number, step, _parse_scale(where, row[places[_SCALE]])
  except csv.Error as error:
    raise errors.Mistake(f"{name}:{number}: this is no CSV: {error}") from None


def _parse_flags(where: str, values: dict[str, Any]) -> bool:
  """Returns whether a step was finite.

  Args:
    where: The log's name and the line's number.
    values: Some keys of `_FLAGS`, with the values of the line.
  """
  finite = None
  for key, value in values.items():
    word = str(value).strip().lower()
    flag = _BOOLS.get(word, _BITS.get(word))
    if flag is None:
      raise errors.Mistake(
        f"{where}: {key} must be true or false, or 1 or 0, but is "
        f"{_quote(value)}"
      )
    own = flag == _FLAGS[key]
    if finite is not None and own != finite:
      said = ", ".join(f"{k}={v}" for k, v in values.items())
      raise errors.Mistake(f"{where}: the line contradicts itself: {said}")
    finite = own
  return bool(finite)


def _parse_step(where: str, value: Any) -> int:
  """Returns the number of a step: 7, 7.0 or the text of these."""
  number = value if isinstance(value, int) else _parse_float(value)
  if (
    isinstance(value, bool)
    or not 0 <= number <= _LARGEST_STEP
    or number != int(number)
  ):
    raise errors.Mistake(
      f"{where}: step must be a whole number from 0 on, but is {_quote(value)}"
    )
  return int(number)


def _parse_scale(where: str, text: str) -> float:
  """Returns a loss scale."""
  scale = _parse_float(text)
  if not 0 < scale < math.inf:
    raise errors.Mistake(
      f"{where}: value must be a loss scale, a finite number above 0, but is "
      f"{_quote(text)}"
    )
  return scale


def _parse_float(value: Any) -> float:
  """Returns a number; NaN if the value is none."""
  try:
    return float(value)
  except (TypeError, ValueError):
    return math.nan


def _collect(name: str, rows: Iterator[_Row], restarted: bool) -> Steps:
  """Returns the steps that the rows of a log tell of."""
  steps: list[int] = []
  values: list[bool | float] = []
  numbered = None
  restarts = dropped = 0
  for line, step, value in rows:
    if numbered is None:
      numbered = step is not None
    elif numbered != (step is not None):
      raise errors.Mistake(
        f"{name}:{line}: either every line has a step or none has, but this "
        f"line has {'none' if numbered else 'one'}"
      )
    if step is None:
      step = steps[-1] + 1 if steps else 1
    elif steps and step <= steps[-1]:
      if not restarted:
        raise errors.Mistake(
          f"{name}:{line}: step {step} comes after step {steps[-1]}: count "
          "every step that the run attempted; if the run was restarted there, "
          "add --restarted"
        )
      kept = bisect.bisect_left(steps, step)
      restarts, dropped = restarts + 1, dropped + len(steps) - kept
      del steps[kept:], values[kept:]
    if steps and step - steps[0] >= MOST_STEPS:
      raise errors.Mistake(
        f"{name}:{line}: there are more than {MOST_STEPS} steps from step "
        f"{steps[0]} to step {step}"
      )
    steps.append(step)
    values.append(value)
  if not steps:
    raise errors.Mistake(f"{name}: there is no step in it")
  notes = []
  if restarts:
    notes.append(f"Restarts: {restarts}; lines that do not count: {dropped}.")
  finite = [True] * (steps[-1] - steps[0] + 1)
  for step in _find_overflows(steps, values, notes):
    finite[step - steps[0]] = False
  return Steps(steps[0], finite, tuple(notes))


def _find_overflows(
  steps: list[int], values: list[bool | float], notes: list[str]
) -> list[int]:
  """Returns the steps that were not finite, and may add a note."""
  if isinstance(values[0], bool):
    return [step for step, finite in zip(steps, values) if not finite]
  gap = max((b - a for a, b in itertools.pairwise(steps)), default=1)
  if gap > 1:
    notes.append(
      f"The rows are up to {gap} steps apart: overflows between rows are "
      "counted once, or missed."
    )
  pairs = itertools.pairwise(values)
  return [step for step, (a, b) in zip(steps[1:], pairs) if b < a]


def _quote(value: Any) -> str:
  """Returns a value as Python writes it, if it is short."""
  text = repr(value)
  return text if len(text) <= 60 else f"{text[:56]}..."
