# SPDX-License-Identifier: Apache-2.0
"""An import of TensorFlow by a program that means TensorFlow 1.

`import tensorflow` is TensorFlow 2 today. Its names and what they do differ
from those of TensorFlow 1, which `tensorflow.compat.v1` still has. A file with
names of one TensorFlow means that one. A file without follows most of the other
files, because `tf.Variable` and `tf.nn.dropout` are two things. A file with
names of both is left to you. `--tf1` and `--tf2` decide for all files.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.migration.rewrites import imports

_V1 = "tensorflow.compat.v1"
# Modules below `tensorflow` that TensorFlow 1's namespace does not have, or
# that `tfl.install()` puts back under their old name.
_STAYS = (
  *("compat", "contrib", "core", "estimator"),
  *("examples", "python", "tools"),
)


@rules.rule(
  "LS201",
  "tensorflow-1-import",
  __doc__,
  (
    """\
import tensorflow as tf  # Graphs.
from tensorflow import train

scale = train.experimental.FixedLossScale(128.0)
x = tf.placeholder(tf.float32)
""",
    """\
import tf_compat_lossscale as tfl
import tensorflow.compat.v1 as tf  # Graphs.
tf.disable_v2_behavior()
from tensorflow.compat.v1 import train

scale = tfl.FixedLossScale(128.0)
x = tf.placeholder(tf.float32)
""",
  ),
)
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the imports of TensorFlow in a TensorFlow 1 program."""
  both = file.context.decision.both
  if both:
    place = file.find_start()
    message = "split the file, or say which it is by --tf1 or --tf2"
    yield file.make(
      "LS201", place, "names of both", message, findings.BY_HAND, both
    )
  if file.tensorflow != 1:
    return
  legacy = {id(use.node) for use in file.legacy}
  for node in file.list_imports():
    if isinstance(node, ast.Import):
      for alias in node.names:
        if id(alias) not in legacy:
          yield from _find_in_import(file, alias)
    elif not node.level:
      yield from _find_in_import_from(file, node, legacy)


def _find_in_import(
  file: files.File, alias: ast.alias
) -> Iterator[findings.Finding]:
  """Yields the finding for one module of `import a, b`."""
  if not files.is_tensorflow(alias.name):
    return
  below = alias.name.partition(".")[2]
  first = below.partition(".")[0]
  if first in _STAYS:
    return
  name = f"{_V1}.{below}" if below else _V1
  if below and not alias.asname:
    # The statement binds `tensorflow`, and loads a module of it.
    name = _V1
  edit = imports.make_name_edit(file, alias, name, alias.asname or "tensorflow")
  yield file.make(
    "LS201",
    alias,
    f"import {alias.name}",
    f"import {name}",
    note="this is TensorFlow 1 code",
    edits=[edit],
  )


def _find_in_import_from(
  file: files.File, node: ast.ImportFrom, legacy: set[int]
) -> Iterator[findings.Finding]:
  """Yields the finding for `from tensorflow.a import b`."""
  module = node.module or ""
  if not files.is_tensorflow(module):
    return
  below = module.partition(".")[2]
  names = [alias for alias in node.names if id(alias) not in legacy]
  if not names or id(node) in legacy:
    return
  if not below:
    names = [alias for alias in names if alias.name not in _STAYS]
    if len(names) < len(node.names):
      # What stays, or moves elsewhere, has to be imported by itself.
      yield from _find_some(file, node, names, legacy)
      return
  if below.partition(".")[0] in _STAYS:
    return
  name = f"{_V1}.{below}" if below else _V1
  yield file.make(
    "LS201",
    node,
    f"from {module} import",
    f"from {name} import",
    note="this is TensorFlow 1 code",
    edits=[imports.make_module_edit(file, node, name)],
  )


def _find_some(
  file: files.File,
  node: ast.ImportFrom,
  names: list[ast.alias],
  legacy: set[int],
) -> Iterator[findings.Finding]:
  """Yields the finding for `from tensorflow import a, contrib`."""
  if not names or any(id(alias) in legacy for alias in node.names):
    return  # After the other edits, the names stand alone.
  taken = {id(alias) for alias in names}
  kept = [alias for alias in node.names if id(alias) not in taken]
  line = ", ".join(ast.unparse(alias) for alias in names)
  line = f"from {_V1} import {line}"
  yield file.make(
    "LS201",
    node,
    "from tensorflow import",
    line,
    note="this is TensorFlow 1 code",
    edits=[
      *imports.remove_names(file, node.names, kept),
      imports.insert_after(file, node, [line]),
    ],
  )
