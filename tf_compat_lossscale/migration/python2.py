# SPDX-License-Identifier: Apache-2.0
"""Reads Python 2, which Python 3 cannot parse, line by line."""

from __future__ import annotations

from collections.abc import Iterator
import re
from typing import NamedTuple

from tf_compat_lossscale.migration import edits as edits_lib
from tf_compat_lossscale.migration import lexing
from tf_compat_lossscale.programs import scopes
from tf_compat_lossscale.programs import uses

# All patterns are for the result of `lexing.flatten`. A statement begins a
# line, or follows ":" or ";".
_STATEMENT = r"(?:^|[:;])[ \t\f]*"
_NAME = r"[^\W\d]\w*"
_DOTTED = rf"{_NAME}(?:[ \t]*\.[ \t]*{_NAME})*"
_STRING = r"[bBuUrR]{0,2}[\"'`]"
# What an operand begins with, if it cannot follow a name in Python 3.
_OPERAND = r"(?!(?:and|else|for|if|in|is|or)\b|not[ \t]+in\b)(?:[\w{~]|\.\d)"
# These are valid in Python 2 alone.
_SIGNS = re.compile(
  rf"""
  {_STATEMENT}(?:print|exec)(?:[ \t]*{_STRING}|[ \t]+{_OPERAND})
  | {_STATEMENT}print[ \t]*>>
  | {_STATEMENT}def[ \t]+{_NAME}[ \t]*\((?:[^()]*,)?[ \t]*\(
  | \blambda\b(?:[^:()]*,)?[ \t]*\(
  | ` | <>
  | (?<![\w.])0[0-7]*[1-7][0-7]*(?![\w.])
  | (?<![\w.])(?:\d+|0[xX][0-9a-fA-F]+|0[oO]?[0-7]+|0[bB][01]+)[lL]\b
  | (?<!\w)[uU][rR]["']
  """,
  re.VERBOSE,
)
# These, too, if the comma is outside brackets.
_COMMAS = re.compile(rf"{_STATEMENT}(?:except\b[^:;]*|raise\b[^;]*),")
_NEW_WORDS = re.compile(r"\b(?:async|await)\b")

_MODULE = rf"\.+(?:[ \t]*{_DOTTED})?|{_DOTTED}"
_IMPORT = re.compile(
  rf"{_STATEMENT}(?P<from>from[ \t]+(?P<module>{_MODULE})[ \t]+)?"
  r"import\b[ \t(]*(?P<names>[^;)\r\n]*)",
  re.MULTILINE,
)
_IMPORTED = re.compile(
  rf"(?P<name>{_DOTTED})(?:[ \t]+as[ \t]+(?P<bound>{_NAME}))?"
)
_ASSIGNMENT = re.compile(
  rf"{_STATEMENT}({_NAME})[ \t]*=[ \t]*({_DOTTED})[ \t\r]*$", re.MULTILINE
)
_DOTS = re.compile(rf"(?<![\w.)\]}}\"'`])({_NAME})(?:[ \t]*\.[ \t]*{_NAME})+")

_MANY_PARTS = 16  # No legacy name has so many.


class Use(NamedTuple):
  """An occurrence of one of TensorFlow's names.

  Attributes:
    line: The line, counted from 1.
    column: The column, counted from 0, in characters.
    written: The name as written.
    name: The full name, such as "tensorflow.train.experimental.LossScale".
  """

  line: int
  column: int
  written: str
  name: str


def is_python_2(text: str, error: SyntaxError) -> bool:
  """Returns whether code that Python 3 cannot parse is Python 2.

  Args:
    text: The code.
    error: What `ast.parse` raised. The code is Python 2 if that line has
      something that Python 2 alone allows.
  """
  if isinstance(error, TabError):
    expanded = text.expandtabs(8)  # As Python 2 reads tabs.
    later = lexing.find_error(expanded)
    return later is None or is_python_2(expanded, later)
  message = error.msg or ""
  if "bytes can only contain ASCII" in message:
    return True
  line = _get_logical_line(text, error.lineno or 1)
  if "(unicode error)" in message or _NEW_WORDS.search(line):
    # Valid in Python 2 and, in part, in older Python 3: look further.
    return any(_SIGNS.search(each) for each in lexing.flatten(text).split("\n"))
  if _SIGNS.search(line):
    return True
  return bool(_COMMAS.search(_hide_brackets(line)))


def find_uses(text: str) -> Iterator[Use]:
  """Yields the uses of TensorFlow's names in code that cannot be parsed.

  Names are those of the whole file, as if it had no functions.

  Args:
    text: The code.

  Yields:
    Imports, and of each name with dots the longest part that this package has,
    or else all of it, in the order of the text.
  """
  code = lexing.flatten(text)
  found, bound = _read_imports(code)
  code = _IMPORT.sub(lambda match: " " * len(match[0]), code)
  _follow_assignments(code, bound)
  for match in _DOTS.finditer(code):
    if match[1] in bound:
      written = _remove_spaces(match[0])
      name = bound[match[1]] + written[len(match[1]) :]
      extra = _count_extra_parts(name, written.count("."))
      written, name = (x.rsplit(".", extra)[0] for x in (written, name))
      found.append((match.start(), written, name))
  lines = edits_lib.Text(text)
  for offset, written, name in sorted(found):
    line, column = lines.find_position(offset)
    yield Use(line, column - 1, written, name)


def _read_imports(
  code: str,
) -> tuple[list[tuple[int, str, str]], dict[str, str]]:
  """Returns imports of TensorFlow: offset, name as written and full name.

  Returns:
    The imports, and a dictionary from names in the file to full names.
  """
  found, bound = [], {}
  for match in _IMPORT.finditer(code):
    module = _remove_spaces(match["module"] or "")
    start, names = match.start("names"), match["names"]
    if names.startswith("*") and scopes.if_tensorflow(module):
      written = f"from {module} import *"
      found.append((match.start("from"), written, module))
    for one in _IMPORTED.finditer(names):
      name = _remove_spaces(one["name"])
      full = scopes.join(module, name) if module else name
      if scopes.if_tensorflow(full):
        found.append((start + one.start(), name, full))
        first = name.partition(".")[0]
        bound[one["bound"] or first] = full if module or one["bound"] else first
  return found, bound


def _follow_assignments(code: str, bound: dict[str, str]) -> None:
  """Adds names that assignments such as `a = tf.train` bind."""
  for match in _ASSIGNMENT.finditer(code):
    first, dot, rest = _remove_spaces(match[2]).partition(".")
    if first in bound and match[1] not in bound:
      bound[match[1]] = f"{bound[first]}{dot}{rest}"


def _count_extra_parts(name: str, most: int) -> int:
  """Returns how many parts follow the longest part that this package has.

  Args:
    name: A full name.
    most: Up to how many parts to leave out.
  """
  parts = name.split(".")
  for count in range(max(len(parts) - _MANY_PARTS, 0), most):
    if uses.find_home(".".join(parts[: len(parts) - count])):
      return count
  return 0


def _hide_brackets(line: str) -> str:
  """Returns a line of code without what is in brackets."""
  parts, depth = [], 0
  for part in re.split(r"([()\[\]{}])", line):
    depth = max(depth - (part in (")", "]", "}")), 0)
    if not depth:
      parts.append(part)
    depth += part in ("(", "[", "{")
  return "".join(parts)


def _remove_spaces(text: str) -> str:
  return re.sub(r"\s", "", text)


def _get_logical_line(text: str, number: int) -> str:
  """Returns the line of `lexing.flatten` that has a line of the text."""
  ends = re.finditer("\r\n|\r|\n", text)
  starts = [0, *(match.end() for match in ends)]
  offset = starts[min(number, len(starts)) - 1]
  code = lexing.flatten(text)
  start = code.rfind("\n", 0, offset) + 1
  return code[start:].partition("\n")[0]
