# SPDX-License-Identifier: Apache-2.0
"""Makes the edits of findings in a file."""

from __future__ import annotations

import ast
import bisect
from collections.abc import Sequence

from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings as findings_lib
from tf_compat_lossscale.programs import sources

_EARLY = "use_keras_2()"


def edit(
  file: files.File, findings: Sequence[findings_lib.Finding]
) -> files.File:
  """Returns a file with the edits of findings; the file itself if none is made.

  Edits that overlap those of an earlier finding are left out: the next round
  makes them. If the text with all edits does not parse, each finding is tried
  by itself.
  """
  taken: list[documents.Edit] = []  # By their place.
  chosen = []
  for finding in findings:
    if all(_fits(each, taken) for each in finding.edits):
      chosen.append(finding)
      for each in finding.edits:
        bisect.insort(taken, each)
  edited = _make(file, chosen)
  if edited is not None:
    return edited
  edited = file
  good: list[findings_lib.Finding] = []
  for finding in chosen:
    tried = _make(file, [*good, finding])
    if tried is not None:
      good.append(finding)
      edited = tried
  return edited


def _fits(edit: documents.Edit, taken: Sequence[documents.Edit]) -> bool:
  """Returns whether an edit can be made beside others, or is one of them."""
  at = bisect.bisect_left(taken, edit)
  nearest = taken[max(at - 1, 0) : at + 1]
  return edit in nearest or not any(
    edit.start < other.end and other.start < edit.end for other in nearest
  )


def _make(
  file: files.File, findings: Sequence[findings_lib.Finding]
) -> files.File | None:
  """Returns a file with edits; None if it is no longer Python."""
  lines = list(dict.fromkeys(line for f in findings for line in f.opening))
  place = min([f.offset for f in findings if f.opening], default=0)
  edits = _make_opening(file, lines, place)
  edits += dict.fromkeys(edit for f in findings for edit in f.edits)
  document = file.document
  if not edits:
    return file
  try:
    data = document.replace(edits)
    new = files.File(type(document)(document.path, data))
    _ = new.tree  # An error if it does not parse.
  except (sources.SourceError, documents.DocumentError):
    return None
  return new


def _make_opening(
  file: files.File, lines: Sequence[str], place: int
) -> list[documents.Edit]:
  """Returns the insertions of the lines that a file needs at its start.

  Keras is chosen before anything that may import TensorFlow. Other lines stand
  right before the first statement that imports TensorFlow or a module of the
  program, since the program may set environment variables for TensorFlow; but
  not behind the offset `place`.
  """
  if not lines:
    return []
  body = file.tree.body
  top = _find_end_of_opening(body)
  at = file.document.find_position(place)[0]
  own = next((i for i, s in enumerate(body) if (s.end_lineno or 0) >= at), 0)
  first = max(min(file.first_import, own), top)
  start = f"import {files.PACKAGE}"
  calls = [line for line in lines if not line.startswith(start)]
  starts_early = any(_EARLY in line for line in calls)
  imported = next(
    (i for i, each in enumerate(body) if files.find_short_name([each])), None
  )
  parts: dict[int, list[str]] = {}
  for line in lines:
    at = top if _EARLY in line else first
    if line not in calls:
      at = top if starts_early else first
      if imported is not None and (imported < at or not calls):
        continue  # The file imports this package early enough.
    parts.setdefault(at, []).append(line)
  return [_insert_before(file, at, part) for at, part in parts.items()]


def _insert_before(
  file: files.File, at: int, lines: Sequence[str]
) -> documents.Edit:
  """Returns the insertion of lines before statement number `at`."""
  text, newline = file.document.text, file.document.newline
  body = file.tree.body
  if at == len(body):
    end = len(text)
    gap = newline if text and text[-1] not in "\r\n" else ""
    new = gap + "".join(line + newline for line in lines)
    return documents.Edit(end, end, new)
  statement = body[at]
  # The place of a decorated function is that of its first decorator.
  decorators: list[ast.AST] = getattr(statement, "decorator_list", [])
  start = file.find_span(statement)[0]
  for decorator in decorators[:1]:
    start = text.rindex("@", 0, file.find_span(decorator)[0])
  if file.document.get_before(start).strip("\f \t\ufeff"):
    code = [line.partition("  #")[0] for line in lines]
    return documents.Edit(start, start, "".join(f"{c}; " for c in code))
  new = "".join(line + newline for line in lines)
  return documents.Edit(start, start, new)


def _find_end_of_opening(body: Sequence[ast.stmt]) -> int:
  """Returns the number of the first statement that may follow new lines.

  A docstring and `__future__` imports must stay first. An import of this
  package that is there stays first, too.
  """
  at = 0
  for i, statement in enumerate(body):
    value = getattr(statement, "value", None)
    is_docstring = i == 0 and isinstance(statement, ast.Expr)
    is_future = getattr(statement, "module", "") == "__future__"
    if not (
      (is_docstring and isinstance(getattr(value, "value", None), str))
      or is_future
      or files.find_short_name([statement])
    ):
      break
    at = i + 1
  return at
