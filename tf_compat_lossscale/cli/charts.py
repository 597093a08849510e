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

# The lowest and the highest scale of a column; None if there is none.
Span = tuple[float, float] | None


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
    count: The number of steps.
  """

  def __init__(
    self,
    printer: terminal.Printer,
    axis: Axis,
    first: int,
    count: int,
  ):
    self._printer = printer
    self._axis = axis
    self._first = first
    self._count = count
    self._cells = _BLOCKS if printer.can_print(_BLOCKS) else _ASCII
    # Some terminals begin a new line after a line that fills their width.
    width = shutil.get_terminal_size().columns - _LABEL - len(" | ")
    self._columns = min(max(width, _LEAST_COLUMNS), count)

  def print(
    self, scales: Sequence[float], finite: Sequence[bool], ended: bool
  ) -> None:
    """Prints the rows of a simulated run.

    Args:
      scales: The scale before the first step, and after each step.
      finite: For each step, whether it was finite.
      ended: Whether the rule ended the run at the next step.
    """
    last = len(scales) - 1
    # A column begins with the scale before its first step.
    spans: list[Span] = []
    for first, end in self.find_ranges(last):
      part = scales[first : end + 1]
      spans.append((min(part), max(part)))
    marks = "".join(
      " " if all(finite[first:end]) else "x"
      for first, end in self.find_ranges(last)
    )
    if ended:
      column = self._find_column(last)
      marks = marks[:column].ljust(column) + "!"
    self.draw(spans, marks, "overflow")

  def draw(self, spans: Sequence[Span], marks: str, label: str) -> None:
    """Prints rows for the columns of `find_ranges`.

    Args:
      spans: The lowest and the highest scale of each column; None for a column
        without scales.
      marks: A character for each column.
      label: What the marks mean.
    """
    halves = [
      span and (self._axis.find_half(span[0]), self._axis.find_half(span[1]))
      for span in spans
    ]
    for row in reversed(range(self._axis.rows)):
      cells = "".join(self._draw_cell(row, span) for span in halves)
      exponent = self._axis.lowest + row * self._axis.octaves
      self._print_row(f"2^{exponent}", (cells, "cyan"))
    self._print_row(label, (marks, "bold red"))
    self._print_row("step", (self._make_steps(), ""))

  def _print_row(self, label: str, cells: terminal.Part) -> None:
    text, style = cells
    bar = f"{label:>{_LABEL}} {self._cells[-1]}"
    self._printer.print(bar, (text.rstrip(), style))

  def find_ranges(self, steps: int | None = None) -> Iterator[tuple[int, int]]:
    """Yields the first step of each column, and the first after the column.

    Steps are counted from 0 here.

    Args:
      steps: The number of steps that the run has; by default, all. Columns
        beyond are left out.
    """
    steps = self._count if steps is None else steps
    for column in range(self._columns):
      first = column * self._count // self._columns
      if first >= max(steps, 1):
        return
      yield first, (column + 1) * self._count // self._columns

  def _find_column(self, step: int) -> int:
    """Returns the column of a step, counted from 0."""
    ranges = self.find_ranges()
    return next(i for i, (_, end) in enumerate(ranges) if step < end)

  def _draw_cell(self, row: int, span: tuple[int, int] | None) -> str:
    """Returns the character of a row for the halves of a span."""
    if span is None:
      return self._cells[0]
    lower, upper = (
      span[0] <= half <= span[1] for half in (2 * row, 2 * row + 1)
    )
    return self._cells[lower + 2 * upper]

  def _make_steps(self) -> str:
    """Returns the numbers of the first, the middle and the last step."""
    last = self._first + self._count - 1
    middle = self._columns // 2
    at_middle = self._first + middle * self._count // self._columns
    left, center, right = map(str, (self._first, at_middle, last))
    line = left
    if len(left) + 2 <= middle <= self._columns - len(center + right) - 2:
      line = line.ljust(middle) + center
    if len(line) + 2 <= self._columns - len(right):
      return line + right.rjust(self._columns - len(line))
    return left if last == self._first else f"{left} to {right}"
