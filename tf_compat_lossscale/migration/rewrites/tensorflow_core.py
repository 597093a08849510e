# SPDX-License-Identifier: Apache-2.0
"""A name of TensorFlow by the folder that had it in 1.15 to 2.1.

TensorFlow's files were in the package `tensorflow_core` then, and its public
modules in `_api/v1` or `_api/v2` there. Editors imported names from these
folders by themselves. `migrate` writes the public name, and `tf-lossscale run`
takes both.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import imports
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.programs import sources

_WORDS = ("tensorflow_core", "_api.v1")  # All such names have one of them.


@rules.rule(
  "LS207",
  "tensorflow-core",
  __doc__,
  """\
-import tensorflow_core as tf
+import tensorflow as tf
 import tf_compat_lossscale as tfl
-from tensorflow_core._api.v2.math import real
+from tensorflow.math import real
""",
  """\
-import tensorflow_core.python.ops
+import tensorflow.python.ops
 import tf_compat_lossscale as tfl

-x = tensorflow_core.float16
+x = tensorflow.float16
""",
)
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the imports and names that go by a folder."""
  if not any(word in file.document.text for word in _WORDS):
    return
  for node in file.list_imports():
    if isinstance(node, ast.ImportFrom):
      module = node.module or ""
      new = module if node.level else legacy_names.leave_folders(module)
      if new != module:
        edit = imports.make_module_edit(file, node, new)
        yield file.make(node, module, new, edits=[edit])
      continue
    for alias in node.names:
      new = legacy_names.leave_folders(alias.name)
      if new != alias.name:
        edit = imports.make_name_edit(file, alias, new)
        yield file.make(alias, alias.name, new, edits=[edit])
  for use in file.source.uses:
    root, _ = sources.split(use.node)
    if isinstance(root, ast.Name) and root.id == "tensorflow_core":
      yield file.replace(root, "tensorflow")
