# SPDX-License-Identifier: Apache-2.0
"""Lists text files of the project, and what modules import."""

import ast
from collections.abc import Iterator
import functools
import pathlib
import shutil
import subprocess

import helpers
import pytest


def text_files() -> Iterator[tuple[pathlib.Path, str]]:
  """Yields (path, text) of the text files that git tracks."""
  if not (helpers.ROOT / ".git").exists():
    pytest.skip("this is no git checkout, so nothing says what is tracked")
  if shutil.which("git") is None:
    pytest.skip("git is not installed")
  listed = subprocess.run(
    # In a container, another user than the tests' may own the checkout.
    ["git", "-c", "safe.directory=*", "ls-files", "-z"],
    capture_output=True,
    check=True,
    cwd=helpers.ROOT,
  )
  for name in listed.stdout.decode("utf-8").split("\0"):
    path = helpers.ROOT / name
    if path.is_file():
      data = path.read_bytes()
      if b"\0" not in data:
        yield path, data.decode("utf-8", "replace")


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
