# SPDX-License-Identifier: Apache-2.0
"""A TensorFlow 1 program that leaves TensorFlow 2's behavior on.

`tensorflow.compat.v1` has TensorFlow 1's names. Its graphs, sessions and
variables work as they did only after `disable_v2_behavior()`. TensorFlow 1.15
needed no such call, so that programs of its time do not make it. `migrate` adds
the call to the files that start programs, right after TensorFlow's import and
before a module of the program's own builds a graph. If another file imports the
start file, the call runs only if the start file is `__main__`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
import re

from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import imports
from tf_compat_lossscale.migration import rules

_V1 = "tensorflow.compat.v1"
_CALL = "disable_v2_behavior()"


@rules.rule(
  "LS204",
  "tensorflow-2-behavior",
  __doc__,
  """\
+import tf_compat_lossscale as tfl
 import tensorflow.compat.v1 as tf
+tf.disable_v2_behavior()

-scale = tf.train.experimental.FixedLossScale(128.0)
+scale = tfl.FixedLossScale(128.0)
 x = tf.placeholder(tf.float32)
""",
  of_program=True,
)
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the first import of TensorFlow, or the file's first statement."""
  needs, text = file.context.needs, file.document.text
  if not (needs and needs.disables) or _CALL in text:
    return
  if file.binding is not None:
    statement, bound = file.binding
    call = f"{bound}.{_CALL}"
    lines = [call]
    is_module_too = file.context.is_imported and file.main_lines
    if is_module_too and imports.is_alone(file, statement):
      # The program that imports this file may have turned eager mode on.
      lines = ['if __name__ == "__main__":', f"  {call}"]
    yield file.make(
      statement,
      ast.unparse(statement),
      f"{call} after it",
      note=file.context.decision.reason,
      edits=imports.insert_after(file, statement, lines),
    )
    return
  taken = re.search(r"\btf\b", text) and not re.search(
    r"import tensorflow(\.compat\.v1)? as tf\b", text
  )
  name = "tensorflow_v1" if taken else "tf"
  lines = [f"import {_V1} as {name}", f"{name}.{_CALL}"]
  start, message = "the start of the program", "; ".join(lines)
  yield file.make(file.start, start, message, opening=lines)
