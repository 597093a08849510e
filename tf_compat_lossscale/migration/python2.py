# SPDX-License-Identifier: Apache-2.0
"""Tells Python 2 from broken code; this Python parses neither."""

from __future__ import annotations

import re

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


def is_python_2(text: str, error: SyntaxError) -> bool:
  """Returns whether code that Python 3 cannot parse is Python 2.

  Args:
    text: The code.
    error: What `ast.parse` raised.
  """
  if _MESSAGES.search(error.msg or ""):
    return True
  lines = re.split("\r\n|\r|\n", text)
  return bool(_SIGNS.search(lines[min(error.lineno or 1, len(lines)) - 1]))
