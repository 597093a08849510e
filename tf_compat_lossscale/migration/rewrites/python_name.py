# SPDX-License-Identifier: Apache-2.0
"""A name that Python's library had in TensorFlow 1's time, and has no more.

Python 3.10 removed `collections.Sequence` and the other abstract classes, which
are in `collections.abc`. Python 3.11 removed `inspect.getargspec`, whose result
has fewer parts than that of `getfullargspec`: that call is left to you.
`tf-lossscale run` puts the old names back.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tf_compat_lossscale.migration import edits
from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.migration.rewrites import imports
from tf_compat_lossscale.migration.rewrites import library_members
from tf_compat_lossscale.programs import old_libraries

_BY_HAND = """\
import inspect
import tf_compat_lossscale as tfl

scale = tfl.FixedLossScale(128.0)
arguments = inspect.getargspec(print).args
"""
_HINT = "inspect.getfullargspec, whose result has more parts"


@rules.rule(
  "LS402",
  "python-name",
  (
    """\
import collections
import tf_compat_lossscale as tfl

scale = tfl.FixedLossScale(128.0)
is_list = isinstance([], collections.Sequence)
""",
    """\
import collections.abc
import tf_compat_lossscale as tfl

scale = tfl.FixedLossScale(128.0)
is_list = isinstance([], collections.abc.Sequence)
""",
  ),
  (
    """\
from collections import Mapping
import tf_compat_lossscale as tfl

scale = tfl.FixedLossScale(128.0)
""",
    """\
from collections.abc import Mapping
import tf_compat_lossscale as tfl

scale = tfl.FixedLossScale(128.0)
""",
  ),
  (_BY_HAND, _BY_HAND),
)
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the uses of names that Python's library lacks."""
  for node, module in library_members.list_members(
    file, "collections", old_libraries.ABSTRACT
  ):
    end = file.find_span(node.value)[1]
    yield file.make(
      "LS402",
      node,
      ast.unparse(node),
      f"{module}.abc.{node.attr}",
      edits=[edits.Edit(end, end, ".abc"), *_make_import(file)],
    )
  for node, _ in library_members.list_members(file, "inspect", ["getargspec"]):
    yield file.make("LS402", node, ast.unparse(node), _HINT, findings.BY_HAND)
  if {"collections", "inspect"}.isdisjoint(file.source.modules):
    return
  for statement in file.list_imports():
    if isinstance(statement, ast.ImportFrom) and not statement.level:
      yield from _find_in_import(file, statement)


def _make_import(file: files.File) -> list[edits.Edit]:
  """Returns the edit of `import collections`, which must load the submodule."""
  for statement in file.statements:
    if isinstance(statement, ast.Import):
      names = {alias.name: alias for alias in statement.names}
      alias = names.get("collections")
      if alias is None or "collections.abc" in names:
        continue
      if alias.asname is None:
        return [imports.make_name_edit(file, alias, "collections.abc")]
  return []


def _find_in_import(
  file: files.File, node: ast.ImportFrom
) -> Iterator[findings.Finding]:
  """Yields the findings for `from collections import Sequence`."""
  if node.module == "inspect":
    for alias in node.names:
      if alias.name == "getargspec":
        yield file.make("LS402", alias, alias.name, _HINT, findings.BY_HAND)
  if node.module != "collections":
    return
  moved = [a for a in node.names if a.name in old_libraries.ABSTRACT]
  if not moved:
    return
  names = ", ".join(map(ast.unparse, moved))
  line = f"from collections.abc import {names}"
  if len(moved) == len(node.names):
    changes = [imports.make_module_edit(file, node, "collections.abc")]
  else:
    kept = [alias for alias in node.names if alias not in moved]
    changes = [
      *imports.remove_names(file, node.names, kept),
      imports.insert_after(file, node, [line]),
    ]
  yield file.make("LS402", node, names, line, edits=changes)
