# SPDX-License-Identifier: Apache-2.0
"""Reads files with Python code as text, and writes edits into their bytes."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
import functools
import io
import os
import re
import stat
import tokenize

from tf_compat_lossscale.migration import edits as edits_lib

_HEAD = 1 << 16
_LINE_ENDS = re.compile(rb"\r\n?")


class DocumentError(Exception):
  """An error for a file that cannot be read as Python, or cannot be edited.

  The message is one line that begins with the path.
  """


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
  def lines(self) -> edits_lib.Text:
    """The text with its lines."""
    return edits_lib.Text(self.text)

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
    return (None, *self.lines.find_position(offset))

  def replace(self, edits: Sequence[edits_lib.Edit]) -> bytes:
    """Returns the whole file's bytes after edits of `text`.

    Raises:
      DocumentError: The file cannot take an edit; it stays as it is.
    """
    if not edits:
      return self.data
    text = edits_lib.apply(self.text, edits)
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
