# SPDX-License-Identifier: Apache-2.0
"""An import of TensorFlow by a program that means TensorFlow 1.

`import tensorflow` is TensorFlow 2 today. Its names and what they do differ
from those of TensorFlow 1, which `tensorflow.compat.v1` still has. A file with
names of one TensorFlow means that one. A file without, which imports plain
`tensorflow` and not this package, follows most of the other files, because
`tf.Variable` and `tf.nn.dropout` are two things. A file with names of both is
left to you. `--tf1` and `--tf2` decide for all files.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeAlias

from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import imports
from tf_compat_lossscale.migration import rules

_V1 = "tensorflow.compat.v1"
# The place, the name, the message and the edits of a finding.
_Found: TypeAlias = tuple[ast.AST, str, str, list[documents.Edit]]


@rules.rule(
  "LS201",
  "tensorflow-1-import",
  __doc__,
  """\
-import tensorflow as tf  # Graphs.
-from tensorflow import train
+import tf_compat_lossscale as tfl
+import tensorflow.compat.v1 as tf  # Graphs.
+tf.disable_v2_behavior()
+from tensorflow.compat.v1 import train

-scale = train.experimental.FixedLossScale(128.0)
+scale = tfl.FixedLossScale(128.0)
 x = tf.placeholder(tf.float32)
""",
)
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the imports of TensorFlow in a TensorFlow 1 program."""
  both = file.context.decision.both
  if both:
    message = "split the file, or say which it is by --tf1 or --tf2"
    start = file.start
    yield file.make(start, "names of both", message, findings.BY_HAND, both)
  if file.tensorflow != 1:
    return
  legacy = {id(use.node) for use in file.legacy}
  for node in file.list_imports():
    found = []
    if node.lineno in file.fallback_lines:
      continue
    if isinstance(node, ast.ImportFrom):
      found = _find_in_import_from(file, node, legacy)
    else:
      for alias in node.names:
        if id(alias) not in legacy:
          found += _find_in_import(file, alias)
    for place, name, message, changes in found:
      note = "this is TensorFlow 1 code"
      yield file.make(place, name, message, note=note, edits=changes)


def _find_in_import(file: files.File, alias: ast.alias) -> list[_Found]:
  """Returns what is to change in one module of `import a, b`."""
  below = alias.name.partition(".")[2]
  if not files.is_tensorflow(alias.name) or _stays(below):
    return []
  name = f"{_V1}.{below}" if below else _V1
  if below and not alias.asname:
    # The statement binds `tensorflow`, and loads a module of it.
    name = _V1
  edit = imports.make_name_edit(file, alias, name, alias.asname or "tensorflow")
  return [(alias, f"import {alias.name}", f"import {name}", [edit])]


def _find_in_import_from(
  file: files.File, node: ast.ImportFrom, legacy: set[int]
) -> list[_Found]:
  """Returns what is to change in `from tensorflow.a import b`."""
  module = "" if node.level else node.module or ""
  below = module.partition(".")[2]
  if not files.is_tensorflow(module) or _stays(below) or id(node) in legacy:
    return []
  names = [
    alias
    for alias in node.names
    if id(alias) not in legacy and (below or not _stays(alias.name))
  ]
  start = f"from {module} import"
  if names and (below or len(names) == len(node.names)):
    name = f"{_V1}.{below}" if below else _V1
    edit = imports.make_module_edit(file, node, name)
    return [(node, start, f"from {name} import", [edit])]
  # What stays has to be imported by itself. If legacy names move elsewhere, the
  # names stand alone after that.
  if not names or any(id(alias) in legacy for alias in node.names):
    return []
  line = f"from {_V1} import {', '.join(map(ast.unparse, names))}"
  return [(node, start, line, imports.move_names(file, node, names, [line]))]


def _stays(name: str) -> bool:
  return name.partition(".")[0] in files.STAYS
