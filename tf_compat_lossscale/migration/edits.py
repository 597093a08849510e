# SPDX-License-Identifier: Apache-2.0
"""Edits of a text, by offsets: all else in the text stays as it is."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
import itertools
import operator
import re
from typing import Any
from typing import NamedTuple

_LINE_END = re.compile("\r\n|\r|\n")


class Edit(NamedTuple):
  """A replacement of a part of a text.

  Attributes:
    start: The offset of the part, in characters.
    end: The offset after the part; `start` for an insertion.
    text: The new text.
  """

  start: int
  end: int
  text: str


class Text:
  """A text with its lines, as Python counts them.

  Attributes:
    text: The text.
    newline: The end of its first line; "\\n" if there is only one line.
  """

  def __init__(self, text: str):
    self.text = text
    first = _LINE_END.search(text)
    self.newline = first[0] if first else "\n"
    if "\r" in text:
      ends = [match.end() for match in _LINE_END.finditer(text)]
    else:  # To split the text takes less time.
      lengths = [len(line) + 1 for line in text.split("\n")]
      ends = list(itertools.accumulate(lengths[:-1]))
    self._starts = [0, *ends]
    self._is_ascii = text.isascii()

  def find_span(self, node: Any) -> tuple[int, int]:
    """Returns the offsets of the start and the end of a node.

    Syntax trees count columns in bytes of UTF-8.
    """
    start = self._starts[node.lineno - 1] + node.col_offset
    end = self._starts[node.end_lineno - 1] + node.end_col_offset
    if not self._is_ascii:
      start -= self._count_excess(node.lineno, node.col_offset)
      end -= self._count_excess(node.end_lineno, node.end_col_offset)
    return start, end

  def _count_excess(self, line: int, column: int) -> int:
    """Returns how many bytes more than characters stand before a column."""
    start = self._starts[line - 1]
    encoded = self.text[start : start + column].encode("utf-8")[:column]
    return column - len(encoded.decode("utf-8", "ignore"))

  def find_position(self, offset: int) -> tuple[int, int]:
    """Returns the line of an offset and its column, both counted from 1."""
    line = bisect.bisect_right(self._starts, offset)
    return line, offset - self._starts[line - 1] + 1

  def find_line(self, line: int) -> int:
    """Returns the offset of a line, which is counted from 1."""
    return self._starts[line - 1]

  def find_line_end(self, offset: int) -> int:
    """Returns the offset of the end of a line, before its line end."""
    match = _LINE_END.search(self.text, offset)
    return match.start() if match else len(self.text)


def apply(text: str, edits: Iterable[Edit]) -> str:
  """Returns a text with edits that do not overlap.

  Insertions at one place keep their order.
  """
  parts, at = [], 0
  for edit in sorted(edits, key=operator.itemgetter(0, 1)):
    assert edit.start >= at, edit
    parts += [text[at : edit.start], edit.text]
    at = edit.end
  return "".join([*parts, text[at:]])
