# SPDX-License-Identifier: Apache-2.0
"""An environment variable that NVIDIA's TensorFlow 1 obeyed.

`TF_ENABLE_AUTO_MIXED_PRECISION=1` and its two parts gave every optimizer a
dynamic loss scale, and turned the graph rewrite on. TensorFlow itself ignores
them: without a word, the program then trains in float32.
`tfl.honor_environment()` gives them their old effect, and so does
`tf-lossscale run`. A file that does not import TensorFlow is left to you.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tf_compat_lossscale.legacy import scopes
from tf_compat_lossscale.legacy import switches
from tf_compat_lossscale.legacy.migration import files
from tf_compat_lossscale.legacy.migration import findings
from tf_compat_lossscale.legacy.migration import rules

_BY_HAND = """\
import os

os.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"
"""
_NOTE = (
  "NVIDIA's TensorFlow 1 obeyed this environment variable; tf-lossscale run "
  "obeys it, too"
)


@rules.rule(
  "LS205",
  "nvidia-switch",
  (
    """\
import os
import tensorflow as tf

os.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"
opt = tf.train.AdamOptimizer()
""",
    """\
import os
import tf_compat_lossscale as tfl
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
tfl.honor_environment()

os.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"
opt = tf.train.AdamOptimizer()
""",
  ),
  (_BY_HAND, _BY_HAND),
)
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the strings that name one of the variables."""
  found = switches.find_switches(file.source.tree)
  place = _find_place(file) if found else None
  for i, switch in enumerate(found):
    start = file.text.find_offset(switch.line, switch.column)
    span = start, start + len(switch.name) + 2
    call = f"{file.short}.honor_environment()"
    if place is None:
      message = f"where TensorFlow is imported: {call}"
      yield file.make(
        "LS205", span, switch.name, message, findings.BY_HAND, _NOTE
      )
      continue
    yield file.make(
      "LS205",
      span,
      switch.name,
      f"{call} after TensorFlow is imported",
      note=_NOTE,
      edits=[] if i else [file.insert_after(place, [call])],
      opening=[] if i else [file.package_import],
    )


def _find_place(file: files.File) -> ast.stmt | None:
  """Returns the statement after which the call has to stand, if there is one.

  It is the last of the first imports of TensorFlow and of this package, with
  the call of `disable_v2_behavior` right after them.
  """
  place: ast.stmt | None = None
  body = file.source.tree.body
  for i, statement in enumerate(body):
    text = file.text.get_segment(statement)
    if isinstance(statement, (ast.Import, ast.ImportFrom, ast.Try, ast.If)):
      if any(_imports_tensorflow(node) for node in ast.walk(statement)):
        place = statement
    elif place is body[i - 1] and "disable_v2_behavior()" in text:
      place = statement
  return place


def _imports_tensorflow(node: ast.AST) -> bool:
  """Returns whether a node imports TensorFlow or this package."""
  tops = {name.partition(".")[0] for name in scopes.list_modules(node)}
  return not tops.isdisjoint({"tensorflow", "tf_compat_lossscale"})
