# SPDX-License-Identifier: Apache-2.0
"""Files of Python code, in the encoding that the file declares."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
import io
import re
import tokenize

from tf_compat_lossscale.migration import document_base
from tf_compat_lossscale.migration import edits as edits_lib

_LINE_ENDS = re.compile(rb"\r\n?")


class PythonFile(document_base.Document):
  """A file of Python code.

  Attributes:
    encoding: The encoding; a byte order mark is no part of it.
  """

  def __init__(self, path: str, data: bytes):
    """Reads a file's bytes.

    Raises:
      DocumentError: The bytes are no text in the declared encoding.
    """
    self.path = path
    self.data = data
    self._mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    self.encoding = _find_encoding(path, data)
    self.text = _decode(path, data[len(self._mark) :], self.encoding)

  def replace(self, edits: Sequence[edits_lib.Edit]) -> bytes:
    if not edits:
      return self.data
    shown = document_base.show_path(self.path)
    for edit in edits:
      try:
        edit.text.encode(self.encoding)
      except UnicodeEncodeError as error:
        line = self.locate(edit.start)[1]
        raise document_base.DocumentError(
          f"{shown}:{line}: cannot be edited: the file's encoding "
          f"({self.encoding}) has no {error.object[error.start]!a}"
        ) from None
    data = self._encode(edits_lib.apply(self.text, edits))
    if data is None or self._encode(self.text) != self.data:
      raise document_base.DocumentError(
        f"{shown}: cannot be edited: {self.encoding} would change bytes "
        "outside the edits"
      )
    if _find_encoding(self.path, data) != _find_encoding(self.path, self.data):
      raise document_base.DocumentError(
        f"{shown}: cannot be edited: the encoding would no longer be declared "
        "in the first two lines"
      )
    return data

  def locate(self, offset: int) -> tuple[int | None, int, int]:
    return (None, *self.lines.find_position(offset))

  def _encode(self, text: str) -> bytes | None:
    """Returns the bytes of a text, or None if they would not give the text."""
    try:
      data = text.encode(self.encoding)
      if self.encoding != "utf-8" and data.decode(self.encoding) != text:
        return None
    except (LookupError, UnicodeError):
      return None
    return self._mark + data


def _find_encoding(path: str, data: bytes) -> str:
  """Returns the encoding that Python reads a file in.

  Raises:
    DocumentError: The declared encoding is unknown, or the first lines are no
      text in it.
  """
  # Python counts lines as here; tokenize takes "\r" for a part of a line.
  head = io.BytesIO(_LINE_ENDS.sub(b"\n", data[:4096]))
  try:
    encoding, _ = tokenize.detect_encoding(head.readline)
  except SyntaxError as error:
    reason = str(error).partition(" for ")[0]
    if reason.startswith("invalid or missing"):
      reason = "not UTF-8, and no other encoding is declared"
    raise document_base.DocumentError(
      f"{document_base.show_path(path)}: cannot be read: {reason}"
    ) from None
  return "utf-8" if encoding == "utf-8-sig" else encoding


def _decode(path: str, data: bytes, encoding: str) -> str:
  """Returns the text of a file's bytes.

  Raises:
    DocumentError: The bytes are no text in the encoding.
  """
  shown = document_base.show_path(path)
  try:
    text = data.decode(encoding)
    if encoding != "utf-8":
      text.encode("utf-8")  # A few encodings give halves of characters.
    return text
  except UnicodeDecodeError as error:
    line = _LINE_ENDS.sub(b"\n", data[: error.start]).count(b"\n") + 1
    reason = f"byte 0x{data[error.start]:02x} is not {encoding}"
    shown = f"{shown}:{line}"
  except (LookupError, ValueError):
    reason = f"not text in the declared encoding ({encoding})"
  raise document_base.DocumentError(f"{shown}: cannot be read: {reason}")
