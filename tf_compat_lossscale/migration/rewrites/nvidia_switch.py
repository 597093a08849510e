# SPDX-License-Identifier: Apache-2.0
"""An environment variable that NVIDIA's TensorFlow 1 obeyed.

`TF_ENABLE_AUTO_MIXED_PRECISION=1` and its two parts gave every optimizer a
dynamic loss scale, and turned the graph rewrite on. TensorFlow itself ignores
them: without a word, the program then trains in float32.
`tfl.honor_environment()` gives them their old effect, and so does
`tf-lossscale run`.

Sources are read, shell scripts, Dockerfiles and other files that start
programs, and the magics of notebooks. `migrate` adds the call to the file that
sets a variable if that file imports TensorFlow, and otherwise to the files that
start with the variable on. If nothing tells which these are, the place is left
to you; with `--nvidia-switch`, all files that start programs get the call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from collections.abc import Mapping
import os

from tf_compat_lossscale.migration import document_base
from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import reading
from tf_compat_lossscale.migration import roles
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.migration import trees
from tf_compat_lossscale.programs import scopes

_NOTE = (
  "NVIDIA's TensorFlow 1 obeyed this environment variable; tf-lossscale run "
  "obeys it, too"
)
_CALL = "tfl.honor_environment()"
_UNKNOWN = (
  f"{_CALL} in the program that starts with it; nothing here tells which one: "
  "with --nvidia-switch, migrate edits all that start"
)
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


def find_in_launchers(
  group: trees.Group,
  project: roles.Roles,
  shown: Mapping[str, str],
  reader: reading.Reader,
) -> Iterator[findings.Finding]:
  """Yields a finding for each place that turns a variable on.

  Args:
    group: The project.
    project: The roles of its files.
    shown: The paths of the files that are asked for.
    reader: The reader of its files.
  """
  for switch in group.switches:
    if switch.path not in shown:
      continue
    started = [path for path in switch.started if path in project.of]
    rest = [path for path in started if not project.of[path].obeys]
    if started and not rest:
      continue
    if not started and project.all_honor:
      continue  # Any program that the switch may start obeys it.
    state, message = findings.BY_HAND, _UNKNOWN
    if rest:
      folder = os.path.dirname(switch.path)
      names = [
        document_base.show_path(os.path.relpath(path, folder)) for path in rest
      ]
      message = f"{_CALL} in {' and '.join(names)}"
      unread = {
        os.path.basename(path) for path in rest if not project.of[path].starts
      }
      if unread:
        why = "cannot be read, or does not import TensorFlow"
        message += f": {'; '.join(f'{each} {why}' for each in sorted(unread))}"
      else:
        state = findings.APPLIED
    setting = switch.setting
    cell, line, column = None, setting.line, setting.column
    if documents.is_notebook(switch.path):
      document = reader.read_document(switch.path)
      cell, line, column = document.locate(setting.start)
    yield findings.Finding(
      switch.path,
      line,
      column,
      line,
      column + len(setting.name),
      "LS205",
      setting.name,
      message,
      state,
      _NOTE,
      cell=cell,
    )
