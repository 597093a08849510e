# SPDX-License-Identifier: Apache-2.0
"""A file as a rule sees it, with what the rules need to make findings."""

from __future__ import annotations

import ast
from collections.abc import Sequence
import functools
import os
import re
from typing import Any

from tf_compat_lossscale.migration import contexts
from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import legacy_uses
from tf_compat_lossscale.programs import missing_names
from tf_compat_lossscale.programs import sources
from tf_compat_lossscale.programs import tensorflow_names
from tf_compat_lossscale.programs import which_tensorflow

PACKAGE = "tf_compat_lossscale"
_V1 = "tensorflow.compat.v1"
_SHORT = "tfl"
# What a program may call at its start already.
START_CALLS = (
  *("disable_v2_behavior", "disable_eager_execution", "honor_environment"),
  *("install", "use_keras_2"),
)
# Modules below `tensorflow` that TensorFlow 1's namespace does not have, or
# that `tfl.install()` puts back under their old name.
STAYS = (
  *("compat", "contrib", "core", "estimator"),
  *("examples", "python", "tools"),
)
_PLAIN = re.compile(rf"tensorflow($|\.(?!({'|'.join(STAYS)})\b))")
_TENSORFLOW_MODULE = re.compile(rf"tensorflow(\.|$)|{PACKAGE}\.keras\b")
_LOADS_TENSORFLOW = re.compile(r"(tensorflow(_core)?|keras)(\.|$)")
# A name over several lines, in parentheses, may have comments in it.
_COMMENT = re.compile(r"\s*#[^\r\n]*(?:\r\n|\r|\n)")
# What refers to the syntax tree, or is large.
_OF_TREE = (
  *("absences", "fallback_lines", "legacy", "names", "source"),
  *("statements", "tree"),
)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class File:
  """A file of a call of `scan` or `migrate`.

  Attributes:
    path: The file, as the user wrote it.
    document: The file's text, and where it is in the file.
    context: What the other files tell of it; set when all are read.
    vote: What it tells of its TensorFlow by itself. This and the rest are set
      when the file is read.
    signs: As `start_needs.find_signs` returns them.
    restorable: The names that `tfl.install()` can put back, "keras" among them,
      each with the offsets of its first use.
    packages: The missing packages that it names.
    found: The findings of the rules that ask no other file, and the decision on
      TensorFlow that they go by.
  """

  context: contexts.Context
  vote: contexts.Vote
  signs: set[str]
  restorable: dict[str, tuple[int, int]]
  packages: list[contexts.Package]
  found: tuple[contexts.Meaning, list[findings.Finding]]

  def __init__(self, document: documents.Document):
    self.path, self.document = document.path, document

  @functools.cached_property
  def tree(self) -> ast.Module:
    """The syntax tree; an error if the file is no Python."""
    return sources.parse(self.path, self.document.text)

  @functools.cached_property
  def source(self) -> sources.SourceFile:
    """What the reader of sources found; an error if it is no Python."""
    return sources.read_text(self.path, self.document.text, self.tree)

  def leave(self) -> None:
    """Drops the syntax tree, which is made again if asked for."""
    for name in _OF_TREE:
      vars(self).pop(name, None)

  @property
  def tensorflow(self) -> int | None:
    """1 or 2: the TensorFlow that the file means; None if it imports none."""
    return self.context.decision.tensorflow

  @functools.cached_property
  def names(self) -> set[str]:
    """The full names of modules' members that the file uses."""
    return {use.name for use in self.source.uses}

  @functools.cached_property
  def imports_tensorflow(self) -> bool:
    """Whether the file imports TensorFlow, or this package's part of it."""
    return any(map(_TENSORFLOW_MODULE.match, self.source.modules))

  @functools.cached_property
  def imports_package(self) -> bool:
    """Whether the file imports this package."""
    return any(m.partition(".")[0] == PACKAGE for m in self.source.modules)

  @functools.cached_property
  def fallback_lines(self) -> set[int]:
    """The lines that run where there is no `tensorflow.compat.v1`.

    They are the other branches of a `try` or an `if` that imports it.
    """
    imports = self.list_imports() if _V1 in self.source.modules else []
    v1 = {node.lineno for node in imports if _V1 in list_modules(node)}
    found = set[int]()
    blocks: list[Any] = [*self.source.list_nodes(ast.Try, ast.If)] if v1 else []
    for block in blocks:
      handlers = [each.body for each in getattr(block, "handlers", ())]
      bodies = [block.body, block.orelse, *handlers]
      branches = [_list_lines(body) for body in bodies]
      if not all(map(v1.isdisjoint, branches)):
        found.update(*filter(v1.isdisjoint, branches))
    return found

  @functools.cached_property
  def imports_compat_v1(self) -> bool:
    """Whether it imports TensorFlow as `tensorflow.compat.v1` alone.

    What it imports where there is no such module does not count.
    """
    return _V1 in self.source.modules and not any(
      use.form in ("import", "from", "star")
      and _PLAIN.match(use.name)
      and use.line not in self.fallback_lines
      for use in self.source.uses
    )

  @functools.cached_property
  def has_names_of_compat_v1(self) -> bool:
    """Whether it has names of TensorFlow 1 in `tensorflow.compat.v1`."""
    return any(
      tensorflow_names.find_name(name.removeprefix(f"{_V1}."), 1)
      for name in self.names
      if name.startswith(f"{_V1}.") and name.split(".")[-1] not in START_CALLS
    )

  @functools.cached_property
  def has_legacy(self) -> bool:
    """Whether it has legacy names."""
    return bool(self.legacy)

  @functools.cached_property
  def legacy(self) -> list[legacy_uses.LegacyUse]:
    """The legacy names in the file."""
    return list(legacy_uses.find_legacy_uses(self.source))

  @functools.cached_property
  def switches(self) -> list[tuple[str, tuple[int, int]]]:
    """The strings and keywords that name NVIDIA's variables, with offsets."""
    if legacy_uses.SWITCHES[0] not in self.document.text:  # All begin so.
      return []
    found = []
    for name, node in legacy_uses.find_switches(self.source):
      start, end = self.find_span(node)
      if isinstance(node, ast.keyword):
        end = start + len(name)
      found.append((name, (start, end)))
    return sorted(found, key=lambda each: each[1])

  @functools.cached_property
  def main_lines(self) -> set[int]:
    """The lines that run only if the file is `__main__`."""
    return _list_lines(
      [
        statement
        for statement in self.tree.body
        if isinstance(statement, ast.If) and _asks_for_main(statement.test)
      ]
    )

  @functools.cached_property
  def absences(self) -> list[tuple[sources.Use, missing_names.Absence]]:
    """The uses of names that the TensorFlow which it will run on lacks.

    Code that asks for the names, or for TensorFlow's version, is left out: such
    code works without them. Names that have a command, or are put back, do not
    depend on the TensorFlow that the file means.
    """
    release = self.context.release
    known = {
      name: missing_names.find(name, self.tensorflow, release)
      for name in self.names
    }
    found = [
      (use, absence)
      for use in self.source.uses
      if (absence := known[use.name])
      and use.form not in ("store", "text")
      and not use.only_asks
    ]
    if not found:
      return []
    asked = which_tensorflow.find_asked_lines(self.source)
    return [each for each in found if each[0].line not in asked]

  @functools.cached_property
  def calls(self) -> dict[str, bool]:
    """Which calls of `START_CALLS` are there -> if also when it is imported."""
    text, found = self.document.text, dict[str, bool]()
    if not any(call in text for call in START_CALLS):
      return found
    for use in self.source.uses:
      name = use.name.rpartition(".")[2]
      if name in START_CALLS and (
        name != "install" or use.name == f"{PACKAGE}.install"
      ):
        found[name] = found.get(name, False) or use.line not in self.main_lines
    for node in self.source.unknown:
      if node.attr in START_CALLS and node.attr != "install":
        found[node.attr] = True
    return found

  @functools.cached_property
  def short(self) -> str:
    """The name by which the file calls this package."""
    known = find_short_name(self.tree.body)
    text = self.document.text
    taken = _SHORT in text and re.search(rf"\b{_SHORT}\b", text)
    return known or (PACKAGE if taken else _SHORT)

  @functools.cached_property
  def binding(self) -> tuple[ast.stmt, str] | None:
    """The statement that imports TensorFlow, and the name which it binds.

    None if a module of the program's own is imported before.
    """
    for statement in self.statements:
      bound = find_bound_name(statement)
      if bound is not None:
        return statement, bound
      if not self.context.own_modules.isdisjoint(list_modules(statement)):
        break
    return None

  @property
  def switch(self) -> str:
    """Where it turns NVIDIA's variables on; "" if it does not."""
    if not self.switches:
      return ""
    _, (start, _) = self.switches[0]
    return self.show_line(self.document.find_position(start)[0])

  @property
  def package_import(self) -> str:
    """The statement that imports this package."""
    alias = f" as {self.short}" if self.short != PACKAGE else ""
    return f"import {PACKAGE}{alias}"

  def shorten(self, name: str) -> str:
    """Returns a full name of this package as the file writes it."""
    return name.replace(PACKAGE, self.short, 1)

  def show_line(self, line: int) -> str:
    """Returns the file's name and a line, and the cell of a notebook."""
    cell, line, _ = self.document.locate(self.document.find_line(line))
    place = f"cell {cell} line" if cell else "line"
    return f"{os.path.basename(self.path)} {place} {line}"

  def show_sign(self, sign: which_tensorflow.Sign) -> str:
    """Returns a name that tells which TensorFlow the file means."""
    return f"{sign.written}, {self.show_line(sign.line)}"

  def list_starts(self, most: int | None = None) -> list[str]:
    """Returns the files that start programs with this file, relative to it."""
    folder = os.path.dirname(self.path) or "."
    starts = list(self.context.starts)[:most]
    return [os.path.relpath(path, folder) for path in starts]

  @functools.cached_property
  def start(self) -> tuple[int, int]:
    """The place of the first import of TensorFlow or an own module.

    If only functions import them, it is that of the first statement.
    """
    body = self.tree.body
    wanted = body[self.first_import :] or body
    return self.find_span(wanted[0]) if wanted else (0, 0)

  def make(
    self,
    place: ast.AST | tuple[int, int],
    name: str,
    message: str,
    state: str = findings.MIGRATE,
    note: str = "",
    edits: Sequence[documents.Edit] = (),
    opening: Sequence[str] = (),
  ) -> findings.Finding:
    """Returns a finding at a node, or at the offsets of a start and an end."""
    span = place if isinstance(place, tuple) else self.find_span(place)
    return findings.Finding(
      self.path,
      *self.document.locate(span[0]),
      *self.document.locate(span[1])[1:],
      " ".join(name.split()),
      message,
      state,
      note,
      tuple(edits),
      tuple(opening),
      span[0],
    )

  def replace(self, node: ast.expr, new: str) -> findings.Finding:
    """Returns a finding whose edit writes other text in place of a node."""
    edit = self.make_edit(node, new)
    return self.make(node, ast.unparse(node), new, edits=[edit])

  @functools.cached_property
  def first_import(self) -> int:
    """The number of the statement that first imports TensorFlow.

    An import of Keras, or of a module of the call, counts as well. Imports in
    functions do not count.
    """
    own, body = self.context.own_modules, self.tree.body
    for i, statement in enumerate(body):
      for part in _list_statements([statement]):
        for module in list_modules(part):
          if module in own or _LOADS_TENSORFLOW.match(module):
            return i
    return len(body)

  def find_span(self, node: ast.AST) -> tuple[int, int]:
    """Returns the offsets of a node.

    Before Python 3.12, a node in an f-string may have a position outside.
    """
    try:
      start, end = self.document.find_span(node)
    except IndexError:
      return 0, 0
    return min(start, end), max(start, end)

  def make_edit(self, node: ast.AST, text: str) -> documents.Edit:
    """Returns the edit of a node; the comments in it follow the new text."""
    start, end = self.find_span(node)
    kept = _COMMENT.findall(self.document.text, start, end)
    return documents.Edit(start, end, text + "".join(kept))

  def is_at(self, node: ast.expr) -> bool:
    """Returns whether the text at a node's position is that node's."""
    start, end = self.find_span(node)
    segment = self.document.text[start:end]
    if segment == sources.find_dotted_name(node):
      return True
    try:
      found = ast.parse(f"({segment}\n)", mode="eval").body
      return ast.unparse(found) == ast.unparse(node)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
      return False

  @functools.cached_property
  def statements(self) -> list[ast.stmt]:
    """The statements of the module and of the blocks in it, in order.

    The statements in functions and classes are left out.
    """
    return _list_statements(self.tree.body)

  def list_imports(self) -> list[ast.Import | ast.ImportFrom]:
    """Returns all import statements."""
    source = self.source
    return [*source.list_nodes(ast.Import), *source.list_nodes(ast.ImportFrom)]


def _asks_for_main(test: ast.expr) -> bool:
  """Returns whether a test is `__name__ == "__main__"`, or has it in it."""
  words = {
    getattr(node, "id", None) or getattr(node, "value", None)
    for node in ast.walk(test)
  }
  return {"__name__", "__main__"} <= words


def _list_statements(body: Sequence[ast.stmt]) -> list[ast.stmt]:
  """Returns statements, each followed by those of its blocks."""
  found = []
  for statement in body:
    found.append(statement)
    if isinstance(statement, _DEFINITIONS):
      continue
    for name in ("body", "orelse", "finalbody"):
      if getattr(statement, name, None):
        found += _list_statements(getattr(statement, name))
    for handler in getattr(statement, "handlers", ()):
      found += _list_statements(handler.body)
  return found


def _list_lines(body: Sequence[ast.stmt]) -> set[int]:
  return {
    line
    for statement in body
    for line in range(statement.lineno, (statement.end_lineno or 0) + 1)
  }


def list_modules(node: ast.AST) -> list[str]:
  """Returns the modules that an import may load; relative ones have dots.

  Of `from a import b` they are "a" and "a.b". Other nodes load none.
  """
  if isinstance(node, ast.Import):
    return [alias.name for alias in node.names]
  if not isinstance(node, ast.ImportFrom):
    return []
  module = "." * node.level + (node.module or "")
  return [module, *(sources.join(module, alias.name) for alias in node.names)]


def is_tensorflow(name: str) -> bool:
  """Returns whether a full name is TensorFlow's."""
  return name == "tensorflow" or name.startswith("tensorflow.")


def find_bound_name(statement: ast.stmt) -> str | None:
  """Returns the name by which an import makes TensorFlow known, if it does."""
  module = ""
  if isinstance(statement, ast.ImportFrom):
    module = f"{statement.module}."
  elif not isinstance(statement, ast.Import):
    return None
  for alias in statement.names:
    name = f"{module}{alias.name}"
    if name == "tensorflow" or (name == _V1 and (alias.asname or module)):
      return alias.asname or alias.name
    if name.startswith("tensorflow.") and not (alias.asname or module):
      return _V1  # The statement binds `tensorflow`.
  return None


def find_short_name(statements: Sequence[ast.stmt]) -> str | None:
  """Returns the name to which an import binds this package, if any does."""
  for statement in statements:
    if isinstance(statement, ast.Import):
      for alias in statement.names:
        if alias.name == PACKAGE:
          return alias.asname or PACKAGE
  return None
