# SPDX-License-Identifier: Apache-2.0
"""Finds what modules import."""

import ast
import functools
import pathlib


@functools.cache  # Each import from a folder asks for its `__init__`.
def imported_names(path: pathlib.Path, types: bool = False) -> tuple[str, ...]:
  """Returns the dotted names that a module imports.

  Args:
    path: The module.
    types: Whether imports under `if TYPE_CHECKING` count.
  """
  names: list[str] = []
  # Statements alone: expressions have no imports, and most nodes are theirs.
  left: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
  while left:
    node = left.pop()
    if isinstance(node, ast.Import):
      names += (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      names += (f"{node.module}.{alias.name}" for alias in node.names)
    guard = node.test if isinstance(node, ast.If) else None
    if types or getattr(guard, "id", "") != "TYPE_CHECKING":
      left += getattr(node, "body", ())
    for field in ("orelse", "handlers", "finalbody", "cases"):
      left += getattr(node, field, ())
  return tuple(names)
