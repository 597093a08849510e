# SPDX-License-Identifier: Apache-2.0
"""Finds strings in JSON text, and edits them there: all else stays."""

from __future__ import annotations

import json
import re
from typing import Any
from typing import NamedTuple

from tf_compat_lossscale.migration import edits as edits_lib

_TOKEN = re.compile(
  r'(?P<string>"[^"\\]*(?:\\.[^"\\]*)*")|(?P<mark>[\[\]{}])'
  r'|(?P<other>[^\s\[\]{}:,"]+)'
)
_CHARACTER = re.compile(
  r"\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}"
  r"|\\u[\da-fA-F]{4}|\\.|[^\\]"
)
_ESCAPED = re.compile(r"(?<!\\)(?:\\\\)*\\u(?!00[01])")


class Literal(NamedTuple):
  """A string in JSON text.

  Attributes:
    start: The offset of its first quote.
    end: The offset after its last quote.
  """

  start: int
  end: int


class Literals(list[Any]):
  """An array in JSON text; a source has one of strings, a string for a line.

  Attributes:
    start: The offset after its bracket.
  """

  def __init__(self, start: int):
    super().__init__()
    self.start = start


def read_literals(raw: str) -> Any:
  """Returns what JSON text has, with a `Literal` for each string.

  Args:
    raw: The text, which `json.loads` accepts.
  """
  root = Literals(0)
  stack: list[Any] = [root]
  keys: list[str | None] = [None]
  for match in _TOKEN.finditer(raw):
    value: Any = None
    if match[0] in ("]", "}"):
      stack.pop()
      keys.pop()
      continue
    if match["string"]:
      if isinstance(stack[-1], dict) and keys[-1] is None:
        keys[-1] = json.loads(match[0])
        continue
      value = Literal(match.start(), match.end())
    elif match["mark"]:
      value = {} if match[0] == "{" else Literals(match.end())
    if isinstance(stack[-1], dict):
      stack[-1][keys[-1]] = value
      keys[-1] = None
    else:
      stack[-1].append(value)
    if match["mark"]:
      stack.append(value)
      keys.append(None)
  return root[0]


def is_ascii_style(raw: str) -> bool:
  """Returns whether JSON text escapes all characters that are not ASCII."""
  return raw.isascii() and bool(_ESCAPED.search(raw))


class Source:
  """The source of a cell in JSON text: a string, or a list of strings."""

  def __init__(self, raw: str, value: Literal | Literals, ascii_only: bool):
    """Finds the characters of a source.

    Args:
      raw: The JSON text.
      value: The source in it.
      ascii_only: Whether to escape other characters.
    """
    self._raw = raw
    self._ascii_only = ascii_only
    self._is_list = isinstance(value, Literals)
    self._literals: list[Literal] = value if self._is_list else [value]  # type: ignore[assignment, list-item]
    self._start = value.start
    # The offset in `raw` of each character, and of the end, of each literal.
    self._offsets = [
      [
        *(m.start() for m in _CHARACTER.finditer(raw, start + 1, end - 1)),
        end - 1,
      ]
      for start, end in self._literals
    ]

  def translate(self, edit: edits_lib.Edit) -> edits_lib.Edit:
    """Returns the edit of the JSON text for an edit of the source.

    In a list of strings, lines of the new text become strings of their own.
    """
    if not self._literals:
      lines = re.findall(r"[^\n]*\n|[^\n]+", edit.text)
      new = ", ".join(f'"{self._escape(line)}"' for line in lines)
      return edits_lib.Edit(self._start, self._start, new)
    first, at = self._find(edit.start)
    last, to = self._find(edit.end)
    head = self._decode(first, at)
    if edit.start < edit.end and to == 0 and last > 0:
      before = self._decode(last - 1)
      if not before.endswith("\n"):  # A cut that is no line's.
        last, to = last - 1, len(before)
    tail = to < len(self._offsets[last]) - 1
    *whole, rest = edit.text.split("\n")
    pieces = [self._escape(line + "\n") for line in whole]
    if rest or tail or not whole:
      pieces.append(self._escape(rest))
    joint = f'"{self._get_separator(first)}"' if self._is_list else ""
    if head.endswith("\n") and edit.text:
      pieces.insert(0, "")
    return edits_lib.Edit(
      self._offsets[first][at], self._offsets[last][to], joint.join(pieces)
    )

  def _find(self, offset: int) -> tuple[int, int]:
    """Returns the literal, and the place in it, of an offset of the source.

    Between two literals, this is the start of the second.
    """
    for number, offsets in enumerate(self._offsets):
      if offset < len(offsets) - 1:
        return number, offset
      offset -= len(offsets) - 1
    return len(self._offsets) - 1, len(self._offsets[-1]) - 1 + offset

  def _decode(self, number: int, end: int | None = None) -> str:
    """Returns the first characters of a literal."""
    literal: str = json.loads(self._raw[slice(*self._literals[number])])
    return literal[:end]

  def _get_separator(self, number: int) -> str:
    """Returns what is between two strings of the list."""
    if len(self._literals) > 1:
      number = min(number, len(self._literals) - 2)
      left, right = self._literals[number : number + 2]
      return self._raw[left.end : right.start]
    space = self._raw[self._start : self._literals[0].start]
    return f",{space or ' '}"

  def _escape(self, text: str) -> str:
    """Returns text as in a JSON string."""
    return json.dumps(text, ensure_ascii=self._ascii_only)[1:-1]
