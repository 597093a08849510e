# SPDX-License-Identifier: Apache-2.0
"""A TensorFlow 1 program that leaves TensorFlow 2's behavior on.

`tensorflow.compat.v1` has TensorFlow 1's names. Its graphs, sessions and
variables work as they did only after `disable_v2_behavior()`. TensorFlow 1.15
needed no such call, so that programs of its time do not make it. `migrate` adds
the call to the file that starts the program, right after TensorFlow's import
and before a module of the program's own builds a graph.

A file may be the program, and others may import it. Then the call runs if the
file is `__main__`, since the others make the call themselves. A console script,
a test, or a program that is not here imports the file: then the call runs at
the import. If there is also a program that wants TensorFlow 2's behavior, the
call is left to you.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
import re

from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.programs import scopes

_V1 = "tensorflow.compat.v1"
_CALL = "disable_v2_behavior()"
_START = "the start of the program"


@rules.rule(
  "LS204",
  "tensorflow-2-behavior",
  (
    """\
import tensorflow.compat.v1 as tf

scale = tf.train.experimental.FixedLossScale(128.0)
x = tf.placeholder(tf.float32)
""",
    """\
import tf_compat_lossscale as tfl
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()

scale = tfl.FixedLossScale(128.0)
x = tf.placeholder(tf.float32)
""",
  ),
)
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the first import of TensorFlow, or the file's first statement."""
  role = file.role
  means_1 = file.tensorflow == 1 or role.starts
  if not (means_1 and role.disables) or _CALL in file.document.text:
    return
  for statement in file.list_statements():
    bound = _find_bound_name(statement)
    if bound is not None:
      call = f"{bound}.{_CALL}"
      lines = [call]
      if role.as_main and file.is_alone(statement):
        # The program that imports this file may have turned eager mode on.
        lines = ['if __name__ == "__main__":', f"  {call}"]
      elif role.opposes:
        yield _leave(file, statement, file.text.get_segment(statement))
        return
      yield file.make(
        "LS204",
        statement,
        file.text.get_segment(statement),
        f"{call} after it",
        note=role.reason,
        edits=[file.insert_after(statement, lines)],
      )
      return
    if (role.starts or role.exposes) and not role.own_modules.isdisjoint(
      scopes.list_modules(statement)
    ):
      break
  if not (role.starts or role.exposes):
    return
  place = file.find_opening()
  if role.opposes:
    yield _leave(file, place, _START)
    return
  taken = re.search(r"\btf\b", file.document.text) and not re.search(
    r"import tensorflow(\.compat\.v1)? as tf\b", file.document.text
  )
  name = "tensorflow_v1" if taken else "tf"
  lines = [f"import {_V1} as {name}", f"{name}.{_CALL}"]
  yield file.make(
    "LS204",
    place,
    _START,
    "; ".join(lines),
    note=role.reason,
    opening=lines,
  )


def _leave(
  file: files.File, place: ast.AST | tuple[int, int], name: str
) -> findings.Finding:
  """Returns the finding for a file that cannot decide for all its programs."""
  where = "the programs that import this file, and need it"
  if file.role.needed_by:
    first, *rest = file.role.needed_by
    more = f" and {len(rest)} more programs" if len(rest) > 1 else ""
    more = f" and {rest[0]}" if len(rest) == 1 else more
    where = f"{first}{more}: this file is imported there"
  return file.make(
    "LS204",
    place,
    name,
    f"tf.{_CALL} in {where}",
    findings.BY_HAND,
    f"{file.role.opposes} imports it, too, and wants TensorFlow 2's behavior",
  )


def _find_bound_name(statement: ast.stmt) -> str | None:
  """Returns the name to which a statement binds TensorFlow, if it does."""
  if isinstance(statement, ast.Import):
    for alias in statement.names:
      if alias.name == "tensorflow" or (alias.name == _V1 and alias.asname):
        return alias.asname or alias.name
      if alias.name.startswith("tensorflow.") and not alias.asname:
        return _V1  # The statement binds `tensorflow`.
  if (
    isinstance(statement, ast.ImportFrom)
    and statement.module == "tensorflow.compat"
  ):
    for alias in statement.names:
      if alias.name == "v1":
        return alias.asname or alias.name
  return None
