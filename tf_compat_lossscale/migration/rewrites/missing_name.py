# SPDX-License-Identifier: Apache-2.0
"""A name that today's TensorFlow lacks, and that nothing puts back.

The program stops where it uses the name. The finding says what to use instead,
if there is something. Code that tries the name out, by `try` or by asking for
TensorFlow's version, works without it and is not listed.
"""

from __future__ import annotations

from collections.abc import Iterator

from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.programs import hints
from tf_compat_lossscale.programs import missing_names

_EXAMPLE = """\
import tensorflow.compat.v1 as tf
import tf_compat_lossscale as tfl
tf.disable_v2_behavior()

scale = tfl.FixedLossScale(128.0)
tf.contrib.quantize.create_training_graph()
"""


@rules.rule("LS302", "missing-name", (_EXAMPLE, _EXAMPLE))
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the uses of names that nothing puts back."""
  for use, absence in file.absences:
    if absence.state == missing_names.MISSING:
      message = absence.hint or "this TensorFlow has no such name"
      yield file.make(
        "LS302", use.node, absence.name, message, findings.BY_HAND
      )
  for use in file.source.uses:
    package = use.name.partition(".")[0]
    if package in hints.PORTS and use.form in ("import", "from", "star"):
      message = hints.PORTS[package]
      yield file.make("LS302", use.node, package, message, findings.BY_HAND)
