"""Edits a source text where a reading of it says so. Needs libcst."""

from __future__ import annotations

from collections.abc import Sequence
import re
from typing import TypeAlias

import libcst as cst
from libcst import helpers
from libcst import metadata

from tf_compat_lossscale.legacy import sources as legacy_sources

_PACKAGE = "tf_compat_lossscale"

_Statements: TypeAlias = cst.SimpleStatementLine | cst.SimpleStatementSuite


def rewrite(text: bytes, source: legacy_sources.Source, keras_2: bool) -> bytes:
  """Edits a text.

  Args:
    text: The file's bytes.
    source: What was read in it.
    keras_2: Whether `tf.keras` must be Keras 2.

  Returns:
    The edited bytes.
  """
  wrapper = metadata.MetadataWrapper(cst.parse_module(text))
  known = _short_name(wrapper.module)
  short = known or ("tfl" if not re.search(rb"\btfl\b", text) else _PACKAGE)
  edits = _Edits(source, short)
  module = wrapper.visit(edits)
  lines = []
  keras_2 = keras_2 and b"use_keras_2" not in text
  if (edits.named or keras_2) and known is None:
    alias = f" as {short}" if short != _PACKAGE else ""
    lines.append(f"import {_PACKAGE}{alias}")
  if keras_2:
    lines.append(f"{short}.use_keras_2()  # Before TensorFlow is imported.")
  at = _after_the_opening(module)
  if not keras_2:
    at = max(at, _first_import_of_tensorflow(module))
  return _insert(module, lines, at).bytes


def _short_name(module: cst.Module) -> str | None:
  """What the text calls this package, if it imports it at the top already."""
  for statement in module.body:
    if not isinstance(statement, cst.SimpleStatementLine):
      continue
    for part in statement.body:
      if isinstance(part, cst.Import):
        for alias in part.names:
          if alias.evaluated_name == _PACKAGE:
            return alias.evaluated_alias or _PACKAGE
  return None


def _dotted(name: str) -> cst.Attribute | cst.Name:
  expression = cst.parse_expression(name)
  assert isinstance(expression, (cst.Attribute, cst.Name))
  return expression


class _Edits(cst.CSTTransformer):
  """Replaces names and imports."""

  METADATA_DEPENDENCIES = (metadata.PositionProvider,)

  def __init__(self, source: legacy_sources.Source, short: str):
    super().__init__()
    self._short = short
    self._tensorflow1 = bool(source.tensorflow1)
    self.named = False  # Whether this package's own name came in.
    self._uses = {
      (use.line, use.column, use.written): use
      for use in source.uses
      if use.form != "text"
    }

  def _use(
    self, node: cst.CSTNode, written: str | None
  ) -> legacy_sources.Use | None:
    start = self.get_metadata(metadata.PositionProvider, node).start
    return self._uses.get((start.line, start.column, written or ""))

  def leave_Attribute(
    self, original_node: cst.Attribute, updated_node: cst.Attribute
  ) -> cst.BaseExpression:
    use = self._use(
      original_node, helpers.get_full_name_for_node(original_node)
    )
    if use is None:
      return updated_node
    last = use.name.rpartition(".")[2]
    renamed = not use.now.endswith(last)
    if use.form == "follows" and not renamed:
      return updated_node
    self.named = True
    name = _dotted(use.now.replace(_PACKAGE, self._short, 1))
    return name.with_changes(lpar=updated_node.lpar, rpar=updated_node.rpar)

  def leave_SimpleStatementLine(
    self,
    original_node: cst.SimpleStatementLine,
    updated_node: cst.SimpleStatementLine,
  ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
    parts = self._parts(original_node, updated_node)
    if parts is None:
      return updated_node
    # The comment stays with the first, and so do the lines above.
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
    parts = self._parts(original_node, updated_node)
    return (
      updated_node if parts is None else updated_node.with_changes(body=parts)
    )

  def _parts(
    self, original: _Statements, updated: _Statements
  ) -> list[cst.BaseSmallStatement] | None:
    """The statements of a line, edited; None if no import changes."""
    parts: list[cst.BaseSmallStatement] = []
    changed = False
    for old, new in zip(original.body, updated.body):
      became: Sequence[cst.BaseSmallStatement] | None = None
      if isinstance(old, cst.Import):
        became = self._import(old)
      elif isinstance(old, cst.ImportFrom):
        became = self._import_from(old)
      changed = changed or became is not None
      parts.extend([new] if became is None else became)
    if not changed:
      return None
    plain = cst.MaybeSentinel.DEFAULT
    return [part.with_changes(semicolon=plain) for part in parts]

  def _import(self, node: cst.Import) -> list[cst.BaseSmallStatement] | None:
    names, after, changed = [], [], False
    for alias in node.names:
      full = alias.evaluated_name
      use = self._use(alias, full)
      if use is not None:  # A module of which this package has everything.
        target = use.now if alias.asname else "tensorflow"
        alias = alias.with_changes(name=_dotted(target))
        changed = True
      elif full == "tensorflow" and self._tensorflow1:
        name = alias.evaluated_alias or full
        alias = alias.with_changes(
          name=_dotted("tensorflow.compat.v1"),
          asname=alias.asname or cst.AsName(cst.Name(name)),
        )
        after.append(_statement(f"{name}.disable_v2_behavior()"))
        changed = True
      names.append(alias)
    if not changed:
      return None
    return [node.with_changes(names=names), *after]

  def _import_from(
    self, node: cst.ImportFrom
  ) -> list[cst.BaseSmallStatement] | None:
    module = (
      helpers.get_full_name_for_node(node.module) if node.module else None
    )
    if isinstance(node.names, cst.ImportStar):
      use = self._use(node, f"from {module} import *")
      return use and [node.with_changes(module=_dotted(use.now))]
    kept, new = [], []
    for alias in node.names:
      use = self._use(alias, alias.evaluated_name)
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
        node = node.with_changes(module=_dotted("tensorflow.compat.v1"))
      result.append(node)
    result += _imports_of(new)
    return result


def _imports_of(
  uses: Sequence[tuple[legacy_sources.Use, cst.ImportAlias]],
) -> list[cst.BaseSmallStatement]:
  """Imports of what is in this package now, under the names they had."""
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
    _statement(start + ", ".join(names)) for start, names in modules.items()
  ]


def _statement(code: str) -> cst.BaseSmallStatement:
  line = cst.parse_statement(code)
  assert isinstance(line, cst.SimpleStatementLine)
  return line.body[0]


def _insert(module: cst.Module, lines: Sequence[str], at: int) -> cst.Module:
  """Puts lines before the statement of that number."""
  if not lines:
    return module
  body = list(module.body)
  new = [cst.parse_statement(line) for line in lines]
  if at < len(body):
    # Blank lines and comments stay above what is now first of the imports.
    new[0] = new[0].with_changes(leading_lines=body[at].leading_lines)
    body[at] = body[at].with_changes(leading_lines=[])
  return module.with_changes(body=[*body[:at], *new, *body[at:]])


def _first_import_of_tensorflow(module: cst.Module) -> int:
  """The number of the statement that holds it; 0 if functions alone do."""
  for i, statement in enumerate(module.body):
    visitor = _ImportsTensorFlow()
    statement.visit(visitor)
    if visitor.found:
      return i
  return 0


class _ImportsTensorFlow(cst.CSTVisitor):
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


def _after_the_opening(module: cst.Module) -> int:
  """Where statements may stand: after a docstring and `__future__` imports."""
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
