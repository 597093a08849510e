# SPDX-License-Identifier: Apache-2.0
"""Comments that silence findings: `# lossscale: ignore[LS101]`."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
import io
import re
import tokenize
from typing import NamedTuple

_MARK = re.compile(r"#\s*lossscale:", re.IGNORECASE)
_COMMENT = re.compile(
  r"#\s*lossscale:\s*ignore(?:\s*\[(?P<codes>[^\]#]*)\]|(?!\s*\[|[\w-]))",
  re.IGNORECASE,
)
# From Python 3.12 on, an f-string is several tokens.
_STARTS = ("FSTRING_START", "TSTRING_START")
_ENDS = ("FSTRING_END", "TSTRING_END")

_Codes = frozenset[str] | None


class Comments(NamedTuple):
  """What the comments of a text say.

  Attributes:
    ignored: Line -> the codes that are ignored there; None for all codes.
    mistakes: Pairs of a line and a message, for comments that mean nothing.
  """

  ignored: dict[int, frozenset[str] | None]
  mistakes: tuple[tuple[int, str], ...]


def read_comments(text: str, known: Iterable[str] = ()) -> Comments:
  """Returns what the comments of a text ignore, and what they get wrong.

  A comment speaks for its own line. If a line cannot have a comment, because a
  string or a backslash continues it, the comment behind the end counts.

  Args:
    text: Python code. It may be of Python 2, or not parse at all.
    known: All codes; () if unknown codes are no mistake.
  """
  ignored: dict[int, _Codes] = {}
  mistakes: list[tuple[int, str]] = []
  if not _MARK.search(text):  # Few files have such a comment.
    return Comments(ignored, ())
  everything = tuple(known)
  for first, line, comment in _list_comments(text):
    match = _COMMENT.search(comment)
    if match is None:
      if _MARK.search(comment):
        mistakes.append(
          (line, f"{comment!r} is no `# lossscale: ignore[CODE]`")
        )
      continue
    codes = _split(match["codes"])
    mistakes += [
      (line, f"there is no code {code!r} to ignore")
      for code in sorted(codes or ())
      if everything and not any(each.startswith(code) for each in everything)
    ]
    for number in range(first, line + 1):
      before = ignored.get(number, frozenset())
      ignored[number] = (
        None if before is None or codes is None else before | codes
      )
  return Comments(ignored, tuple(mistakes))


def read_line(line: str) -> dict[int, frozenset[str] | None]:
  """Returns what the comment of a line of another language ignores."""
  match = _COMMENT.search(line)
  return {1: _split(match["codes"])} if match else {}


def is_ignored(
  code: str, line: int, ignored: dict[int, frozenset[str] | None]
) -> bool:
  """Returns whether a comment ignores a finding.

  Args:
    code: The finding's code. A comment may name its beginning, such as LS1.
    line: The finding's line.
    ignored: As of `Comments`.
  """
  codes = ignored.get(line, frozenset())
  return codes is None or any(code.startswith(each) for each in codes)


def _split(codes: str | None) -> _Codes:
  """Returns the codes in brackets; None if there are no brackets."""
  if codes is None:
    return None
  return frozenset(word.upper() for word in re.split(r"[\s,]+", codes) if word)


def _list_comments(text: str) -> Iterator[tuple[int, int, str]]:
  """Yields (first line, own line, text) of each comment.

  The first line is that of the lines that the comment speaks for.
  """
  lines = io.StringIO(text, newline=None).read().split("\n")
  joined: dict[int, int] = {}  # Line -> the first line of its string.
  opened: list[int] = []
  comments: dict[int, str] = {}
  last = 0
  try:
    reader = io.StringIO(text, newline=None)
    for token in tokenize.generate_tokens(reader.readline):
      kind, last = tokenize.tok_name[token.type], token.end[0]
      if kind == "COMMENT":
        comments[last] = token.string
      elif kind in _STARTS:
        opened.append(token.start[0])
      elif kind == "STRING" or (kind in _ENDS and opened):
        first = token.start[0] if kind == "STRING" else opened.pop()
        for line in range(first + 1, last + 1):
          joined.setdefault(line, first)
  except (tokenize.TokenError, SyntaxError):
    # Of the rest we take what looks like a comment.
    for line, string in enumerate(lines[last:], last + 1):
      mark = _MARK.search(string)
      if mark is not None:
        comments.setdefault(line, string[mark.start() :])
  for line, comment in comments.items():
    first = line
    while first > 1:
      if first in joined:
        first = joined[first]
      elif lines[first - 2].endswith("\\") and first - 1 not in comments:
        first -= 1
      else:
        break
    yield first, line, comment
