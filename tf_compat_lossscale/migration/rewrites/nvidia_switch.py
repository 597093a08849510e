# SPDX-License-Identifier: Apache-2.0
"""An environment variable that NVIDIA's TensorFlow 1 obeyed.

`TF_ENABLE_AUTO_MIXED_PRECISION=1` and its two parts gave every optimizer a
dynamic loss scale, and turned the graph rewrite on. TensorFlow itself ignores
them: without a word, the program then trains in float32.
`tfl.honor_environment()` gives them their old effect, and so does
`tf-lossscale run`.

`migrate` adds the call to the file that sets a variable if that file imports
TensorFlow, and otherwise to the files that start the programs with that file.
If no file here starts them, the place is left to you. Only Python is read: if
something else sets the variable, such as a shell script, give
`--nvidia-switch`, and all files that start programs get the call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.programs import scopes

_NOTE = (
  "NVIDIA's TensorFlow 1 obeyed this environment variable; tf-lossscale run "
  "obeys it, too"
)
_CALL = "tfl.honor_environment()"
_BY_HAND = """\
import os

os.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"
"""


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
  if not (file.switches or file.role.switches):
    return
  place = _find_place(file)
  call = f"{file.short}.honor_environment()"
  edits = [file.insert_after(place, [call])] if place is not None else []
  opening = [file.package_import, *([] if place is not None else [call])]
  message = f"{call} after TensorFlow is imported"
  # Whether this file gets the call already.
  is_made = False
  if file.role.starts and file.role.switches and not file.role.obeys:
    is_made = True
    yield file.make(
      "LS205",
      place or file.find_opening(),
      "the environment",
      message,
      note=f"{_join(file.role.switches)} turns NVIDIA's switch on",
      edits=edits,
      opening=opening,
    )
  for switch in file.switches:
    start = file.text.find_offset(switch.line, switch.column)
    span = start, start + switch.length
    state = findings.APPLIED
    if place is None and not is_made:
      if file.role.obeys:
        continue
      message, state = _describe_elsewhere(file)
    is_first = place is not None and not is_made
    is_made |= is_first
    yield file.make(
      "LS205",
      span,
      switch.name,
      message,
      state,
      _NOTE,
      edits if is_first else [],
      opening if is_first else [],
    )


def _describe_elsewhere(file: files.File) -> tuple[str, str]:
  """Returns what to do in another file, and the state of the finding."""
  if not file.role.entries:
    return f"where TensorFlow is imported: {_CALL}", findings.BY_HAND
  return f"{_CALL} in {' and '.join(file.starts)}", findings.APPLIED


def _join(places: list[str]) -> str:
  """Returns places in words: the first, and how many more there are."""
  first, *rest = dict.fromkeys(places)
  return first + (f" (and {len(rest)} more)" if rest else "")


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
      # The rest of the program may be in such a block.
      if _defines_alone(statement) and any(
        _imports_tensorflow(node) for node in ast.walk(statement)
      ):
        place = statement
    elif place is body[i - 1] and "disable_v2_behavior()" in text:
      place = statement
  return place


def _defines_alone(statement: ast.stmt) -> bool:
  """Returns whether a statement imports modules, and runs no other code."""
  return not scopes.asks_for_main(statement) and not any(
    isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    for node in ast.walk(statement)
  )


def _imports_tensorflow(node: ast.AST) -> bool:
  """Returns whether a node imports TensorFlow or this package."""
  tops = {name.partition(".")[0] for name in scopes.list_modules(node)}
  return not tops.isdisjoint({"tensorflow", "tf_compat_lossscale"})
