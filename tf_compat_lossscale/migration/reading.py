# SPDX-License-Identifier: Apache-2.0
"""Reads each file once, as a document and as a source."""

from __future__ import annotations

import ast
import dataclasses
import functools
import re

from tf_compat_lossscale.migration import documents
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
    # Path -> the text of a file that is given, and not read.
    self._documents: dict[str, documents.Document] = {}

  def add_text(self, path: str, data: bytes) -> None:
    """Sets the content of a file, such as that of standard input.

    Raises:
      documents.DocumentError: The content is not Python.
    """
    self._documents[path] = documents.read(path, data)

  def replace(self, path: str, read: Read) -> None:
    """Sets a file that was read with other content than it has."""
    self._read[path] = read

  def read(self, path: str) -> Read:
    """Returns a file.

    Raises:
      source_facts.SourceError: The file cannot be read, or this Python cannot
        parse it.
    """
    if path not in self._read:
      try:
        document = self._documents.get(path) or documents.read(path)
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
