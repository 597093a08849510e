# SPDX-License-Identifier: Apache-2.0
"""The rules for names that NumPy and Python's library have no more."""

from __future__ import annotations

import ast
from collections.abc import Collection
from collections.abc import Iterator

from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import imports
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.programs import old_libraries
from tf_compat_lossscale.programs import sources

# Function or method -> its name now, and what follows the call.
_CALLS = {"tostring": ("tobytes", ""), "fromstring": ("frombuffer", ".copy()")}
_HINT = "inspect.getfullargspec, whose result has more parts"


@rules.rule(
  "LS401",
  "numpy-name",
  """
A name that NumPy had in TensorFlow 1's time, and has no more.

NumPy 1.24 removed `np.int` and the others that were Python's own types, NumPy
2.0 many more, 2.3 `np.fromstring` of bytes. A new TensorFlow needs a new NumPy.
`migrate` writes what means the same. `tf-lossscale run` puts them back, except
the method `tostring` of arrays, which is `tobytes` now: that cannot come back.
""",
  """\
 import numpy as np
 import tf_compat_lossscale as tfl

-a = np.zeros([2], dtype=np.int)
-b = np.alltrue(a == np.Inf)
-c = np.fromstring(a.tostring(), np.uint8)
+a = np.zeros([2], dtype=int)
+b = np.all(a == np.inf)
+c = np.frombuffer(a.tobytes(), np.uint8).copy()
""",
)
def find_numpy_names(file: files.File) -> Iterator[findings.Finding]:
  """Yields the uses of names that NumPy lacks."""
  if "numpy" not in file.source.modules:
    return
  replaced = old_libraries.NUMPY_REPLACED
  for node, numpy in _list_members(file, "numpy", replaced):
    home, now = replaced[node.attr]
    new = now if home == "builtins" else f"{numpy}.{now}"
    yield file.replace(node, new)
  for call in file.source.list_nodes(ast.Call):
    function = call.func
    old = function.attr if isinstance(function, ast.Attribute) else ""
    if old not in _CALLS or not file.is_at(function):
      continue
    full = file.source.resolve(function)
    if old == "tostring":
      is_old = full is None and not call.args
    else:
      others = {keyword.arg for keyword in call.keywords} - {"dtype", "count"}
      is_old = full == "numpy.fromstring" and not others and not call.args[3:]
    if is_old:
      new, after = _CALLS[old]
      end, last = file.find_span(function)[1], file.find_span(call)[1]
      yield file.make(
        function,
        f".{old}()",
        f".{new}(){after}",
        edits=[
          documents.Edit(end - len(old), end, new),
          *([documents.Edit(last, last, after)] if after else []),
        ],
      )


@rules.rule(
  "LS402",
  "python-name",
  """
A name that Python's library had in TensorFlow 1's time, and has no more.

Python 3.10 removed `collections.Sequence` and the other abstract classes, which
are in `collections.abc`. Python 3.11 removed `inspect.getargspec`, whose result
has fewer parts than that of `getfullargspec`: that call is left to you.
`tf-lossscale run` puts the old names back.
""",
  """\
-import collections
+import collections.abc
 import tf_compat_lossscale as tfl

-is_list = isinstance([], collections.Sequence)
+is_list = isinstance([], collections.abc.Sequence)
""",
  """\
-from collections import Mapping
+from collections.abc import Mapping
 import tf_compat_lossscale as tfl

""",
  """\
 import inspect
 import tf_compat_lossscale as tfl

 arguments = inspect.getargspec(print).args
""",
)
def find_python_names(file: files.File) -> Iterator[findings.Finding]:
  """Yields the uses of names that Python's library lacks."""
  modules = file.source.modules
  if "inspect" in modules:
    for use in file.source.uses:
      is_import = use.form == "from"
      is_member = is_import or isinstance(use.node, ast.Attribute)
      if use.name == "inspect.getargspec" and is_member:
        name = "getargspec" if is_import else use.written
        yield file.make(use.node, name, _HINT, findings.BY_HAND)
  if "collections" not in modules:
    return
  for node, module in _list_members(
    file, "collections", old_libraries.ABSTRACT
  ):
    end = file.find_span(node.value)[1]
    yield file.make(
      node,
      ast.unparse(node),
      f"{module}.abc.{node.attr}",
      edits=[documents.Edit(end, end, ".abc"), *_make_import(file)],
    )
  for statement in file.source.list_nodes(ast.ImportFrom):
    if statement.module == "collections" and not statement.level:
      yield from _find_in_import(file, statement)


def _make_import(file: files.File) -> list[documents.Edit]:
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
  moved = [a for a in node.names if a.name in old_libraries.ABSTRACT]
  if not moved:
    return
  names = ", ".join(map(ast.unparse, moved))
  line = f"from collections.abc import {names}"
  if len(moved) == len(node.names):
    changes = [imports.make_module_edit(file, node, "collections.abc")]
  else:
    changes = imports.move_names(file, node, moved, [line])
  yield file.make(node, names, line, edits=changes)


def _list_members(
  file: files.File, module: str, wanted: Collection[str]
) -> Iterator[tuple[ast.Attribute, str]]:
  """Yields attributes of a module, each with the module as it is written."""
  for use in file.source.uses:
    parts = use.name.split(".", 2)
    if parts[0] != module or use.form != "expression":
      continue
    node: ast.AST = use.node
    for _ in parts[2].split(".") if parts[2:] else ():
      node = node.value if isinstance(node, ast.Attribute) else node
    if isinstance(node, ast.Attribute) and node.attr in wanted:
      yield node, sources.unparse(node.value)
