# SPDX-License-Identifier: Apache-2.0
"""Edits of import statements, and of what follows them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
import re
from typing import TYPE_CHECKING

from tf_compat_lossscale.migration import documents

if TYPE_CHECKING:
  from tf_compat_lossscale.migration import files

_BLANK = r"(?:\s|\\\r?\n)"
_FROM = re.compile(rf"from{_BLANK}+([\w.]+?){_BLANK}+import\b")
_AS = re.compile(rf"{_BLANK}+as{_BLANK}+")


def make_module_edit(
  file: files.File, node: ast.ImportFrom, module: str
) -> documents.Edit:
  """Returns the edit of the module in `from module import …`."""
  start, end = file.find_span(node)
  match = _FROM.match(file.document.text, start, end)
  if match is None:  # The name is written with blanks between its parts.
    names = ", ".join(ast.unparse(alias) for alias in node.names)
    return documents.Edit(start, end, f"from {module} import {names}")
  return documents.Edit(*match.span(1), module)


def make_name_edit(
  file: files.File, alias: ast.alias, name: str, bound: str | None = None
) -> documents.Edit:
  """Returns the edit of an import's name, which must bind `bound`, if any."""
  start, end = file.find_span(alias)
  match = _AS.search(file.document.text, start, end)
  if match is not None:
    return documents.Edit(start, match.start(), name)
  renamed = f" as {bound}" if bound not in (None, name) else ""
  return documents.Edit(start, end, name + renamed)


def move_names(
  file: files.File,
  node: ast.ImportFrom,
  moved: Sequence[ast.alias],
  lines: Sequence[str],
) -> list[documents.Edit]:
  """Returns the edits that import names of an import by other statements.

  The new statements follow it; or stand in its place if no name stays.
  """
  if len(moved) == len(node.names):
    first = documents.Edit(*file.find_span(node), lines[0])
    return [first, *insert_after(file, node, lines[1:])]
  text, names = file.document.text, node.names
  last = max(i for i, alias in enumerate(names) if alias not in moved)
  found = []
  for i, alias in enumerate(names[:last]):
    if alias in moved:
      start, end = file.find_span(alias)
      following = file.find_span(names[i + 1])[0]
      if "#" in text[end:following]:  # A comment stays.
        following = text.index(",", end) + 1
      found.append(documents.Edit(start, following, ""))
  if names[last + 1 :]:
    start, end = file.find_span(names[last])[1], file.find_span(names[-1])[1]
    # Each comment stays, with its line end.
    kept = re.findall(r"[ \t]*#[^\r\n]*(?:\r\n|\r|\n)", text[start:end])
    new = "," + "".join(kept) if kept else ""
    found.append(documents.Edit(start, end, new))
  return [*found, *insert_after(file, node, lines)]


def is_alone(file: files.File, statement: ast.stmt) -> bool:
  """Returns whether a statement is the only one in its lines."""
  start, end = file.find_span(statement)
  text = file.document.text
  rest = text[end : file.document.find_line_end(end)].strip()
  is_first = not file.document.get_before(start).strip()
  return (not rest or rest.startswith("#")) and is_first


def insert_after(
  file: files.File, statement: ast.stmt, lines: Sequence[str]
) -> list[documents.Edit]:
  """Returns the insertion of statements after a statement."""
  if not lines:
    return []
  start, end = file.find_span(statement)
  if not is_alone(file, statement):
    return [documents.Edit(end, end, "".join(f"; {line}" for line in lines))]
  before = file.document.get_before(start)
  line_end = file.document.find_line_end(end)
  new = "".join(f"{file.document.newline}{before}{line}" for line in lines)
  return [documents.Edit(line_end, line_end, new)]
