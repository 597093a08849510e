# SPDX-License-Identifier: Apache-2.0
"""Finds the folders that a program adds to Python's path, without running it.

`sys.path.append(os.path.join(os.path.dirname(__file__), ".."))` and the like
are computed from the source.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import os
import pathlib
from typing import Any

from tf_compat_lossscale.programs import scopes

_ADDS = {
  "sys.path.append": 0,
  "sys.path.insert": 1,
  "sys.path.extend": 0,
  "path.append": 0,
  "path.insert": 1,
  "site.addsitedir": 0,
}
_EDITS = frozenset([ast.Call, ast.AugAssign, ast.Assign])
_FUNCTIONS: dict[str, Callable[..., Any]] = {
  "abspath": os.path.abspath,
  "dirname": os.path.dirname,
  "expanduser": os.path.expanduser,
  "expandvars": os.path.expandvars,
  "getcwd": os.getcwd,
  "join": os.path.join,
  "normpath": os.path.normpath,
  "realpath": os.path.realpath,
  "Path": pathlib.Path,
  "PurePath": pathlib.PurePath,
  "str": str,
  "fspath": os.fspath,
  "getenv": os.environ.get,
  "os.environ.get": os.environ.get,
}
_METHODS = {"absolute", "resolve", "joinpath", "as_posix", "expanduser"}


class _UnknownError(Exception):
  """An error for an expression whose value the source does not tell."""


# What the evaluation of an expression raises.
_UNKNOWN = (
  *(_UnknownError, TypeError, ValueError, AttributeError, LookupError),
  *(ArithmeticError, OSError, RecursionError),
)


def find_folders(path: str, nodes: Sequence[ast.AST]) -> list[str]:
  """Returns the folders that a module adds to Python's path.

  Args:
    path: The module's file.
    nodes: The nodes of its syntax tree.

  Returns:
    The folders that exist.
  """
  edits = list(_find_edits(nodes))
  if not edits:
    return []
  values = Values(path, nodes)
  folders: list[str] = []
  for edit in edits:
    try:
      found = values.evaluate_each(edit)
    except _UNKNOWN:
      continue  # The folder depends on what happens when the program runs.
    for folder in found:
      if isinstance(folder, (str, pathlib.PurePath)):
        full = os.path.abspath(folder)
        if os.path.isdir(full) and full not in folders:
          folders.append(full)
  return folders


def _find_edits(nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
  """Yields the expressions that a module adds to `sys.path`."""
  for node in nodes:
    if node.__class__ not in _EDITS:
      continue
    if isinstance(node, ast.Call):
      index = _ADDS.get(scopes.find_dotted_name(node.func) or "")
      if index is not None and len(node.args) > index:
        yield node.args[index]
    elif isinstance(node, ast.AugAssign):
      if scopes.find_dotted_name(node.target) == "sys.path":
        yield node.value
    elif isinstance(node, ast.Assign):
      target = node.targets[0]
      if isinstance(target, ast.Subscript):
        target = target.value
      if scopes.find_dotted_name(target) == "sys.path":
        yield node.value


class Values:
  """Computes expressions of a module whose values its source tells."""

  def __init__(self, path: str, nodes: Iterable[ast.AST]):
    self._path = path
    self._assigned: dict[str, ast.expr] = {}
    self._loops: dict[str, ast.expr] = {}
    for node in nodes:
      if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        self._assigned.setdefault(node.targets[0].id, node.value)
      elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
        self._loops[node.target.id] = node.iter
    self._open: set[str] = set()

  def find(self, node: ast.expr) -> Any:
    """Returns the value of an expression; None if the source does not tell."""
    try:
      return self.evaluate(node)
    except _UNKNOWN:
      return None

  def evaluate_each(self, node: ast.expr) -> list[Any]:
    """Returns the values of an expression, one for each turn of a loop.

    Raises:
      _UnknownError: The source does not tell the values.
    """
    used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    loop = next((name for name in used if name in self._loops), None)
    if loop is None:
      value = self.evaluate(node)
      return value if isinstance(value, list) else [value]
    values = []
    for value in self.evaluate(self._loops[loop]):
      self._assigned[loop] = ast.Constant(value)
      values.append(self.evaluate(node))
    return values

  def evaluate(self, node: ast.expr) -> Any:
    """Returns the value of an expression.

    Raises:
      _UnknownError: The source does not tell the value.
    """
    method = getattr(self, f"_evaluate_{type(node).__name__}", None)
    if method is None:
      raise _UnknownError
    return method(node)

  def _evaluate_Constant(self, node: ast.Constant) -> Any:
    return node.value

  def _evaluate_Name(self, node: ast.Name) -> Any:
    if node.id == "__file__":
      return os.path.abspath(self._path)
    if node.id not in self._assigned or node.id in self._open:
      raise _UnknownError
    self._open.add(node.id)
    try:
      return self.evaluate(self._assigned[node.id])
    finally:
      self._open.discard(node.id)

  def _evaluate_Attribute(self, node: ast.Attribute) -> Any:
    text = ast.unparse(node)
    if text == "sys.path":
      return []
    if node.attr in ("pardir", "curdir", "sep"):
      return getattr(os, node.attr)
    owner = self.evaluate(node.value)
    if isinstance(owner, pathlib.PurePath) and node.attr in (
      "parent",
      "parents",
    ):
      return getattr(owner, node.attr)
    raise _UnknownError

  def _evaluate_Subscript(self, node: ast.Subscript) -> Any:
    if ast.unparse(node.value) == "os.environ":
      return os.environ.get(self.evaluate(node.slice), "")
    return self.evaluate(node.value)[self.evaluate(node.slice)]

  def _evaluate_BinOp(self, node: ast.BinOp) -> Any:
    left, right = (
      self._evaluate_part(node.left),
      self._evaluate_part(node.right),
    )
    if isinstance(node.op, ast.Add):
      return left + right
    if isinstance(node.op, ast.Div):
      return left / right
    if isinstance(node.op, ast.Mod):
      return left % (tuple(right) if isinstance(right, list) else right)
    raise _UnknownError

  def _evaluate_part(self, node: ast.expr) -> Any:
    """Returns the value of an operand; of `[…] + unknown`, the known part."""
    try:
      return self.evaluate(node)
    except _UnknownError:
      if isinstance(node, ast.Subscript):
        return []  # `sys.path[1:]`
      raise

  def _evaluate_JoinedStr(self, node: ast.JoinedStr) -> Any:
    return "".join(
      str(
        self.evaluate(
          part.value if isinstance(part, ast.FormattedValue) else part
        )
      )
      for part in node.values
    )

  def _evaluate_List(self, node: ast.List | ast.Tuple) -> Any:
    return [self.evaluate(part) for part in node.elts]

  _evaluate_Tuple = _evaluate_List

  def _evaluate_Dict(self, node: ast.Dict) -> Any:
    return {
      self.evaluate(key): self.evaluate(value)
      for key, value in zip(node.keys, node.values)
      if key is not None
    }

  def _evaluate_Call(self, node: ast.Call) -> Any:
    name = ast.unparse(node.func)
    arguments = [self.evaluate(argument) for argument in node.args]
    if name in _FUNCTIONS:
      return _FUNCTIONS[name](*arguments)
    if not isinstance(node.func, ast.Attribute):
      raise _UnknownError
    if node.func.attr in _FUNCTIONS and name.split(".")[0] in (
      "os",
      "osp",
      "path",
      "pathlib",
    ):
      return _FUNCTIONS[node.func.attr](*arguments)
    owner = self.evaluate(node.func.value)
    if isinstance(owner, pathlib.PurePath) and node.func.attr in _METHODS:
      return getattr(owner, node.func.attr)(*arguments)
    if isinstance(owner, str) and node.func.attr in ("format", "replace"):
      named = {k.arg: self.evaluate(k.value) for k in node.keywords if k.arg}
      return getattr(owner, node.func.attr)(*arguments, **named)
    raise _UnknownError
