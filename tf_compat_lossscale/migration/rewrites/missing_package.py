# SPDX-License-Identifier: Apache-2.0
"""Keras 2, `tf.estimator` or tf_slim is needed, and is not installed here.

They are packages of their own today. Other packages are not looked for.
The finding goes away when the package is installed for the Python that runs
`scan`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules

_EXAMPLE = """\
import tf_compat_lossscale as tfl
tfl.use_keras_2()  # Before TensorFlow is imported.
import tensorflow as tf

tfl.keras.set_policy("mixed_float16")
"""


@rules.rule("LS303", "missing-package", (_EXAMPLE, _EXAMPLE))
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the first place that needs each missing package."""
  seen = set()
  for use, absence in file.absences:
    command = absence.command
    if command and command not in seen:
      seen.add(command)
      yield file.make(
        "LS303", use.node, absence.name, command, findings.BY_HAND
      )
  release = file.release
  if (
    file.role.uses_keras_2
    and file.role.starts
    and release
    and which_keras.is_missing(release)
  ):
    command = which_keras.make_install_command(release)
    yield file.make(
      "LS303", file.find_start(), "Keras 2", command, findings.BY_HAND
    )
