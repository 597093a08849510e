# SPDX-License-Identifier: Apache-2.0
"""Finds NVIDIA's environment variables in sources."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import NamedTuple

from tf_compat_lossscale._core import legacy_names

_SWITCHES = {
  legacy_names.MIXED_PRECISION,
  legacy_names.LOSS_SCALING,
  legacy_names.GRAPH_REWRITE,
}
_HONOR = "honor_environment"


class Switch(NamedTuple):
  """A string or a keyword in a source that names one of the variables.

  Attributes:
    line: The line, counted from 1.
    column: The column, counted from 0, in bytes of UTF-8.
    name: The variable's name.
    length: The number of characters, with a string's quotes.
  """

  line: int
  column: int
  name: str
  length: int


def find_switches(nodes: Iterable[ast.AST]) -> list[Switch]:
  """Returns the strings and keywords that name the variables, of all nodes.

  A source that calls `honor_environment` has none: there is nothing to change.
  """
  found = []
  honors = False
  for node in nodes:
    if isinstance(node, ast.Constant):
      if isinstance(node.value, str) and node.value in _SWITCHES:
        found.append(_make(node, node.value, len(node.value) + 2))
    elif isinstance(node, ast.keyword):
      if node.arg in _SWITCHES:  # `os.environ.update(NAME="1")`
        found.append(_make(node, node.arg, len(node.arg)))
    elif isinstance(node, ast.Attribute):
      honors |= node.attr == _HONOR
    elif isinstance(node, ast.Name):
      honors |= node.id == _HONOR
  return [] if honors else sorted(found)


def _make(node: ast.Constant | ast.keyword, name: str, length: int) -> Switch:
  return Switch(node.lineno, node.col_offset, name, length)
