# SPDX-License-Identifier: Apache-2.0
"""Makes findings in code that this Python cannot parse."""

from __future__ import annotations

from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import lexing
from tf_compat_lossscale.migration import python2
from tf_compat_lossscale.programs import uses

_CODE = "LS501"  # Of `rewrites/python_2_source.py`.
_NAME_CODE = "LS101"


def find(
  path: str, text: str, cell: int | None = None
) -> list[findings.Finding] | None:
  """Returns the findings in a text, if it is Python 2.

  Args:
    path: The file.
    text: The text.
    cell: The number of the cell of a notebook that has the text.

  Returns:
    The findings, all for hand work; None if the text is not Python 2, either.
  """
  error = lexing.find_error(text)
  # Without a line, it is an error of another kind, such as too deep code.
  if error is None or error.lineno is None:
    return None
  if not python2.is_python_2(text, error):
    return None
  line = error.lineno
  hint = "run 2to3 first, then scan the file again"
  found = [_make(path, line, 1, "Python 2", _CODE, hint, cell)]
  for use in python2.find_uses(text):
    if uses.find_home(use.name):
      column = use.column + 1
      found.append(
        _make(
          path, use.line, column, use.written, _NAME_CODE, "after 2to3", cell
        )
      )
  return found


def _make(
  path: str,
  line: int,
  column: int,
  name: str,
  code: str,
  message: str,
  cell: int | None,
) -> findings.Finding:
  """Returns a finding for hand work."""
  return findings.Finding(
    path,
    line,
    column,
    line,
    column + len(name),
    code,
    name,
    message,
    findings.BY_HAND,
    cell=cell,
  )
