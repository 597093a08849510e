# SPDX-License-Identifier: Apache-2.0
"""Describes and draws loss scales against steps, as text."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
import math
import shutil
from typing import NamedTuple

from tf_compat_lossscale.cli import terminal
from tf_compat_lossscale.monitoring import facts

# For a cell: empty, its lower half, its upper half, both. Then the axis.
_BLOCKS = " \u2584\u2580\u2588\u2502"
_ASCII = " .':|"
_LABEL = len("overflow")
_LEAST_COLUMNS = 10
_MOST_ROWS = 12

_NO_SCALE = "?: the scale is not finite, or not above 0"
# For several curves in one chart.
SEVERAL = "*"
NAMES = "123456789abcdefghijklmnopqrstuvwxyz"
_STYLES = ("cyan", "magenta", "yellow", "green", "blue", "red")

# The lowest and the highest scale of a column; None if there is none.
Span = tuple[float, float] | None


@dataclasses.dataclass(frozen=True)
class Curve:
  """The loss scale over some steps.

  Attributes:
    first: The first step.
    last: The last step.
    changes: (step, scale after the step) of each step that changed the scale.
      The first pair is the scale before the first step.
    lost: The skipped steps.
  """

  first: int
  last: int
  changes: Sequence[tuple[int, float]]
  lost: Sequence[int]

  @property
  def count(self) -> int:
    """The number of steps."""
    return self.last - self.first + 1

  @property
  def lost_share(self) -> float:
    """The share of the skipped steps."""
    return len(self.lost) / self.count if self.count else 0.0

  @property
  def growths(self) -> int:
    """How many steps raised the scale."""
    return sum(a < b for (_, a), (_, b) in itertools.pairwise(self.changes))

  @property
  def backoffs(self) -> int:
    """How many steps lowered the scale."""
    return sum(a > b for (_, a), (_, b) in itertools.pairwise(self.changes))

  @property
  def scales(self) -> list[float]:
    """All scales that can be drawn."""
    return [scale for _, scale in self.changes if facts.is_usable(scale)]

  def describe_counts(self) -> str:
    """Returns how many steps there are, and what they did to the scale."""
    return (
      f"steps {self.count}, skipped {self.describe_lost()}, growths "
      f"{self.growths}, backoffs {self.backoffs}"
    )

  def describe_lost(self) -> str:
    """Returns how many steps were skipped."""
    return f"{len(self.lost)} ({self.lost_share:.2%})"

  def describe_scales(self) -> str:
    """Returns where the scale was, in words."""
    all_scales = [scale for _, scale in self.changes]
    usable = self.scales
    if not usable:
      return f"scale {all_scales[-1]:g}, which cannot scale a loss"
    named = {
      "first": all_scales[0],
      "last": all_scales[-1],
      "lowest": min(usable),
      "highest": max(usable),
    }
    shown = (f"{word} {facts.show_power(x)}" for word, x in named.items())
    return f"scale {', '.join(shown)}"


def _get(
  spans: Sequence[tuple[int, int] | None], column: int
) -> tuple[int, int] | None:
  """Returns the halves of a column; None beyond the last."""
  return spans[column] if column < len(spans) else None


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

  def print(self, curve: Curve, label: str) -> None:
    """Prints the rows of a chart.

    Args:
      curve: What to draw. It may have fewer steps than the chart.
      label: What the mark of a skipped step means.
    """
    spans, marks = self._find_columns(curve)
    halves = self._find_halves(spans)
    for row in reversed(range(self._axis.rows)):
      cells = "".join(self._draw_cell(row, span) for span in halves)
      exponent = self._axis.lowest + row * self._axis.octaves
      self._print_row(f"2^{exponent}", (cells, "cyan"))
    self._print_row(label, (marks, "bold red"))
    self._print_row("step", (self._make_steps(), ""))
    if "?" in marks:
      self._printer.print(_NO_SCALE)

  def print_together(self, curves: Mapping[str, Curve], label: str) -> None:
    """Prints several curves into one chart.

    Args:
      curves: What to draw. Each has one character for a name. The character
        draws the curve, and `SEVERAL` stands where curves are in one place.
      label: What the mark of a skipped step means.
    """
    styles = dict(zip(curves, itertools.cycle(_STYLES)))
    columns = {name: self._find_columns(x) for name, x in curves.items()}
    halves = {name: self._find_halves(x) for name, (x, _) in columns.items()}
    for row in reversed(range(self._axis.rows)):
      cells = []
      for column in range(self._columns):
        here = [
          name
          for name, spans in halves.items()
          if self._draw_cell(row, _get(spans, column)) != self._cells[0]
        ]
        cells.append((here or [" "])[0] if len(here) < 2 else SEVERAL)
      exponent = self._axis.lowest + row * self._axis.octaves
      parts = [
        ("".join(same), styles.get(name, ""))
        for name, same in itertools.groupby("".join(cells).rstrip())
      ]
      self._print_row(f"2^{exponent}", *parts)
    for name, (_, marks) in columns.items():
      self._print_row(f"{name} {label}", (marks.rstrip(), styles[name]))
    self._print_row("step", (self._make_steps(), ""))
    if any("?" in marks for _, marks in columns.values()):
      self._printer.print(_NO_SCALE)

  def _find_halves(self, spans: list[Span]) -> list[tuple[int, int] | None]:
    """Returns the lowest and the highest half of each column, or None."""
    find = self._axis.find_half
    return [span and (find(span[0]), find(span[1])) for span in spans]

  def _find_columns(self, curve: Curve) -> tuple[list[Span], str]:
    """Returns the scales and the mark of each column that has steps."""
    steps = [step for step, _ in curve.changes]
    spans: list[Span] = []
    marks = ""
    for begin, end in self._find_ranges(curve.last - self._first + 1):
      first, last = self._first + begin, self._first + end
      if last <= curve.first:
        spans.append(None)
        marks += " "
        continue
      # A column begins with the scale before its first step.
      begin = bisect.bisect_left(steps, first) - 1
      stop = bisect.bisect_left(steps, last)
      scales = [scale for _, scale in curve.changes[max(begin, 0) : stop]]
      usable = [scale for scale in scales if facts.is_usable(scale)]
      spans.append((min(usable), max(usable)) if usable else None)
      if len(usable) < len(scales):
        marks += "?"
      else:
        at = bisect.bisect_left(curve.lost, first)
        is_lost = at < len(curve.lost) and curve.lost[at] < last
        marks += "x" if is_lost else " "
    return spans, marks

  def _print_row(self, label: str, *cells: terminal.Part) -> None:
    *others, (text, style) = cells or [("", "")]
    bar = f"{label:>{_LABEL}} {self._cells[-1]}"
    self._printer.print(bar, *others, (text.rstrip(), style))

  def _find_ranges(self, steps: int) -> Iterator[tuple[int, int]]:
    """Yields the first step of each column, and the first after the column.

    Steps are counted from 0 here.

    Args:
      steps: The number of steps to draw. Columns beyond are left out.
    """
    for column in range(self._columns):
      first = column * self._count // self._columns
      if first >= max(steps, 1):
        return
      yield first, (column + 1) * self._count // self._columns

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
