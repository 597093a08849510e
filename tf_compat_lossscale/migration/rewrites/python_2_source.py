# SPDX-License-Identifier: Apache-2.0
"""A source for Python 2.

No Python that has today's TensorFlow can run it. Run `2to3 --write --nobackups`
on it first (Python up to 3.12 has 2to3; the package fissix has it, too), then
scan it again for its legacy names. `migrate` leaves it alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules

_EXAMPLE = """\
import tensorflow as tf
print tf.train.experimental.FixedLossScale(128.0)
"""


@rules.rule("LS501", "python-2-source", (_EXAMPLE, _EXAMPLE))
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields nothing: a file that can be parsed is no source for Python 2."""
  del file
  yield from ()


def make(path: str, line: int, cell: int | None = None) -> findings.Finding:
  """Returns the finding in a file or in a cell of a notebook.

  Args:
    path: The file.
    line: The first line that Python 2 alone can parse.
    cell: The number of the cell, counted from 1.
  """
  name = "Python 2"
  return findings.Finding(
    path,
    line,
    1,
    line,
    1 + len(name),
    "LS501",
    name,
    "run 2to3 first, then scan the file again",
    findings.BY_HAND,
    cell=cell,
  )
