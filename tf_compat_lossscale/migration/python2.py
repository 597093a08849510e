# SPDX-License-Identifier: Apache-2.0
"""Tells Python 2 from broken code; this Python parses neither."""

from __future__ import annotations

import re

from tf_compat_lossscale.migration import lexing

# What `ast.parse` says of code that Python 2 allows.
_MESSAGES = re.compile(
  r"Missing parentheses in call to|multiple exception types|leading zeros in"
  r"|inconsistent use of tabs|parameters cannot be parenthesized"
  r"|bytes can only contain ASCII"
)
# Where it says "invalid syntax", these are signs of Python 2 in that line.
_SIGNS = re.compile(
  r"""
  ^[^#'"]*(?:
    \braise[ \t]+[\w.]+(?:\(.*\))?[ \t]*,
    | \b(?:def[ \t]+\w+[ \t]*\(|lambda\b)[^:()=]*\(\w+[ \t]*,[^()]*\)[ \t]*[,):]
    | (?<![\w.])(?:\d+|0[xX][0-9a-fA-F]+)[lL]\b
    | ` | <> | \b[uU][rR]["']
  )
  """,
  re.VERBOSE,
)


def find_line(text: str) -> int | None:
  """Returns the first line that Python 2 alone can parse.

  Returns:
    The number, counted from 1; None if the code is Python 3, or is broken.
  """
  error = lexing.find_error(text)
  if error is None or error.lineno is None:
    return None  # Without a line, the code is too deep, or the like.
  if _MESSAGES.search(error.msg or ""):
    return error.lineno
  lines = re.split("\r\n|\r|\n", text)
  line = lines[min(error.lineno or 1, len(lines)) - 1]
  return error.lineno if _SIGNS.search(line) else None
