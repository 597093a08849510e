# SPDX-License-Identifier: Apache-2.0
"""A name that NumPy had in TensorFlow 1's time, and has no more.

NumPy 1.24 removed `np.int` and the others that were Python's own types, NumPy
2.0 many more. A new TensorFlow needs a new NumPy. `migrate` writes the name
that means the same. `tf-lossscale run` puts the old names back, except the
method `tostring` of arrays, which is `tobytes` now: a method cannot come back.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tf_compat_lossscale.migration import edits
from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.migration.rewrites import library_members
from tf_compat_lossscale.programs import numpy_names

_METHOD = "tostring"


@rules.rule(
  "LS401",
  "numpy-name",
  (
    """\
import numpy as np
import tf_compat_lossscale as tfl

scale = tfl.FixedLossScale(128.0)
a = np.zeros([2], dtype=np.int)
b = np.alltrue(a == np.Inf)
c = a.tostring()
""",
    """\
import numpy as np
import tf_compat_lossscale as tfl

scale = tfl.FixedLossScale(128.0)
a = np.zeros([2], dtype=int)
b = np.all(a == np.inf)
c = a.tobytes()
""",
  ),
)
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the uses of names that NumPy lacks."""
  for node, numpy in library_members.list_members(
    file, "numpy", numpy_names.REPLACED
  ):
    now = numpy_names.REPLACED[node.attr]
    new = now if numpy_names.is_builtin(node.attr) else f"{numpy}.{now}"
    yield file.replace("LS401", node, new)
  if "numpy" not in file.source.modules or _METHOD not in file.document.text:
    return
  for call in file.source.list_nodes(ast.Call):
    method = call.func
    if (
      method in file.source.unknown
      and isinstance(method, ast.Attribute)
      and method.attr == _METHOD
      and not call.args
      and file.is_at(method)
    ):
      end = file.find_span(method)[1]
      edit = edits.Edit(end - len(_METHOD), end, "tobytes")
      name = f".{_METHOD}()"
      yield file.make("LS401", method, name, ".tobytes()", edits=[edit])
