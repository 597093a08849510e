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
  needs = file.context.needs
  if needs and needs.disables and _CALL not in file.document.text:
    found = file.facts.disabling
    note = "" if found.opening else file.context.decision.reason
    yield found._replace(note=note)


def make_finding(file: files.File) -> findings.Finding:
  """Returns the finding of a file that has to make the call, but for a note."""
  for statement in file.statements:
    bound = imports.find_bound_name(statement)
    if bound is not None:
      call = f"{bound}.{_CALL}"
      lines = [call]
      is_module_too = file.context.is_imported and file.main_lines
      if is_module_too and imports.is_alone(file, statement):
        # The program that imports this file may have turned eager mode on.
        lines = ['if __name__ == "__main__":', f"  {call}"]
      return file.make(
        statement,
        ast.unparse(statement),
        f"{call} after it",
        edits=imports.insert_after(file, statement, lines),
      )
    if not file.context.own_modules.isdisjoint(files.list_modules(statement)):
      break  # A module of the program's own may build a graph.
  taken = re.search(r"\btf\b", file.document.text) and not re.search(
    r"import tensorflow(\.compat\.v1)? as tf\b", file.document.text
  )
  name = "tensorflow_v1" if taken else "tf"
  lines = [f"import {_V1} as {name}", f"{name}.{_CALL}"]
  return file.make(
    file.start,
    "the start of the program",
    "; ".join(lines),
    opening=lines,
  )
