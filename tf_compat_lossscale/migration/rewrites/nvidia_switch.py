# SPDX-License-Identifier: Apache-2.0
"""An environment variable that NVIDIA's TensorFlow 1 obeyed.

`TF_ENABLE_AUTO_MIXED_PRECISION=1` and its two parts gave every optimizer a
dynamic loss scale, and turned the graph rewrite on. TensorFlow itself ignores
them: without a word, the program then trains in float32.
`tfl.honor_environment()` gives them their old effect, and so does
`tf-lossscale run`.

`migrate` adds the call to the files that start TensorFlow 1 programs, if Python
sets the variable. If something else does, such as a shell script, give
`--nvidia-switch`, and all these files get the call. TensorFlow 2 programs get
none: NVIDIA's TensorFlow 2 did not obey the variable.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import imports
from tf_compat_lossscale.migration import rules

_NOTE = (
  "NVIDIA's TensorFlow 1 obeyed this environment variable; tf-lossscale run "
  "obeys it, too"
)
_CALL = "honor_environment()"


@rules.rule(
  "LS205",
  "nvidia-switch",
  __doc__,
  """\
 import os
-import tensorflow as tf
+import tf_compat_lossscale as tfl
+import tensorflow.compat.v1 as tf
+tf.disable_v2_behavior()
+tfl.honor_environment()

 os.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"
 opt = tf.train.AdamOptimizer()
""",
  """\
 import os

 os.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"
""",
  of_program=True,
)
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the strings that name a variable, and the place of the call."""
  needs = file.context.needs
  switch = needs.switch if needs is not None else ""
  if not switch and (not file.switches or file.tensorflow == 2):
    return
  found = [(span, name, _NOTE) for name, span in file.switches]
  call = f"{file.short}.{_CALL}"
  message, state = f"{call} after TensorFlow is imported", findings.MIGRATE
  edits: list[documents.Edit] = []
  opening: list[str] = []
  if switch:
    place = _find_place(file)
    opening = [file.package_import]
    if place is None:
      opening.append(call)
    else:
      edits = imports.insert_after(file, place, [call])
    if not found:
      note = f"{switch} turns NVIDIA's switch on"
      span = file.find_span(place) if place else file.start
      found = [(span, "the environment", note)]
  elif not file.context.starts:
    message = f"where TensorFlow is imported: tfl.{_CALL}"
    state = findings.BY_HAND
  elif any(each.switch for each in file.context.starts.values()):
    message = f"tfl.{_CALL} in {' and '.join(file.list_starts())}"
  else:
    return
  for span, name, note in found:
    yield file.make(span, name, message, state, note, edits, opening)
    edits = []  # The first finding has them.


def _find_place(file: files.File) -> ast.stmt | None:
  """Returns the statement after which the call has to stand, if there is one.

  It is the last of the first imports of TensorFlow and of this package, with
  the call of `disable_v2_behavior` right after them.
  """
  place: ast.stmt | None = None
  body = file.tree.body
  for i, statement in enumerate(body):
    if isinstance(statement, (ast.Import, ast.ImportFrom, ast.Try, ast.If)):
      nodes = [*ast.walk(statement)]
      modules = {name for node in nodes for name in files.list_modules(node)}
      tops = {name.partition(".")[0] for name in modules}
      # The rest of the program may be in such a block.
      runs_code = statement.lineno in file.main_lines or any(
        isinstance(x, ast.Expr) and isinstance(x.value, ast.Call) for x in nodes
      )
      if not runs_code and tops & {"tensorflow", files.PACKAGE}:
        place = statement
    elif place is body[i - 1] and "disable_v2_behavior()" in ast.unparse(
      statement
    ):
      place = statement
  return place
