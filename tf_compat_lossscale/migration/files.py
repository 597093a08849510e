# SPDX-License-Identifier: Apache-2.0
"""A file as a rule sees it, with what the rules need to make findings."""

from __future__ import annotations

import ast
import bisect
from collections.abc import Collection
from collections.abc import Container
from collections.abc import Iterator
from collections.abc import Sequence
import functools
import os
import re

from tf_compat_lossscale.migration import absences as absences_lib
from tf_compat_lossscale.migration import edits as edits_lib
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import reading
from tf_compat_lossscale.migration import roles
from tf_compat_lossscale.migration import switches as switches_lib
from tf_compat_lossscale.programs import scopes
from tf_compat_lossscale.programs import uses

_PACKAGE = "tf_compat_lossscale"
_SHORT = "tfl"


class File:
  """A file of a project.

  Attributes:
    path: The file.
    document: The file's text.
    text: The text with its lines.
    source: The facts that its syntax tree tells.
    role: What the file has to do in the project's programs.
    release: The TensorFlow (major, minor) that it will run on.
    short: The name by which the file calls this package.
  """

  def __init__(
    self,
    read: reading.Read,
    project: roles.Roles,
  ):
    """Combines what is known of a file.

    Args:
      read: The file.
      project: The roles of the files of its project.
    """
    self._read = read
    self.document, self.source = read.document, read.source
    self.path = self.source.path
    self.text = self.document.lines
    self._project = project
    self.role = project.of[self.path]
    self.release = project.release
    known = find_short_name(self.source.tree.body)
    text = self.document.text
    taken = _SHORT in text and re.search(rf"\b{_SHORT}\b", text)
    self.short = known or (_PACKAGE if taken else _SHORT)

  @property
  def tensorflow(self) -> int | None:
    """1 if the file belongs to a TensorFlow 1 program, 2 or None otherwise.

    A module that programs of both reach stays as it is, unless it has names of
    TensorFlow 1 itself.
    """
    meant = self.role.tensorflow
    if meant == {1, 2}:
      return 1 if self.source.tensorflow1 else 2
    return next(iter(meant), None)

  @functools.cached_property
  def starts(self) -> list[str]:
    """The files that start the programs with this file, itself first."""
    folder = os.path.dirname(self.path)
    entries = sorted(
      self.role.entries, key=lambda p: (p != self.path, ".ipynb" in p, p)
    )
    return [os.path.relpath(path, folder) for path in entries]

  def tell_where(self, call: str) -> str:
    """Returns what to do if no file here starts the file's programs.

    Args:
      call: The call that these programs need.
    """
    folder = os.path.dirname(self.path)
    place = os.path.relpath(self.role.first_file, folder)
    return (
      f"{call} at the top of {place}, or of the program that imports it: no "
      "file here starts that program"
    )

  @functools.cached_property
  def absences(self) -> list[tuple[uses.Use, absences_lib.Absence]]:
    """The uses of names that today's TensorFlow lacks."""
    return self._project.list_absences(self.source, self.tensorflow)

  @property
  def switches(self) -> list[switches_lib.Switch]:
    """The strings and keywords that name NVIDIA's variables."""
    return self._read.switches

  @functools.cached_property
  def _modules(self) -> dict[str, set[str]]:
    """Module -> the names that imports bind to it, and nothing else does."""
    bound: dict[str, set[str]] = {}
    for node in self.source.list_nodes(ast.Import):
      for alias in node.names:
        first = alias.name.partition(".")[0]
        name = alias.asname or first
        bound.setdefault(alias.name if alias.asname else first, set()).add(name)
    others = {
      *(each.arg for each in self.source.list_nodes(ast.arg)),
      *(
        each.id
        for each in self.source.list_nodes(ast.Name)
        if not isinstance(each.ctx, ast.Load)
      ),
    }
    for module, names in bound.items():
      for other, same in bound.items():
        names -= others if other == module else same
    return bound

  def find_start(self) -> ast.AST | tuple[int, int]:
    """Returns the first import of TensorFlow, or else the first statement."""
    if self.source.imports:
      return self.source.imports[0].node
    return next(iter(self.source.tree.body), (0, 0))

  def find_opening(self) -> ast.AST | tuple[int, int]:
    """Returns the first import of TensorFlow or of the program's own modules.

    If only functions import them, it is the first statement.
    """
    body = self.source.tree.body
    if self._first_import < len(body):
      return body[self._first_import]
    return next(iter(body), (0, 0))

  @property
  def package_import(self) -> str:
    """The statement that imports this package."""
    alias = f" as {self.short}" if self.short != _PACKAGE else ""
    return f"import {_PACKAGE}{alias}"

  def shorten(self, name: str) -> str:
    """Returns a full name of this package as the file writes it."""
    return name.replace(_PACKAGE, self.short, 1)

  def make(
    self,
    code: str,
    place: ast.AST | tuple[int, int],
    name: str,
    message: str,
    state: str = findings.APPLIED,
    note: str = "",
    edits: Sequence[edits_lib.Edit] = (),
    opening: Sequence[str] = (),
  ) -> findings.Finding:
    """Returns a finding in this file.

    Args:
      code: The code of the rule.
      place: The node, or the offsets of its start and end.
      name: What was found, as written.
      message: What to write instead, or what to do.
      state: One of `findings.STATES`.
      note: A known difference, or a reason.
      edits: The edits of the text.
      opening: Lines that the file needs at its start.
    """
    span = place if isinstance(place, tuple) else self.find_span(place)
    line_in_text = self.text.find_position(span[0])[0]
    cell, line, column = self.document.locate(span[0])
    _, end_line, end_column = self.document.locate(span[1])
    return findings.Finding(
      self.path,
      line,
      column,
      end_line,
      end_column,
      code,
      " ".join(name.split()),
      message,
      state,
      note,
      tuple(edits),
      tuple(opening),
      cell,
      min(self._first_import, self._find_statement(line_in_text)),
    )

  def replace(self, code: str, node: ast.expr, new: str) -> findings.Finding:
    """Returns a finding whose edit writes other text in place of a node."""
    edit = edits_lib.Edit(*self.find_span(node), new)
    return self.make(code, node, ast.unparse(node), new, edits=[edit])

  @functools.cached_property
  def _first_import(self) -> int:
    """The number of the statement that first imports TensorFlow.

    An import of a module of the program counts as well. Imports in functions do
    not count.
    """
    for i, statement in enumerate(self.source.tree.body):
      if _imports(statement, self.role.own_modules):
        return i
    return len(self.source.tree.body)

  def _find_statement(self, line: int) -> int:
    """Returns the number of the top-level statement that a line belongs to."""
    return max(0, bisect.bisect_right(self._statement_lines, line) - 1)

  @functools.cached_property
  def _statement_lines(self) -> list[int]:
    """The first line of each top-level statement, decorators included."""
    return [
      min(part.lineno for part in [s, *getattr(s, "decorator_list", ())])
      for s in self.source.tree.body
    ]

  def find_span(self, node: ast.AST) -> tuple[int, int]:
    """Returns the offsets of a node.

    Before Python 3.12, a node in an f-string may have a position outside.
    """
    try:
      start, end = self.text.find_span(node)
    except IndexError:
      return 0, 0
    return min(start, end), max(start, end)

  def is_at(self, node: ast.expr) -> bool:
    """Returns whether the text at a node's position is that node's."""
    start, end = self.find_span(node)
    segment = self.document.text[start:end]
    if segment == scopes.unparse(node):  # Mostly, a dotted name.
      return True
    try:
      found = ast.parse(f"({segment}\n)", mode="eval").body
      return scopes.unparse(found) == scopes.unparse(node)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
      return False

  def find_names(self, module: str) -> set[str]:
    """Returns the names that imports bind to a module, and nothing else does.

    `tensorflow.compat.v1` counts as `tensorflow`.
    """
    found = set(self._modules.get(module, ()))
    return found | self._modules.get(f"{module}.compat.v1", set())

  def list_attributes(
    self, module: str, wanted: Collection[str]
  ) -> Iterator[tuple[ast.Attribute, ast.Name]]:
    """Yields attributes of a module, such as `np.int` of "numpy".

    A name that the file also binds to something else is left out.

    Args:
      module: The module.
      wanted: The names of the attributes.

    Yields:
      Each attribute, and the name that stands for the module there.
    """
    if self.source.words.isdisjoint(wanted):
      return
    names = self._modules.get(module, set())
    for node in self.source.list_nodes(ast.Attribute):
      if (
        node.attr in wanted
        and isinstance(node.value, ast.Name)
        and node.value.id in names
        and self.is_at(node)
      ):
        yield node, node.value

  def list_statements(self) -> Iterator[ast.stmt]:
    """Yields the statements of the module and of the blocks in it.

    The statements in functions and classes are left out.
    """
    yield from _list_statements(self.source.tree.body)

  def is_alone(self, statement: ast.stmt) -> bool:
    """Returns whether a statement is the only one in its lines."""
    start, end = self.find_span(statement)
    text = self.document.text
    rest = text[end : self.text.find_line_end(end)].strip()
    before = text[start - (self.text.find_position(start)[1] - 1) : start]
    return (not rest or rest.startswith("#")) and not before.strip()

  def insert_after(
    self, statement: ast.stmt, lines: Sequence[str]
  ) -> edits_lib.Edit:
    """Returns the insertion of statements after a statement."""
    start, end = self.find_span(statement)
    if not self.is_alone(statement):
      return edits_lib.Edit(end, end, "".join(f"; {line}" for line in lines))
    column = self.text.find_position(start)[1] - 1
    before = self.document.text[start - column : start]
    line_end = self.text.find_line_end(end)
    new = "".join(f"{self.text.newline}{before}{line}" for line in lines)
    return edits_lib.Edit(line_end, line_end, new)


def _list_statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
  """Yields statements, and those of their blocks."""
  for statement in body:
    yield statement
    if isinstance(
      statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    ):
      continue
    for name in ("body", "orelse", "finalbody"):
      yield from _list_statements(getattr(statement, name, ()))
    for handler in getattr(statement, "handlers", ()):
      yield from _list_statements(handler.body)


def _imports(node: ast.AST, modules: Container[str]) -> bool:
  """Returns whether a statement imports TensorFlow or one of some modules."""
  if isinstance(node, (ast.Import, ast.ImportFrom)):
    return any(
      scopes.if_tensorflow(name) or name in modules
      for name in scopes.list_modules(node)
    )
  if isinstance(node, (*scopes.FUNCTIONS, ast.expr)):
    return False
  return any(_imports(child, modules) for child in scopes.list_children(node))


def find_short_name(statements: Sequence[ast.stmt]) -> str | None:
  """Returns the name to which an import binds this package, if any does."""
  for statement in statements:
    if isinstance(statement, ast.Import):
      for alias in statement.names:
        if alias.name == _PACKAGE:
          return alias.asname or _PACKAGE
  return None
