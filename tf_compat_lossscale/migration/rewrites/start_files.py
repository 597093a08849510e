# SPDX-License-Identifier: Apache-2.0
"""Tells which files start programs."""

from __future__ import annotations

import ast
from collections.abc import Collection
import os
import re

from tf_compat_lossscale.migration import files

_NEVER = ("setup.py", "__init__.py", "conftest.py")
_TEST = re.compile(r"test_.*\.py|.*_test\.py|__main__\.py|.*\.ipynb")
_BLOCKS = (ast.For, ast.While, ast.With)


def starts(file: files.File, paths: Collection[str]) -> bool:
  """Returns whether a file starts a program.

  Args:
    file: The file.
    paths: The files of the call.
  """
  name = os.path.basename(file.path)
  if name in _NEVER:
    return False
  if _TEST.fullmatch(name) or file.main_lines or "app.run" in file.names:
    return True
  init = os.path.join(os.path.dirname(file.path), "__init__.py")
  if file.context.is_imported or init in paths:
    return False
  return any(_acts(file, statement) for statement in file.statements)


def _acts(file: files.File, statement: ast.stmt) -> bool:
  """Returns whether a statement of a module does more than to define things."""
  if isinstance(statement, _BLOCKS):
    return True
  if isinstance(statement, ast.Expr):
    return not isinstance(statement.value, ast.Constant)
  if isinstance(statement, (ast.Assign, ast.AnnAssign)):
    value = statement.value
    function = value.func if isinstance(value, ast.Call) else None
    return files.is_tensorflow(file.source.resolve(function) or "")
  return False
