# SPDX-License-Identifier: Apache-2.0
"""Blanks what is not Python in the cells of notebooks, such as magics."""

from __future__ import annotations

from collections.abc import Iterator
import re
from typing import NamedTuple

from tf_compat_lossscale.migration import edits as edits_lib
from tf_compat_lossscale.migration import lexing

# Cell magics after whose line the cell is Python.
_PYTHON = frozenset(["capture", "debug", "prun", "time", "timeit"])

_CELL = re.compile(r"\s*%%(?P<name>\w*)[^\r\n]*")
_INDENT = re.compile(r"(?:[ \t]*\r?\n)*(?P<indent>[ \t]+)(?=[^\s#])")
_REST = r"(?:[^\\\r\n]|\\(?:\r\n|[\s\S])|\\\Z)*"  # With lines continued by "\".
# At the start of a logical line, where none of these is Python.
_LINES = tuple(
  re.compile(rf"[ \t\f]*{pattern}")
  for pattern in (
    rf"(?P<magic>[%!?,;/]{_REST})",
    r"(?P<magic>[^\s#'\"][^#'\"\r\n]*\?[ \t]*)(?=[\r\n]|\Z)",
    rf"[^\s#'\"=][^#=\r\n]*=[ \t]*(?P<magic>(?:!|%\w){_REST})",
  )
)


class Blank(NamedTuple):
  """A part of a cell that is not Python.

  Attributes:
    start: The offset of the part in the cell.
    end: The offset after it.
    mark: What begins its place in the code.
    is_first: Whether it must stay the first line.
  """

  start: int
  end: int
  mark: str = "#"
  is_first: bool = False

  def stops(self, edit: edits_lib.Edit) -> bool:
    """Returns whether an edit of the cell would change or move this part."""
    if edit.start < self.end and edit.end > self.start:
      return True
    if edit.end == self.start:
      return self.is_first or not _is_line(edit.text, -1)
    if edit.start == self.end:
      return not _is_line(edit.text, 0)
    return False


class Code(NamedTuple):
  """The Python of a cell.

  Attributes:
    text: Code that can be parsed, of the cell's length.
    blanks: The parts that were blanked.
    error: Why all of the cell was blanked, such as "%%bash", or "".
    is_broken: Whether Python cannot parse the cell.
    indent: The indent of the cell's first line, if Python needs it hidden.
  """

  text: str
  blanks: tuple[Blank, ...] = ()
  error: str = ""
  is_broken: bool = False
  indent: str = ""

  def adapt(self, text: str, ends_line: bool) -> str:
    """Returns what an edit writes, with the indent of the cell.

    Args:
      text: The edit's text, made for the code.
      ends_line: Whether it stands before the start of a line.
    """
    if not self.indent:
      return text
    text = text.replace(_hide(self.indent), self.indent)
    last = r"|\Z" if ends_line else ""
    return re.sub(rf"\n(?!{self.indent}|\r?\n{last})", f"\n{self.indent}", text)


def read_code(source: str) -> Code:
  """Returns the Python of a cell."""
  if lexing.find_error(source) is None:
    return Code(source)
  match = _INDENT.match(source)
  if match is None:
    return _read_code(source)
  # IPython takes the indent of the first line from all lines that have it.
  indent = match["indent"]
  source = re.sub(f"(?m)^{indent}", _hide(indent), source)
  return _read_code(source)._replace(indent=indent)


def _hide(indent: str) -> str:
  """Returns blanks of equal length behind which a line counts as unindented.

  Python counts a line's indent anew behind a form feed.
  """
  return f"{indent[:-1]}\f"


def _read_code(source: str) -> Code:
  """Returns the Python of a cell whose first line is not indented."""
  first = _CELL.match(source)
  if first and first["name"] not in _PYTHON:
    return _blank_all(source, f"%%{first['name']}")
  at = 0
  text = source
  blanks = []
  if first:
    start, at = first.span()
    start = at - len(source[:at].lstrip())
    blanks.append(Blank(start, at, is_first=True))
  blanks += _find_magics(source, at)
  for blank in blanks:
    old = source[blank.start : blank.end]
    new = re.sub(r"[^\r\n]", " ", old)
    new = blank.mark + new[len(blank.mark) :]
    text = text[: blank.start] + new + text[blank.end :]
  error = lexing.find_error(text)
  if error is None:
    return Code(text, tuple(blanks))
  broken = _blank_all(source, f"line {error.lineno}: {error.msg}")
  return broken._replace(is_broken=True)


def _is_line(text: str, place: int) -> bool:
  """Returns whether text begins (place 0) or ends (-1) with a line end."""
  return text[place:][:1] in ("\r", "\n")


def _blank_all(source: str, error: str) -> Code:
  """Returns a cell without Python."""
  text = re.sub(r"[^\r\n]", " ", source)
  return Code(text, (Blank(0, len(source)),), error)


def _find_magics(source: str, at: int) -> Iterator[Blank]:
  """Yields the magics from the start of a line on."""
  while at < len(source):
    matches = (pattern.match(source, at) for pattern in _LINES)
    match = next(filter(None, matches), None)
    if match:
      start, at = match.span("magic")
      # In a block, and after "=", Python needs an expression: `0`. Elsewhere, a
      # `0` would be a statement, and `migrate` would add its lines before it,
      # to a cell that has no other code.
      yield Blank(start, at, "#" if match.start() == start else "0")
    at = lexing.find_statement_end(source, at)
