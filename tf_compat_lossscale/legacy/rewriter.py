# SPDX-License-Identifier: Apache-2.0
"""Edits the text of a source at the uses of legacy names. Needs libcst."""

from __future__ import annotations

from collections.abc import Sequence
import re
from typing import TypeAlias

import libcst as cst
from libcst import helpers
from libcst import metadata

from tf_compat_lossscale.legacy import sources
from tf_compat_lossscale.legacy import switches

_PACKAGE = "tf_compat_lossscale"

_Statements: TypeAlias = cst.SimpleStatementLine | cst.SimpleStatementSuite


def edit_text(text: bytes, source: sources.Source, keras_2: bool) -> bytes:
  """Returns the text of a source with its edits.

  Args:
    text: The file's bytes.
    source: The facts that were read from the file.
    keras_2: Whether `tf.keras` must be Keras 2.

  Returns:
    The edited bytes.
  """
  wrapper = metadata.MetadataWrapper(cst.parse_module(text))
  known = _find_short_name(wrapper.module)
  short = known or ("tfl" if not re.search(rb"\btfl\b", text) else _PACKAGE)
  editor = _Editor(source, short)
  module = wrapper.visit(editor)
  lines = []
  keras_2 = keras_2 and b"use_keras_2" not in text
  first = _find_first_import_of_tensorflow(module)
  honors = first is not None and bool(switches.find_switches(source.tree))
  if honors:
    module = _insert_lines(
      module, [f"{short}.honor_environment()"], _find_end_of_imports(module)
    )
  if (editor.uses_package or keras_2 or honors) and known is None:
    alias = f" as {short}" if short != _PACKAGE else ""
    lines.append(f"import {_PACKAGE}{alias}")
  if keras_2:
    lines.append(f"{short}.use_keras_2()  # Before TensorFlow is imported.")
  at = _find_end_of_opening(module)
  if not keras_2:
    at = max(at, first or 0)
  return _insert_lines(module, lines, at).bytes


def _find_short_name(module: cst.Module) -> str | None:
  """Returns the name to which a top-level import binds this package, if any."""
  for statement in module.body:
    if not isinstance(statement, cst.SimpleStatementLine):
      continue
    for part in statement.body:
      if isinstance(part, cst.Import):
        for alias in part.names:
          if alias.evaluated_name == _PACKAGE:
            return alias.evaluated_alias or _PACKAGE
  return None


def _parse_dotted(name: str) -> cst.Attribute | cst.Name:
  """Returns the expression for a dotted name."""
  expression = cst.parse_expression(name)
  assert isinstance(expression, (cst.Attribute, cst.Name))
  return expression


class _Editor(cst.CSTTransformer):
  """A transformer that replaces legacy names and their imports."""

  METADATA_DEPENDENCIES = (metadata.PositionProvider,)

  def __init__(self, source: sources.Source, short: str):
    super().__init__()
    self._short = short
    self._tensorflow1 = bool(source.tensorflow1)
    # Whether the edited text uses this package by its name.
    self.uses_package = False
    self._uses = {
      (use.line, use.column, use.written): use
      for use in source.uses
      if use.form != "text"
    }

  def _find_use(
    self, node: cst.CSTNode, written: str | None
  ) -> sources.Use | None:
    """Returns the use of a legacy name that begins at a node, if any."""
    start = self.get_metadata(metadata.PositionProvider, node).start
    return self._uses.get((start.line, start.column, written or ""))

  def leave_Attribute(
    self, original_node: cst.Attribute, updated_node: cst.Attribute
  ) -> cst.BaseExpression:
    use = self._find_use(
      original_node, helpers.get_full_name_for_node(original_node)
    )
    if use is None:
      return updated_node
    last = use.name.rpartition(".")[2]
    renamed = not use.now.endswith(last)
    if use.form == "follows" and not renamed:
      return updated_node
    self.uses_package = True
    name = _parse_dotted(use.now.replace(_PACKAGE, self._short, 1))
    return name.with_changes(lpar=updated_node.lpar, rpar=updated_node.rpar)

  def leave_SimpleStatementLine(
    self,
    original_node: cst.SimpleStatementLine,
    updated_node: cst.SimpleStatementLine,
  ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
    parts = self._edit_statements(original_node, updated_node)
    if parts is None:
      return updated_node
    # The first statement keeps the comment and the lines above.
    return cst.FlattenSentinel(
      [
        updated_node.with_changes(body=parts[:1]),
        *(cst.SimpleStatementLine([part]) for part in parts[1:]),
      ]
    )

  def leave_SimpleStatementSuite(
    self,
    original_node: cst.SimpleStatementSuite,
    updated_node: cst.SimpleStatementSuite,
  ) -> cst.BaseSuite:
    parts = self._edit_statements(original_node, updated_node)
    return (
      updated_node if parts is None else updated_node.with_changes(body=parts)
    )

  def _edit_statements(
    self, original: _Statements, updated: _Statements
  ) -> list[cst.BaseSmallStatement] | None:
    """Returns the edited statements of a line, or None if none changes."""
    parts: list[cst.BaseSmallStatement] = []
    changed = False
    for old, new in zip(original.body, updated.body):
      became: Sequence[cst.BaseSmallStatement] | None = None
      if isinstance(old, cst.Import):
        became = self._edit_import(old)
      elif isinstance(old, cst.ImportFrom):
        became = self._edit_import_from(old)
      changed = changed or became is not None
      parts.extend([new] if became is None else became)
    if not changed:
      return None
    plain = cst.MaybeSentinel.DEFAULT
    return [part.with_changes(semicolon=plain) for part in parts]

  def _edit_import(
    self, node: cst.Import
  ) -> list[cst.BaseSmallStatement] | None:
    """Returns the statements for an `import`, or None if it stays."""
    names, after, changed = [], [], False
    for alias in node.names:
      full = alias.evaluated_name
      use = self._find_use(alias, full)
      if use is not None:  # This package has everything that the module had.
        target = use.now if alias.asname else "tensorflow"
        alias = alias.with_changes(name=_parse_dotted(target))
        changed = True
      elif full == "tensorflow" and self._tensorflow1:
        name = alias.evaluated_alias or full
        alias = alias.with_changes(
          name=_parse_dotted("tensorflow.compat.v1"),
          asname=alias.asname or cst.AsName(cst.Name(name)),
        )
        after.append(_parse_statement(f"{name}.disable_v2_behavior()"))
        changed = True
      names.append(alias)
    if not changed:
      return None
    return [node.with_changes(names=names), *after]

  def _edit_import_from(
    self, node: cst.ImportFrom
  ) -> list[cst.BaseSmallStatement] | None:
    """Returns the statements for a `from … import`, or None if it stays."""
    module = (
      helpers.get_full_name_for_node(node.module) if node.module else None
    )
    if isinstance(node.names, cst.ImportStar):
      use = self._find_use(node, f"from {module} import *")
      return use and [node.with_changes(module=_parse_dotted(use.now))]
    kept, new = [], []
    for alias in node.names:
      use = self._find_use(alias, alias.evaluated_name)
      if use is None:
        kept.append(alias)
      else:
        new.append((use, alias))
    moves = module == "tensorflow" and self._tensorflow1
    if not new and not moves:
      return None
    result: list[cst.BaseSmallStatement] = []
    if kept:
      if new:
        last = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        node = node.with_changes(names=[*kept[:-1], last])
      if moves:
        node = node.with_changes(module=_parse_dotted("tensorflow.compat.v1"))
      result.append(node)
    result += _make_imports(new)
    return result


def _make_imports(
  uses: Sequence[tuple[sources.Use, cst.ImportAlias]],
) -> list[cst.BaseSmallStatement]:
  """Returns imports from this package that bind the names of the old ones."""
  modules: dict[str, list[str]] = {}
  for use, alias in uses:
    bound = alias.evaluated_alias or alias.evaluated_name
    package, _, last = use.now.rpartition(".")
    if package:
      renamed = f" as {bound}" if bound != last else ""
      modules.setdefault(f"from {package} import ", []).append(last + renamed)
    else:
      modules.setdefault(f"import {last} as ", []).append(bound)
  return [
    _parse_statement(start + ", ".join(names))
    for start, names in modules.items()
  ]


def _parse_statement(code: str) -> cst.BaseSmallStatement:
  """Returns the statement that a line of code is."""
  line = cst.parse_statement(code)
  assert isinstance(line, cst.SimpleStatementLine)
  return line.body[0]


def _insert_lines(
  module: cst.Module, lines: Sequence[str], at: int
) -> cst.Module:
  """Returns a module with lines inserted before statement number `at`."""
  if not lines:
    return module
  body = list(module.body)
  new = [cst.parse_statement(line) for line in lines]
  if at < len(body):
    # Blank lines and comments stay above the imports.
    new[0] = new[0].with_changes(leading_lines=body[at].leading_lines)
    body[at] = body[at].with_changes(leading_lines=[])
  return module.with_changes(body=[*body[:at], *new, *body[at:]])


def _find_first_import_of_tensorflow(module: cst.Module) -> int | None:
  """Returns the number of the first statement that imports TensorFlow.

  Imports in functions do not count; if there are no others, returns None.
  """
  for i, statement in enumerate(module.body):
    visitor = _ImportsTensorFlow()
    statement.visit(visitor)
    if visitor.found:
      return i
  return None


def _find_end_of_imports(module: cst.Module) -> int:
  """Returns the number of the statement after the imports at the top.

  These are those of TensorFlow and of this package, with a call of
  `disable_v2_behavior` right after them.
  """
  at = 0
  for i, statement in enumerate(module.body):
    visitor = _ImportsTensorFlow()
    statement.visit(visitor)
    code = module.code_for_node(statement)
    follows = i == at and "disable_v2_behavior()" in code
    if visitor.found or follows or f"import {_PACKAGE}" in code:
      at = i + 1
  return at


class _ImportsTensorFlow(cst.CSTVisitor):
  """A visitor that looks for imports of TensorFlow outside functions."""

  def __init__(self) -> None:
    super().__init__()
    self.found = False

  def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
    return False

  def visit_Import(self, node: cst.Import) -> None:
    for alias in node.names:
      if alias.evaluated_name.partition(".")[0] == "tensorflow":
        self.found = True

  def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
    module = node.module and helpers.get_full_name_for_node(node.module)
    if not node.relative and (module or "").partition(".")[0] == "tensorflow":
      self.found = True


def _find_end_of_opening(module: cst.Module) -> int:
  """Returns the number of the first statement that may follow new lines.

  A docstring and `__future__` imports must stay first.
  """
  at = 0
  for i, statement in enumerate(module.body):
    if not isinstance(statement, cst.SimpleStatementLine):
      break
    part = statement.body[0]
    is_docstring = isinstance(part, cst.Expr) and isinstance(
      part.value, (cst.SimpleString, cst.ConcatenatedString)
    )
    taken = part.module if isinstance(part, cst.ImportFrom) else None
    if isinstance(taken, cst.Name) and taken.value == "__future__":
      at = i + 1
      continue
    if is_docstring and i == 0:
      at = 1
      continue
    break
  return at
