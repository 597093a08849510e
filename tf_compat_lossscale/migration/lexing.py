# SPDX-License-Identifier: Apache-2.0
"""Reads code that Python 3 cannot parse, such as magics."""

from __future__ import annotations

import ast
import re
import warnings

_TOKEN = re.compile(
  r"""
  \#[^\r\n]*
  | [bBfFrRuU]{0,2}(?:
      \"{3}[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*(?:\"{3})?
    | '{3}[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*(?:'{3})?
    | "[^"\\\r\n]*(?:\\(?:\r\n|.)[^"\\\r\n]*)*"?
    | '[^'\\\r\n]*(?:\\(?:\r\n|.)[^'\\\r\n]*)*'?
    )
  | \\(?:\r\n|\r|\n)
  | (?P<newline>\r\n|\r|\n)
  | (?P<open>[(\[{])
  | (?P<close>[)\]}])
  | \w+
  | [ \t\f]+
  | .
  """,
  re.VERBOSE | re.DOTALL,
)
# Words that begin a statement if they begin a line: the brackets before were
# not closed.
_STARTS = frozenset(
  ["assert", "class", "def", "import", "raise", "return", "try", "while"]
)


def find_statement_end(text: str, start: int) -> int:
  """Returns the offset after a logical line, and after its line end.

  Args:
    text: The code.
    start: An offset in the logical line, outside strings and comments.
  """
  depth = 0
  for match in _TOKEN.finditer(text, start):
    if match["open"]:
      depth += 1
    elif match["close"]:
      depth = max(depth - 1, 0)
    elif match["newline"]:
      word = _TOKEN.match(text, _skip_space(text, match.end()))
      if not depth or (word and word[0] in _STARTS):
        return match.end()
  return len(text)


def find_error(text: str) -> SyntaxError | None:
  """Returns what is wrong with Python 3 code, or None."""
  try:
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")
      ast.parse(text)
  except SyntaxError as error:
    # A traceback would keep all that its callers read.
    return error.with_traceback(None)
  except (ValueError, RecursionError, MemoryError) as error:
    return SyntaxError(str(error))
  return None


def _skip_space(text: str, offset: int) -> int:
  """Returns the offset after spaces."""
  while text[offset : offset + 1] in (" ", "\t", "\f"):
    offset += 1
  return offset
