# SPDX-License-Identifier: Apache-2.0
"""Finds NVIDIA's environment variables in sources."""

from __future__ import annotations

import ast
from typing import NamedTuple

from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale.programs import source_facts

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


def find_switches(source: source_facts.Source) -> list[Switch]:
  """Returns the strings and keywords in a source that name the variables.

  A source that calls `honor_environment` has none: there is nothing to change.
  """
  found = [
    _make(node, node.value, len(node.value) + 2)
    for node in source.list_nodes(ast.Constant)
    if isinstance(node.value, str) and node.value in _SWITCHES
  ]
  found += [
    _make(node, node.arg, len(node.arg))
    for node in source.list_nodes(ast.keyword)
    if node.arg in _SWITCHES  # `os.environ.update(NAME="1")`
  ]
  honors = found and (
    any(node.attr == _HONOR for node in source.list_nodes(ast.Attribute))
    or any(node.id == _HONOR for node in source.list_nodes(ast.Name))
  )
  return [] if honors else sorted(found)


def _make(node: ast.Constant | ast.keyword, name: str, length: int) -> Switch:
  return Switch(node.lineno, node.col_offset, name, length)
