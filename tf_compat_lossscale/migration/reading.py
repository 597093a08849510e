# SPDX-License-Identifier: Apache-2.0
"""Reads each file once, as a document and as a source."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import re

from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import notebook_magics
from tf_compat_lossscale.migration import python2
from tf_compat_lossscale.migration import switches as switches_lib
from tf_compat_lossscale.programs import source_facts

_OPTIMIZERS = re.compile(r"\bkeras\.optimizers(\.(?!legacy)|$)")


@dataclasses.dataclass(eq=False)
class Read:
  """A file that was read.

  Attributes:
    document: The file's text.
    source: The facts that its syntax tree tells.
  """

  document: documents.Document
  source: source_facts.Source

  @functools.cached_property
  def switches(self) -> list[switches_lib.Switch]:
    """The strings and keywords that name NVIDIA's variables."""
    return switches_lib.find_switches(self.source)

  @functools.cached_property
  def uses_keras_of_v1(self) -> bool:
    """Whether the file uses Keras as `tf.compat.v1` has it."""
    return any(".compat.v1." in use.name for use in self.source.keras)

  @functools.cached_property
  def uses_optimizers(self) -> bool:
    """Whether the file uses optimizers of Keras, by class or by name."""
    return any(
      _OPTIMIZERS.search(use.name) for use in self.source.keras
    ) or any(_compiles(node) for node in self.source.list_nodes(ast.Call))


def _compiles(node: ast.Call) -> bool:
  """Returns whether a call may be that of `Model.compile`."""
  function = node.func
  return (
    isinstance(function, ast.Attribute)
    and function.attr == "compile"
    and not (isinstance(function.value, ast.Name) and function.value.id == "re")
    and any(word.arg in ("loss", "optimizer") for word in node.keywords)
  )


class Reader:
  """A reader that reads each file once."""

  def __init__(self) -> None:
    # Path -> the file, or what is wrong with the file. An error itself would
    # refer to this reader.
    self._read: dict[str, Read | str] = {}
    self._documents: dict[str, documents.Document] = {}

  def add_text(self, path: str, data: bytes) -> None:
    """Sets the content of a file, such as that of standard input.

    Raises:
      documents.DocumentError: The content is not Python.
    """
    self._documents[path] = documents.read(path, data)

  def replace(self, path: str, read: Read) -> None:
    """Sets a file that was read with other content than it has."""
    self._documents[path], self._read[path] = read.document, read

  def read_document(self, path: str) -> documents.Document:
    """Returns the text of a file.

    Raises:
      documents.DocumentError: The file cannot be read.
    """
    if path not in self._documents:
      self._documents[path] = documents.read(path)
    return self._documents[path]

  def read(self, path: str) -> Read:
    """Returns a file.

    Raises:
      source_facts.SourceError: The file cannot be read, or this Python cannot
        parse it.
    """
    if path not in self._read:
      try:
        document = self.read_document(path)
        source = source_facts.read_text(path, document.text)
        self._read[path] = Read(document, source)
      except (documents.DocumentError, source_facts.SourceError) as error:
        self._read[path] = str(error)
    found = self._read[path]
    if isinstance(found, str):
      raise source_facts.SourceError(found)
    return found

  def read_source(self, path: str) -> source_facts.Source:
    """Returns the facts that a file's syntax tree tells.

    Raises:
      source_facts.SourceError: As of `read`.
    """
    return self.read(path).source

  def find_python_2(self, path: str) -> list[tuple[int, int | None]]:
    """Returns the lines of a file that Python 2 alone can parse.

    Returns:
      The first line of a source, or of each cell of a notebook with such a
      line, with the number of the cell.
    """
    with contextlib.suppress(source_facts.SourceError):
      cells = getattr(self.read(path).document, "cells", ())
      return [
        (cell.code.line, cell.number)
        for cell in cells
        if cell.code.line and cell.code.error == notebook_magics.PYTHON_2
      ]
    unparsed = self._documents.get(path)
    line = python2.find_line(unparsed.text) if unparsed is not None else None
    return [] if line is None else [(line, None)]
