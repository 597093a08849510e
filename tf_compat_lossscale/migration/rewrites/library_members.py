# SPDX-License-Identifier: Apache-2.0
"""Lists the uses of names of libraries such as NumPy."""

from __future__ import annotations

import ast
from collections.abc import Collection
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tf_compat_lossscale.programs import sources

if TYPE_CHECKING:
  from tf_compat_lossscale.migration import files


def list_members(
  file: files.File, module: str, wanted: Collection[str]
) -> Iterator[tuple[ast.Attribute, str]]:
  """Yields attributes of a module, such as `np.int` of "numpy".

  Args:
    file: The file.
    module: The module, a name without a dot.
    wanted: The names of the attributes.

  Yields:
    Each attribute, and the module as it is written there.
  """
  if module not in file.source.modules:
    return
  for use in file.source.uses:
    parts = use.name.split(".", 2)
    if parts[0] != module or use.form != "expression":
      continue
    node: ast.AST = use.node
    for _ in parts[2].split(".") if parts[2:] else ():
      node = node.value if isinstance(node, ast.Attribute) else node
    if isinstance(node, ast.Attribute) and node.attr in wanted:
      yield node, sources.unparse(node.value)
