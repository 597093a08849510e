# SPDX-License-Identifier: Apache-2.0
"""A name of the loss-scaling API that TensorFlow no longer has, or deprecated.

TensorFlow deprecated the classes in 2.4, and removed name after name since.
What is left in `tf.compat.v1.mixed_precision` keeps its bugs. This package has
all of them. `migrate` writes the package's name in place of the old one; what
stands around it stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules


@rules.rule(
  "LS101",
  "legacy-name",
  __doc__,
  """\
+import tf_compat_lossscale as tfl
 import tensorflow.compat.v1 as tf
 tf.disable_v2_behavior()

-opt = tf.train.experimental.MixedPrecisionLossScaleOptimizer(  # why
+opt = tfl.MixedPrecisionLossScaleOptimizer(  # why
     opt,   'dynamic')
""",
)
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the uses of legacy names in expressions."""
  # LS103 edits `m` in `hasattr(m, "name")` with the name, or leaves both.
  asked = {
    use.node.args[0]
    for use in file.legacy
    if use.form in ("getattr", "hasattr")
  }
  for use in file.legacy:
    if use.form not in ("expression", "follows") or use.node in asked:
      continue
    short = file.shorten(use.now)
    note = legacy_names.NOTES.get(use.now.partition(".")[2], "")
    if use.form == "follows" and use.now.endswith(use.name.rpartition(".")[2]):
      continue  # The import that binds the name changes.
    if file.is_at(use.node):
      yield file.make(
        use.node,
        use.written,
        short,
        note=note,
        edits=[file.make_edit(use.node, short)],
        opening=[file.package_import],
      )
    else:
      reason = "this Python does not tell where the name is in its f-string"
      yield file.make(use.node, use.written, short, findings.BY_HAND, reason)
