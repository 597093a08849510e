# SPDX-License-Identifier: Apache-2.0
"""Recognizes code that asks which TensorFlow there is."""

from __future__ import annotations

import ast
from collections.abc import Iterable
import functools
import re

from tf_compat_lossscale.programs import scopes

# Names below `tensorflow` that say which TensorFlow there is, or whether it is
# eager.
_ASKED = re.compile(
  r"tensorflow\.(.*\.)?(__version__|VERSION|__git_version__|executing_eagerly"
  r"|executing_eagerly_outside_functions|tf2\.enabled|control_flow_v2_enabled)"
)
# A program's own names for such facts: IS_TF2, use_tf_2, tf_version, is_v1.
_FACT = re.compile(
  r"(?i)(\b|_)(tf|tensorflow)_?(v|version)?_?[12](\b|_|x)|(\b|_)is_?v[12]\b|"
  r"(tf|tensorflow)_?(major|minor)?_?version"
)
_NAME_ERRORS = {"AttributeError", "ImportError", "ModuleNotFoundError"}
_ALL_ERRORS = {"Exception", "BaseException"}


@functools.lru_cache(1 << 16)  # Most words are in many modules.
def _is_asked(word: str) -> bool:
  """Returns whether a name may be part of a question."""
  return (
    word == "hasattr"
    or _FACT.search(word) is not None
    or _ASKED.fullmatch(f"tensorflow.tf2.{word}") is not None
  )


class Checks:
  """The checks of versions in a module."""

  def __init__(
    self,
    words: Iterable[str],
    assignments: Iterable[ast.Assign],
    scope: scopes.Scope,
  ):
    """Reads the checks of a module.

    Args:
      words: The names, and the last parts of the names, in the module.
      assignments: The assignments in the module.
      scope: The scope of the module.
    """
    # Variables that hold what the program found out.
    self._facts: set[str] = set()
    # Most modules ask nothing: then no expression has to be looked at.
    self._asks_something = any(map(_is_asked, words))
    for node in assignments if self._asks_something else ():
      if self.is_version_check(node.value, scope):
        self._facts |= {
          target.id for target in node.targets if isinstance(target, ast.Name)
        }

  def is_version_check(self, node: ast.AST, scope: scopes.Scope) -> bool:
    """Returns whether an expression asks which TensorFlow there is."""
    return self._asks_something and any(
      self._asks(part, scope) for part in scopes.list_parts(node)
    )

  def _asks(self, node: ast.AST, scope: scopes.Scope) -> bool:
    """Returns whether a node by itself asks which TensorFlow there is."""
    if isinstance(node, ast.Call):
      is_hasattr = isinstance(node.func, ast.Name) and node.func.id == "hasattr"
      return is_hasattr and bool(node.args and scope.resolve(node.args[0]))
    if isinstance(node, ast.Name):
      if node.id in self._facts:
        return True
    elif not isinstance(node, ast.Attribute):
      return False
    full = scope.resolve(node)
    if full:
      return bool(_ASKED.fullmatch(full))
    last = node.id if isinstance(node, ast.Name) else node.attr
    return bool(_FACT.search(last))


def tries_names(node: ast.Try) -> bool:
  """Returns whether a `try` tries out if TensorFlow has a name.

  With `except Exception`, a `try` counts only around a few plain statements,
  because programs also have one around all that they do.
  """
  caught: set[str] = set()
  for handler in node.handlers:
    if handler.type is None:
      caught.add("Exception")
    else:
      caught |= {
        part.id for part in ast.walk(handler.type) if isinstance(part, ast.Name)
      }
  if caught & _NAME_ERRORS:
    return True
  plain = (ast.Assign, ast.Expr, ast.Import, ast.ImportFrom, ast.Return)
  few = len(node.body) <= 3 and all(isinstance(s, plain) for s in node.body)
  return bool(caught & _ALL_ERRORS) and few


def find_constant(test: ast.expr, is_main: bool) -> bool | None:
  """Returns the value of an `if`'s test, if it is known; else None.

  Args:
    test: The test.
    is_main: Whether `__name__` is "__main__".
  """
  if isinstance(test, ast.Constant):
    return bool(test.value)
  name = scopes.find_dotted_name(test)
  if name in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
    return False
  if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
    sides = [test.left, *test.comparators]
    words = {getattr(s, "id", None) or getattr(s, "value", None) for s in sides}
    if len(sides) == 2 and words == {"__name__", "__main__"}:
      return is_main
  return None
