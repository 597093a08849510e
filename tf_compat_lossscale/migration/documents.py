# SPDX-License-Identifier: Apache-2.0
"""Reads files with Python code as text, and writes edits into their bytes.

An edit goes by offsets: all else in the text stays as it is.
"""

from __future__ import annotations

import bisect
import codecs
from collections.abc import Iterable
from collections.abc import Sequence
import functools
import io
import itertools
import operator
import os
import re
import stat
import tokenize
from typing import Any
from typing import NamedTuple

_HEAD = 1 << 16
_LINE_ENDS = re.compile(rb"\r\n?")
_LINE_END = re.compile("\r\n|\r|\n")


class DocumentError(Exception):
  """An error for a file that cannot be read as Python, or cannot be edited.

  The message is one line that begins with the path.
  """


class Edit(NamedTuple):
  """A replacement of a part of a text.

  Attributes:
    start: The offset of the part, in characters.
    end: The offset after the part; `start` for an insertion.
    text: The new text.
  """

  start: int
  end: int
  text: str


class Document:
  """A file of Python code, in the encoding that the file declares.

  Attributes:
    path: The file.
    data: The whole file's bytes.
    text: The code, in which positions are counted.
  """

  def __init__(self, path: str, data: bytes):
    """Reads a file's bytes.

    Raises:
      DocumentError: The bytes are no text in the declared encoding.
    """
    self.path, self.data = path, data
    self._mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    self._encoding = "utf-8"
    self.text = self._decode()

  @functools.cached_property
  def newline(self) -> str:
    """The end of the first line; "\\n" if there is only one line."""
    first = _LINE_END.search(self.text)
    return first[0] if first else "\n"

  @functools.cached_property
  def _starts(self) -> list[int]:
    """The offset of each line, as Python counts them."""
    if "\r" in self.text:
      ends = [match.end() for match in _LINE_END.finditer(self.text)]
    else:  # To split the text takes less time.
      lengths = [len(line) + 1 for line in self.text.split("\n")]
      ends = list(itertools.accumulate(lengths[:-1]))
    return [0, *ends]

  def find_span(self, node: Any) -> tuple[int, int]:
    """Returns the offsets of the start and the end of a node.

    Syntax trees count columns in bytes of UTF-8.
    """
    start = self._starts[node.lineno - 1] + node.col_offset
    end = self._starts[node.end_lineno - 1] + node.end_col_offset
    if not self.text.isascii():
      start -= self._count_excess(node.lineno, node.col_offset)
      end -= self._count_excess(node.end_lineno, node.end_col_offset)
    return start, end

  def _count_excess(self, line: int, column: int) -> int:
    """Returns how many bytes more than characters stand before a column."""
    start = self._starts[line - 1]
    encoded = self.text[start : start + column].encode("utf-8")[:column]
    return column - len(encoded.decode("utf-8", "ignore"))

  def find_position(self, offset: int) -> tuple[int, int]:
    """Returns the line of an offset and its column, both counted from 1."""
    line = bisect.bisect_right(self._starts, offset)
    return line, offset - self._starts[line - 1] + 1

  def find_line(self, line: int) -> int:
    """Returns the offset of a line, which is counted from 1."""
    return self._starts[line - 1]

  def find_line_end(self, offset: int) -> int:
    """Returns the offset of the end of a line, before its line end."""
    match = _LINE_END.search(self.text, offset)
    return match.start() if match else len(self.text)

  def get_before(self, offset: int) -> str:
    """Returns what stands before an offset in its line."""
    return self.text[self.find_line(self.find_position(offset)[0]) : offset]

  @property
  def errors(self) -> Sequence[str]:
    """A line for each part of the file that cannot be read."""
    return ()

  @property
  def magics(self) -> Sequence[tuple[int, str]]:
    """The parts of the file that are no Python, with their offsets."""
    return ()

  def locate(self, offset: int) -> tuple[int | None, int, int]:
    """Returns where an offset of `text` is.

    Returns:
      The cell of a notebook or None, the line in that cell or in the file, and
      the column in characters, all counted from 1.
    """
    return (None, *self.find_position(offset))

  def replace(self, edits: Sequence[Edit]) -> bytes:
    """Returns the whole file's bytes after edits of `text`.

    Raises:
      DocumentError: The file cannot take an edit; it stays as it is.
    """
    if not edits:
      return self.data
    text = apply(self.text, edits)
    try:
      data = self._mark + text.encode(self._encoding)
      # Some encodings have several bytes for a text. The edits may also move
      # the line that declares the encoding.
      if self._encoding == "utf-8" or (
        self._mark + self.text.encode(self._encoding) == self.data
        and Document(self.path, data).text == text
      ):
        return data
    except (LookupError, UnicodeError, DocumentError):
      pass
    raise self._refuse(
      f"in {self._encoding}, bytes outside the edits would change, or a "
      "character is missing"
    )

  def _refuse(self, reason: str) -> DocumentError:
    return DocumentError(f"{show_path(self.path)}: cannot be edited: {reason}")

  def _decode(self) -> str:
    data = self.data[len(self._mark) :]
    place = show_path(self.path)
    # Python counts lines as here; tokenize takes "\r" for a part of a line.
    head = io.BytesIO(_LINE_ENDS.sub(b"\n", self.data[:4096]))
    try:
      encoding, _ = tokenize.detect_encoding(head.readline)
      self._encoding = encoding.removesuffix("-sig")
      text = data.decode(self._encoding)
      if self._encoding != "utf-8":
        text.encode("utf-8")  # A few encodings give halves of characters.
      return text
    except SyntaxError as error:
      reason = str(error).partition(" for ")[0]
      if reason.startswith("invalid or missing"):
        reason = "not UTF-8, and no other encoding is declared"
    except UnicodeDecodeError as error:
      line = _LINE_ENDS.sub(b"\n", data[: error.start]).count(b"\n") + 1
      reason = f"byte 0x{data[error.start]:02x} is not {self._encoding}"
      place = f"{place}:{line}"
    except (LookupError, ValueError):
      reason = f"not text in the declared encoding ({self._encoding})"
    raise DocumentError(f"{place}: cannot be read: {reason}")


def apply(text: str, edits: Iterable[Edit]) -> str:
  """Returns a text with edits that do not overlap.

  Insertions at one place keep their order.
  """
  parts, at = [], 0
  for edit in sorted(edits, key=operator.itemgetter(0, 1)):
    assert edit.start >= at, edit
    parts += [text[at : edit.start], edit.text]
    at = edit.end
  return "".join([*parts, text[at:]])


def load(path: str) -> bytes:
  """Returns the bytes of a source or a notebook, a regular file.

  To open a pipe may wait for ever, and a device such as /dev/zero has no end.

  Raises:
    DocumentError: The file cannot be read, or is binary.
  """
  try:
    mode = os.stat(path).st_mode
    if stat.S_ISREG(mode):
      with open(path, "rb") as file:
        head = file.read(_HEAD)
        check_text(path, head)  # What is no text may be huge.
        return head + file.read()
    reason = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
  except FileNotFoundError:
    reason = "there is no such file"
    if os.path.islink(path):
      reason = "the link leads to nothing"
  except (OSError, MemoryError, ValueError) as error:
    reason = getattr(error, "strerror", None) or str(error) or "out of memory"
  raise DocumentError(f"{show_path(path)}: {reason}")


def check_text(path: str, head: bytes) -> None:
  """Checks that a file which begins so is text.

  Binary files would pass an encoding such as Latin-1, but have NUL bytes.

  Raises:
    DocumentError: It is binary.
  """
  if b"\0" in head:
    raise DocumentError(f"{show_path(path)}: a binary file, not text")


def show_path(path: str) -> str:
  """Returns a path in one line that can be printed."""
  return path if path.isprintable() else repr(path)[1:-1]
