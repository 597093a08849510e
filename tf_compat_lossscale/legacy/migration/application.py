# SPDX-License-Identifier: Apache-2.0
"""Makes the edits of findings in a file."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from tf_compat_lossscale.legacy import sources
from tf_compat_lossscale.legacy.migration import documents
from tf_compat_lossscale.legacy.migration import edits as edits_lib
from tf_compat_lossscale.legacy.migration import findings as findings_lib
from tf_compat_lossscale.legacy.migration import reading

_PACKAGE = "tf_compat_lossscale"


def edit(
  read: reading.Read, findings: Sequence[findings_lib.Finding]
) -> tuple[bytes, list[findings_lib.Finding]]:
  """Returns a file's bytes with the edits of findings.

  Edits that overlap those of an earlier finding are left out: the next round
  makes them. If the text with all edits does not parse, each finding is tried
  by itself.

  Args:
    read: The file.
    findings: The findings whose edits are wanted, in order.

  Returns:
    The bytes, and the findings whose edits are in them.
  """
  chosen, taken = [], list[edits_lib.Edit]()
  for finding in findings:
    if _fits(finding.edits, taken):
      chosen.append(finding)
      taken += finding.edits
  data = _make(read, chosen)
  if data is not None:
    return data, chosen
  good: list[findings_lib.Finding] = []
  for finding in chosen:
    tried = _make(read, [*good, finding])
    if tried is not None:
      good.append(finding)
      data = tried
  return data or read.document.replace([]), good


def _fits(
  edits: Sequence[edits_lib.Edit], taken: Sequence[edits_lib.Edit]
) -> bool:
  """Returns whether edits overlap none of those that are taken."""
  return not any(
    new.start < old.end and old.start < new.end
    for new in edits
    for old in taken
    if new != old
  )


def _make(
  read: reading.Read, findings: Sequence[findings_lib.Finding]
) -> bytes | None:
  """Returns a file's bytes with edits; None if they are no longer Python."""
  edits = list(
    dict.fromkeys(edit for finding in findings for edit in finding.edits)
  )
  lines = list(
    dict.fromkeys(line for finding in findings for line in finding.opening)
  )
  opening = _make_opening(read, lines)
  if opening is not None:
    edits.insert(0, opening)
  text = edits_lib.apply(read.document.text, edits)
  try:
    sources.parse(read.source.path, text)
    return read.document.replace(edits)
  except (sources.SourceError, documents.DocumentError):
    return None


def _make_opening(
  read: reading.Read, lines: Sequence[str]
) -> edits_lib.Edit | None:
  """Returns the insertion of the lines that a file needs at its start.

  An import of this package by itself stands before the import of TensorFlow.
  Calls stand before anything that may import TensorFlow.
  """
  body = read.source.tree.body
  first = _find_end_of_opening(body)
  calls = [line for line in lines if not line.startswith(f"import {_PACKAGE}")]
  if not calls:
    if any(_imports_package(statement) for statement in body):
      return None
    first = _find_import_of_tensorflow(body, first)
  elif any(_imports_package(statement) for statement in body[:first]):
    lines = calls
  if not lines:
    return None
  text = edits_lib.Text(read.document.text)
  return _insert_before(text, body, first, lines)


def _insert_before(
  text: edits_lib.Text, body: Sequence[ast.stmt], at: int, lines: Sequence[str]
) -> edits_lib.Edit:
  """Returns the insertion of lines before statement number `at`."""
  if at == len(body):
    end = len(text.text)
    gap = text.newline if text.text and text.text[-1] not in "\r\n" else ""
    new = gap + "".join(line + text.newline for line in lines)
    return edits_lib.Edit(end, end, new)
  statement = body[at]
  # The place of a decorated function is that of its first decorator.
  decorators: list[ast.AST] = getattr(statement, "decorator_list", [])
  start = text.find_span(statement)[0]
  for decorator in decorators[:1]:
    start = text.text.rindex("@", 0, text.find_span(decorator)[0])
  column = text.find_position(start)[1] - 1
  before = text.text[start - column : start]
  if before.strip("\f \t\ufeff"):
    code = [line.partition("  #")[0] for line in lines]
    return edits_lib.Edit(start, start, "".join(f"{c}; " for c in code))
  new = "".join(line + text.newline for line in lines)
  return edits_lib.Edit(start, start, new)


def _find_end_of_opening(body: Sequence[ast.stmt]) -> int:
  """Returns the number of the first statement that may follow new lines.

  A docstring and `__future__` imports must stay first. An import of this
  package that is there stays first, too.
  """
  at = 0
  for i, statement in enumerate(body):
    is_docstring = (
      i == 0
      and isinstance(statement, ast.Expr)
      and isinstance(statement.value, ast.Constant)
      and isinstance(statement.value.value, str)
    )
    is_future = (
      isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    )
    if not (is_docstring or is_future or _imports_package(statement)):
      break
    at = i + 1
  return at


def _imports_package(statement: ast.stmt) -> bool:
  """Returns whether a statement is `import tf_compat_lossscale`."""
  return isinstance(statement, ast.Import) and any(
    alias.name == _PACKAGE for alias in statement.names
  )


def _find_import_of_tensorflow(body: Sequence[ast.stmt], first: int) -> int:
  """Returns the number of the first statement that imports TensorFlow.

  Imports in functions do not count; if there are no others, returns `first`.
  """
  for i, statement in enumerate(body):
    if _imports_tensorflow(statement):
      return max(i, first)
  return first


def _imports_tensorflow(node: ast.AST) -> bool:
  """Returns whether a statement imports TensorFlow, outside functions."""
  if isinstance(node, ast.Import):
    return any(a.name.partition(".")[0] == "tensorflow" for a in node.names)
  if isinstance(node, ast.ImportFrom):
    top = (node.module or "").partition(".")[0]
    return not node.level and top == "tensorflow"
  if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.expr)):
    return False
  return any(map(_imports_tensorflow, ast.iter_child_nodes(node)))
