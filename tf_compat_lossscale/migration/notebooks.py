# SPDX-License-Identifier: Apache-2.0
"""Jupyter notebooks: the code cells are one text.

What is not Python in a cell, such as `%matplotlib inline`, is a comment or a
number of the same length in the text, and stays in the notebook. Of `%time x =
1`, that is `%time` alone. A cell that is not Python, such as one that begins
with `%%bash`, is blank.
"""

from __future__ import annotations

import ast
import bisect
from collections.abc import Iterator
from collections.abc import Sequence
import json
import re
from typing import Any
from typing import NamedTuple
import warnings

from tf_compat_lossscale.migration import documents

# Cell magics after whose line the cell is Python.
_PYTHON = ("capture", "debug", "prun", "time", "timeit")
# Line magics after whose name and options a statement follows.
_TIMED = re.compile(
  r"%(time|timeit|prun)\b(?:[ \t]+-\w+(?:[ \t]*\d+)?)*(?=[ \t]+\S)"
)
_CELL_MAGIC = re.compile(r"\s*(?P<magic>%%(?P<name>\w*).*)")
# `%time x`, `!ls`, `x?`, `files = !ls`; a line may go on after a backslash.
_MAGIC = re.compile(
  r"^(?P<indent>[ \t]*)(?P<owner>[\w, \t]+=[ \t]*(?=[!%]))?"
  r"(?P<magic>[%!?](?:.*\\\r?\n)*.*|\?*[\w.]+\?+[ \t]*$)",
  re.MULTILINE,
)


class NotebookError(ValueError):
  """An error for a file that is no notebook of Python; it says why."""


class Cell(NamedTuple):
  """A code cell.

  Attributes:
    number: Its number among all cells, counted from 1.
    start: The offset in the notebook's text.
    text: The Python in its source, of the same length.
    error: Why Python cannot parse the cell, or "".
  """

  number: int
  start: int
  source: str
  text: str
  error: str


class Notebook(documents.Document):
  """A notebook."""

  def _decode(self) -> str:
    """Returns the text of the code cells, with a line end after each."""
    self._cells: list[Cell] = []
    start = 0
    try:
      raw = self.data[len(self._mark) :].decode("utf-8")
      for number, cell in _list_code(json.loads(raw)):
        source = "".join(cell["source"])
        text, error = _read_code(source)
        self._cells.append(Cell(number, start, source, text, error))
        start += len(source) + 1
    except (
      *(AttributeError, LookupError, RecursionError, TypeError, ValueError),
    ) as error:
      reason = "it is not as Jupyter writes it"
      if isinstance(error, json.JSONDecodeError):
        reason = f"no JSON: line {error.lineno}, column {error.colno}"
      elif isinstance(error, NotebookError):
        reason = str(error)
      raise documents.DocumentError(
        f"{documents.show_path(self.path)}: not a Python notebook: {reason}"
      ) from None
    return "\n".join(cell.text for cell in self._cells)

  @property
  def errors(self) -> Sequence[str]:
    place = documents.show_path(self.path)
    return [
      f"{place}:cell {cell.number}: cannot be parsed: {cell.error}"
      for cell in self._cells
      if cell.error
    ]

  @property
  def magics(self) -> Sequence[tuple[int, str]]:
    return [
      (cell.start + match.start(), match[0])
      for cell in self._cells
      if cell.text != cell.source
      for match in re.finditer(r"[^\r\n]+", cell.source)
      if cell.text[slice(*match.span())] != match[0]
    ]

  def locate(self, offset: int) -> tuple[int | None, int, int]:
    if not self._cells:
      return None, 1, 1
    cell = self._find_cell(offset)
    line, column = self.find_position(offset)
    first, _ = self.find_position(cell.start)
    return cell.number, line - first + 1, column

  def replace(self, edits: Sequence[documents.Edit]) -> bytes:
    if not edits:
      return self.data
    inside: dict[int, list[documents.Edit]] = {}
    for edit in edits:
      cell = self._find_cell(edit.start)
      start, end = edit.start - cell.start, edit.end - cell.start
      is_blank = cell.text != cell.source and not cell.text.strip()
      # Nothing can stand before `%%time`.
      is_first = not end and cell.source.lstrip().startswith("%%")
      is_magic = cell.text[start:end] != cell.source[start:end]
      if is_blank or is_first or is_magic:
        place = "cell {}:{}:{}".format(*self.locate(edit.start))
        raise self._refuse(f"there is a magic in {place}")
      moved = documents.Edit(start, end, edit.text)
      inside.setdefault(cell.number, []).append(moved)
    sources = {each.number: each.source for each in self._cells}
    raw = self.data[len(self._mark) :].decode("utf-8")
    notebook = json.loads(raw)
    for number, found in _list_code(notebook):
      if number in inside:
        source = documents.apply(sources[number], inside[number])
        is_list = isinstance(found["source"], list)
        found["source"] = source.splitlines(True) if is_list else source
    indent = re.match(r"\s*\{\r?\n([ \t]*)", raw)  # That of the file stays.
    text = json.dumps(
      notebook, ensure_ascii=False, indent=indent[1] if indent else None
    )
    try:
      last = "\n" * raw.endswith("\n")
      return self._mark + (text + last).encode("utf-8")
    except UnicodeEncodeError:
      raise self._refuse("a character in it cannot be written") from None

  def _find_cell(self, offset: int) -> Cell:
    starts = [cell.start for cell in self._cells]
    return self._cells[bisect.bisect_right(starts, offset) - 1]


def is_notebook(data: bytes) -> bool:
  """Returns whether bytes without a name are a notebook."""
  try:
    notebook = json.loads(data) if data.lstrip().startswith(b"{") else None
  except (ValueError, RecursionError):
    return False
  return isinstance(notebook, dict) and "cells" in notebook


def _list_code(notebook: Any) -> Iterator[tuple[int, dict[str, Any]]]:
  """Yields the code cells of a notebook with their numbers.

  Raises:
    NotebookError: This is no notebook of Python.
  """
  cells = notebook.get("cells") if isinstance(notebook, dict) else None
  if not isinstance(cells, list):
    if isinstance(notebook, dict) and "worksheets" in notebook:
      raise NotebookError("its format is older than 4: open and save it first")
    raise NotebookError("it has no list of cells")
  metadata = notebook.get("metadata") or {}
  for key, name in (("kernelspec", "language"), ("language_info", "name")):
    language = (metadata.get(key) or {}).get(name, "python")
    if not str(language).lower().startswith(("python", "ipython")):
      raise NotebookError(f"its language is {language}")
  for number, cell in enumerate(cells, 1):
    if cell["cell_type"] == "code":
      yield number, cell


def _read_code(source: str) -> tuple[str, str]:
  """Returns the Python of a cell, and what is wrong with the cell or ""."""
  if _find_error(source) is None:
    return source, ""
  first = _CELL_MAGIC.match(source)
  if first and first["name"] not in _PYTHON:
    return _blank(source), ""
  text = source
  if first:
    start, end = first.span("magic")
    text = f"{text[:start]}#{' ' * (end - start - 1)}{text[end:]}"
  text = _MAGIC.sub(_hide_magic, text)
  error = _find_error(text)
  if error is None:
    return text, ""
  return _blank(source), f"line {error.lineno}: {error.msg}"


def _hide_magic(match: re.Match[str]) -> str:
  """Returns what stands for a line that is a magic.

  In a block, and after "=", Python needs an expression: `0`. Elsewhere, a `0`
  would be a statement before which `migrate` adds lines.
  """
  magic, owner = match["magic"], match["owner"] or ""
  timed = _TIMED.match(magic)
  if timed and not owner:
    code = f"0{' ' * (timed.end() - 2)};{magic[timed.end() :]}"
    if _find_error(code) is None:
      return f"{match['indent']}{code}"
  mark = "0" if match["indent"] or owner else "#"
  rest = re.sub(r"(\\\r?\n)|[^\r\n]", lambda part: part[1] or " ", magic[1:])
  return f"{match['indent']}{owner}{mark}{rest}"


def _blank(source: str) -> str:
  """Returns a text without code, of the same length and lines."""
  return re.sub(r"[^\r\n]", " ", source)


def _find_error(text: str) -> SyntaxError | None:
  try:
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")
      ast.parse(text)
  except SyntaxError as error:
    return error.with_traceback(None)
  except (ValueError, RecursionError, MemoryError) as error:
    return SyntaxError(str(error))
  return None
