# SPDX-License-Identifier: Apache-2.0
"""The base class of files with Python code, and their errors."""

from __future__ import annotations

import abc
from collections.abc import Sequence
import functools

from tf_compat_lossscale.migration import edits as edits_lib


class DocumentError(Exception):
  """An error for a file that cannot be read as Python, or cannot be edited.

  The message is one line that begins with the path.
  """


class Document(abc.ABC):
  """A file with Python code.

  Attributes:
    path: The file.
    data: The whole file's bytes.
    text: The code, in which positions are counted.
  """

  path: str
  data: bytes
  text: str

  @abc.abstractmethod
  def replace(self, edits: Sequence[edits_lib.Edit]) -> bytes:
    """Returns the whole file's bytes after edits of `text`.

    Every byte outside the edits stays.

    Raises:
      DocumentError: The file cannot take an edit; it stays as it is.
    """

  @abc.abstractmethod
  def locate(self, offset: int) -> tuple[int | None, int, int]:
    """Returns where an offset of `text` is.

    Returns:
      The cell of a notebook or None, the line in that cell or in the file, and
      the column in characters, all counted from 1.
    """

  @functools.cached_property
  def lines(self) -> edits_lib.Text:
    """The text with its lines."""
    return edits_lib.Text(self.text)


def show_path(path: str) -> str:
  """Returns a path in one line that can be printed."""
  return path if path.isprintable() else repr(path)[1:-1]
