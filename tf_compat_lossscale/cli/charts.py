# SPDX-License-Identifier: Apache-2.0
"""Draws loss scales against steps, as text."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import math
import shutil
from typing import NamedTuple

from tf_compat_lossscale.cli import terminal

# For a cell: empty, its lower half, its upper half, both. Then the axis.
_BLOCKS = " \u2584\u2580\u2588\u2502"
_ASCII = " .':|"
_LABEL = len("overflow")
_LEAST_COLUMNS = 10
_MOST_ROWS = 12


class Axis(NamedTuple):
  """The vertical axis of charts. A row has two halves.

  Attributes:
    lowest: log2 of the scale at the lowest half.
    octaves: By how many powers of 2 a row is above the row below.
    rows: The number of rows.
  """

  lowest: int
  octaves: int
  rows: int

  def find_half(self, scale: float) -> int:
    """Returns the number of the half that shows a scale, from 0 upward."""
    return math.floor((math.log2(scale) - self.lowest) * 2 / self.octaves)


def make_axis(scales: Iterable[float]) -> Axis:
  """Returns an axis that has room for scales."""
  logs = [math.log2(scale) for scale in scales]
  lowest, highest = math.floor(min(logs)), math.ceil(max(logs))
  octaves = max(1, math.ceil((highest - lowest + 1) / _MOST_ROWS))
  lowest -= lowest % octaves
  return Axis(lowest, octaves, (highest - lowest) // octaves + 1)


class Chart:
  """A chart of loss scales, which fits the width of the terminal.

  Args:
    printer: The printer that is to print the chart.
    axis: The vertical axis.
    first: The number of the first step.
    finite: For each step, whether it was finite.
  """

  def __init__(
    self,
    printer: terminal.Printer,
    axis: Axis,
    first: int,
    finite: Sequence[bool],
  ):
    self._printer = printer
    self._axis = axis
    self._first = first
    self._finite = finite
    self._cells = _BLOCKS if printer.can_print(_BLOCKS) else _ASCII
    # Some terminals begin a new line after a line that fills their width.
    width = shutil.get_terminal_size().columns - _LABEL - len(" | ")
    self._columns = min(max(width, _LEAST_COLUMNS), len(finite))

  def print(self, scales: Sequence[float], ended: bool) -> None:
    """Prints the rows of a run.

    Args:
      scales: The scale before the first step, and after each step.
      ended: Whether the rule ended the run at the next step.
    """
    spans = list(self._find_spans(scales))
    for row in reversed(range(self._axis.rows)):
      cells = "".join(self._draw_cell(row, *span) for span in spans)
      exponent = self._axis.lowest + row * self._axis.octaves
      self._print_row(f"2^{exponent}", (cells, "cyan"))
    last = len(scales) - 1
    marks = "".join(
      " " if all(self._finite[first:end]) else "x"
      for first, end in self._find_ranges(last)
    )
    if ended:
      column = self._find_column(last)
      marks = marks[:column].ljust(column) + "!"
    self._print_row("overflow", (marks, "bold red"))
    self._print_row("step", (self._make_steps(), ""))

  def _print_row(self, label: str, cells: terminal.Part) -> None:
    text, style = cells
    bar = f"{label:>{_LABEL}} {self._cells[-1]}"
    self._printer.print(bar, (text.rstrip(), style))

  def _find_ranges(self, steps: int) -> Iterator[tuple[int, int]]:
    """Yields the first step of each column, and the first after the column.

    Args:
      steps: The number of steps that the run has. Columns beyond are left out.
    """
    total = len(self._finite)
    for column in range(self._columns):
      first = column * total // self._columns
      if first >= max(steps, 1):
        return
      yield first, (column + 1) * total // self._columns

  def _find_column(self, step: int) -> int:
    """Returns the column of a step, counted from 0."""
    ranges = self._find_ranges(len(self._finite))
    return next(i for i, (_, end) in enumerate(ranges) if step < end)

  def _find_spans(self, scales: Sequence[float]) -> Iterator[tuple[int, int]]:
    """Yields the lowest and the highest half of each column."""
    for first, end in self._find_ranges(len(scales) - 1):
      # A column begins with the scale before its first step.
      part = scales[first : end + 1]
      yield self._axis.find_half(min(part)), self._axis.find_half(max(part))

  def _draw_cell(self, row: int, low: int, high: int) -> str:
    """Returns the character of a row for the halves from `low` to `high`."""
    lower, upper = (low <= half <= high for half in (2 * row, 2 * row + 1))
    return self._cells[lower + 2 * upper]

  def _make_steps(self) -> str:
    """Returns the numbers of the first, the middle and the last step."""
    last = self._first + len(self._finite) - 1
    middle = self._columns // 2
    at_middle = self._first + middle * len(self._finite) // self._columns
    left, center, right = map(str, (self._first, at_middle, last))
    line = left
    if len(left) + 2 <= middle <= self._columns - len(center + right) - 2:
      line = line.ljust(middle) + center
    if len(line) + 2 <= self._columns - len(right):
      return line + right.rjust(self._columns - len(line))
    return left if last == self._first else f"{left} to {right}"
