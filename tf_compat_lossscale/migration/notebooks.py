# SPDX-License-Identifier: Apache-2.0
"""Jupyter notebooks: the code of all cells is one text."""

from __future__ import annotations

import bisect
import codecs
from collections.abc import Sequence
import json
from typing import Any
from typing import NamedTuple

from tf_compat_lossscale.migration import document_base
from tf_compat_lossscale.migration import edits as edits_lib
from tf_compat_lossscale.migration import notebook_json
from tf_compat_lossscale.migration import notebook_magics


class Cell(NamedTuple):
  """A code cell.

  Attributes:
    number: Its number among all cells, counted from 1.
    start: The offset in the notebook's text.
    source: Its source.
    code: The Python in it.
  """

  number: int
  start: int
  source: str
  code: notebook_magics.Code

  @property
  def end(self) -> int:
    """The offset of its end in the notebook's text."""
    return self.start + len(self.source)


class Notebook(document_base.Document):
  """A notebook.

  Its text has the code cells, with a line end after each but the last. What is
  not Python in them is blank, a comment or a number.

  Attributes:
    cells: The code cells.
  """

  def __init__(self, path: str, data: bytes):
    """Reads a file's bytes.

    Raises:
      DocumentError: The bytes are no notebook, or its language is not Python.
    """
    self.path = path
    self.data = data
    self._mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    self.cells: list[Cell] = []
    start = 0
    try:
      self._raw = data[len(self._mark) :].decode("utf-8")
      notebook = json.loads(self._raw)
      _check_language(notebook)
      self._paths = _find_sources(notebook)
      for path_in in self._paths:
        source = _join(_follow(notebook, path_in))
        code = notebook_magics.read_code(source)
        number = path_in[-2] + 1
        self.cells.append(Cell(number, start, source, code))
        start = self.cells[-1].end + 1
    except (ValueError, RecursionError) as error:
      raise document_base.DocumentError(
        f"{document_base.show_path(path)}: not a Python notebook: {error}"
      ) from None
    self.text = "\n".join(cell.code.text for cell in self.cells)

  def locate(self, offset: int) -> tuple[int | None, int, int]:
    cell = self._find_cell(offset)
    if cell is None:
      return None, 1, 1
    line, column = self.lines.find_position(offset)
    first, _ = self.lines.find_position(cell.start)
    return cell.number, line - first + 1, column

  def replace(self, edits: Sequence[edits_lib.Edit]) -> bytes:
    if not edits:
      return self.data
    inside: dict[Cell, list[edits_lib.Edit]] = {}
    for edit in sorted(edits, key=lambda each: (each.start, each.end)):
      cell = self._find_cell(edit.start)
      reason = _find_obstacle(cell, edit)
      if cell is None or reason:
        place = document_base.show_path(self.path)
        if cell:
          place = "{}:cell {}:{}:{}".format(place, *self.locate(edit.start))
        raise document_base.DocumentError(
          f"{place}: cannot be edited: {reason}"
        )
      inside.setdefault(cell, []).append(_move_into(cell, edit))
    return self._mark + self._apply(inside).encode("utf-8")

  def _apply(self, inside: dict[Cell, list[edits_lib.Edit]]) -> str:
    """Returns the JSON text after edits in cells.

    Raises:
      DocumentError: The result would not have the sources as edited.
    """
    tree = notebook_json.read_literals(self._raw)
    ascii_only = notebook_json.is_ascii_style(self._raw)
    changes = []
    wanted = []
    for path, cell in zip(self._paths, self.cells):
      edits = inside.get(cell, [])
      wanted.append(edits_lib.apply(cell.source, edits))
      if edits:
        value = _follow(tree, path)
        source = notebook_json.Source(self._raw, value, ascii_only)
        changes += [source.translate(edit) for edit in _merge(edits)]
    text = edits_lib.apply(self._raw, changes)
    result = json.loads(text)
    if [_join(_follow(result, path)) for path in self._paths] != wanted:
      raise document_base.DocumentError(
        f"{document_base.show_path(self.path)}: cannot be edited: the edits "
        "are lost in its JSON"
      )
    return text

  def _find_cell(self, offset: int) -> Cell | None:
    """Returns the cell of an offset, or None if the notebook has no code."""
    if not self.cells:
      return None
    starts = [cell.start for cell in self.cells]
    return self.cells[bisect.bisect_right(starts, offset) - 1]


def is_notebook(data: bytes) -> bool:
  """Returns whether bytes without a name are a notebook."""
  try:
    notebook = json.loads(data) if data.lstrip().startswith(b"{") else None
  except (ValueError, RecursionError):
    return False
  return isinstance(notebook, dict) and bool(
    {"cells", "worksheets"} & notebook.keys()
  )


def _check_language(notebook: Any) -> None:
  """Raises ValueError if a notebook says that it is not Python."""
  metadata = notebook.get("metadata") if isinstance(notebook, dict) else None
  if not isinstance(metadata, dict):
    return
  for key, name in (("kernelspec", "language"), ("language_info", "name")):
    value = metadata.get(key)
    language = value.get(name) if isinstance(value, dict) else None
    if isinstance(language, str) and not _is_python(language):
      raise ValueError(f"its language is {language}")


def _is_python(language: str) -> bool:
  return language.lower().startswith(("python", "ipython"))


def _find_sources(notebook: Any) -> list[tuple[Any, ...]]:
  """Returns the keys that lead to the source of each code cell.

  Raises:
    ValueError: This is no notebook.
  """
  if not isinstance(notebook, dict):
    raise ValueError("it is no JSON object")
  lists: list[tuple[Any, ...]] = [("cells",)]
  key = "source"
  if "cells" not in notebook and "worksheets" in notebook:  # nbformat 3.
    sheets = notebook["worksheets"]
    count = len(sheets) if isinstance(sheets, list) else 0
    lists = [("worksheets", number, "cells") for number in range(count)]
    key = "input"
  found = []
  for path in lists:
    cells = _follow(notebook, path)
    if not isinstance(cells, list):
      raise ValueError("it has no list of cells")
    for number, cell in enumerate(cells):
      if not isinstance(cell, dict):
        raise ValueError(f"cell {number + 1} is no JSON object")
      language = cell.get("language", "python")
      if cell.get("cell_type") != "code" or not _is_python(str(language)):
        continue
      if not _is_source(cell.get(key)):
        raise ValueError(f"cell {number + 1} has no {key}")
      found.append((*path, number, key))
  return found


def _is_source(value: Any) -> bool:
  """Returns whether a value is a string or a list of strings."""
  if isinstance(value, list):
    return all(isinstance(line, str) for line in value)
  return isinstance(value, str)


def _follow(value: Any, keys: tuple[Any, ...]) -> Any:
  """Returns what keys lead to; None if one of them is missing."""
  for key in keys:
    if isinstance(value, dict):
      value = value.get(key)
    else:
      value = value[key] if isinstance(value, list) else None
  return value


def _join(source: str | list[str]) -> str:
  return "".join(source)


def _find_obstacle(cell: Cell | None, edit: edits_lib.Edit) -> str:
  """Returns why a cell cannot take an edit, or ""."""
  if cell is None:
    return "the notebook has no code cell"
  if edit.end > cell.end + 1:
    return "the edit would span two cells"
  edit = _move_into(cell, edit)
  if cell.code.error:
    return f"the cell is not Python ({cell.code.error})"
  if any(blank.stops(edit) for blank in cell.code.blanks):
    return "there is a magic"
  return ""


def _move_into(cell: Cell, edit: edits_lib.Edit) -> edits_lib.Edit:
  """Returns an edit of a cell's source for an edit of the notebook's text.

  An edit of a whole line leaves out the line end after the cell.
  """
  start, end, text = edit
  if end > cell.end:
    end = cell.end
    text = text.removesuffix("\n").removesuffix("\r")
  ends_line = cell.source[: end - cell.start].endswith(("\n", "\r"))
  text = cell.code.adapt(text, ends_line)
  return edits_lib.Edit(start - cell.start, end - cell.start, text)


def _merge(edits: list[edits_lib.Edit]) -> list[edits_lib.Edit]:
  """Returns edits with one insertion at each place."""
  merged: list[edits_lib.Edit] = []
  for edit in edits:
    last = merged[-1] if merged else None
    if last and last.start == last.end == edit.start == edit.end:
      edit = edits_lib.Edit(last.start, last.end, last.text + edit.text)
      merged.pop()
    merged.append(edit)
  return merged
