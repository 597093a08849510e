# SPDX-License-Identifier: Apache-2.0
"""A line of a notebook that asks for a TensorFlow of old.

`%tensorflow_version 1.x` and `!pip install tensorflow==1.15` got TensorFlow 1
where notebooks run, such as in Colab. Today, the first is an error, and the
second finds no release for this Python, or replaces the TensorFlow that the
migrated notebook needs. Remove the line, or install this package there. Such a
line also says which TensorFlow the notebook means.
"""

from __future__ import annotations

from collections.abc import Iterator
import re

from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules

_OLD = re.compile(
  r"%tensorflow_version\s+(?P<magic>\d)"
  r"|\bpip3?\s+install\b[^\n]*?\btensorflow(-[cg]pu)?\s*[<=~]=?\s*"
  r"(?P<pip>1|2\.(\d|1[01])(?!\d))"
)


def find_release(file: files.File) -> int | None:
  """Returns the TensorFlow, 1 or 2, that a notebook asks for by such a line."""
  for _, line in file.document.magics:
    if match := _OLD.search(line):
      return 1 if (match["magic"] or match["pip"]).startswith("1") else 2
  return None


@rules.rule(
  "LS305",
  "old-install",
  __doc__,
  """\
 %tensorflow_version 1.x
 import tensorflow.compat.v1 as tf
 import tf_compat_lossscale as tfl
 tf.disable_v2_behavior()
""",
)
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the lines that ask for an old TensorFlow."""
  for offset, line in file.document.magics:
    if match := _OLD.search(line):
      yield file.make(
        (offset, offset + len(line)),
        line.strip(),
        "remove the line"
        if match["magic"]
        else "install today's TensorFlow and tf_compat_lossscale",
        findings.BY_HAND,
      )
