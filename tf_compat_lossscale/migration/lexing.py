# SPDX-License-Identifier: Apache-2.0
"""Reads tokens of code that Python 3 cannot parse, such as magics."""

from __future__ import annotations

import ast
from collections.abc import Iterator
import re
import warnings

_TOKEN = re.compile(
  r"""
  (?P<comment>\#[^\r\n]*)
  | (?P<string>[bBfFrRuU]{0,2}(?:
      \"{3}[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*(?:\"{3})?
    | '{3}[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*(?:'{3})?
    | "[^"\\\r\n]*(?:\\(?:\r\n|.)[^"\\\r\n]*)*"?
    | '[^'\\\r\n]*(?:\\(?:\r\n|.)[^'\\\r\n]*)*'?
    ))
  | (?P<joined>\\(?:\r\n|\r|\n))
  | (?P<newline>\r\n|\r|\n)
  | (?P<open>[(\[{])
  | (?P<close>[)\]}])
  | (?P<word>\w+)
  | (?P<space>[ \t\f]+)
  | (?P<other>.)
  """,
  re.VERBOSE | re.DOTALL,
)
# Words that begin a statement if they begin a line: the brackets before were
# not closed.
_STARTS = frozenset(
  ["assert", "class", "def", "import", "raise", "return", "try", "while"]
)


def read_tokens(text: str, start: int = 0) -> Iterator[tuple[str, int, int]]:
  """Yields the kind, the start and the end of each token.

  Args:
    text: The code.
    start: The offset of the first token, outside strings and comments.

  Yields:
    Kinds are "comment", "string", "joined" (a line end after a backslash or in
    brackets), "newline" (the end of a logical line), "open", "close" (of
    brackets), "word", "space" and "other".
  """
  depth = 0
  for match in _TOKEN.finditer(text, start):
    kind = match.lastgroup or "other"
    if kind == "open":
      depth += 1
    elif kind == "close":
      depth = max(depth - 1, 0)
    elif kind == "newline" and depth:
      word = _TOKEN.match(text, _skip_space(text, match.end()))
      if word and word[0] in _STARTS:
        depth = 0
      else:
        kind = "joined"
    yield kind, match.start(), match.end()


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
