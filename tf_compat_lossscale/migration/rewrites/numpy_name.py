# SPDX-License-Identifier: Apache-2.0
"""A name that NumPy had in TensorFlow 1's time, and has no more.

NumPy 1.24 removed `np.int` and the others that were Python's own types, NumPy
2.0 many more. A new TensorFlow needs a new NumPy. `migrate` writes the name
that means the same. `tf-lossscale run` puts the old names back.
"""

from __future__ import annotations

from collections.abc import Iterator

from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.programs import numpy_names


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
""",
    """\
import numpy as np
import tf_compat_lossscale as tfl

scale = tfl.FixedLossScale(128.0)
a = np.zeros([2], dtype=int)
b = np.all(a == np.inf)
""",
  ),
)
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the uses of names that NumPy lacks."""
  for node, numpy in file.list_attributes("numpy", numpy_names.REPLACED):
    now = numpy_names.REPLACED[node.attr]
    new = now if numpy_names.is_builtin(node.attr) else f"{numpy.id}.{now}"
    yield file.replace("LS401", node, new)
