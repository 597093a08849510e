# SPDX-License-Identifier: Apache-2.0
"""Calls that a program must make first, and no file here starts a program.

The files may be a library, or a console script starts them. The finding says
what to add at the top of the file that starts the program, once for all files.
If the file is elsewhere, `tf-lossscale run` needs no such calls.
"""

from __future__ import annotations

from collections.abc import Iterator

from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules

_EXAMPLE = """\
import tensorflow.compat.v1 as tf
import tf_compat_lossscale as tfl

def build():
  return tf.placeholder(tf.float32), tfl.FixedLossScale(128.0)
"""


@rules.rule("LS206", "program-start", (_EXAMPLE, _EXAMPLE))
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the place of the calls that belong into a file elsewhere."""
  needs = file.context.elsewhere
  if needs is None:
    return
  calls = ["import tf_compat_lossscale as tfl"]
  if needs.keras_2:
    calls.append("tfl.use_keras_2()")
  if needs.restored or needs.optimizers:
    calls.append(f"tfl.{needs.install}")
  if needs.disables:
    calls.append("import tensorflow.compat.v1 as tf; tf.disable_v2_behavior()")
  if needs.switch:
    calls.append("tfl.honor_environment()")
  if calls == calls[:1] + calls[-1:] and needs.disables and not needs.switch:
    calls = calls[1:]
  yield file.make(
    "LS206",
    file.find_start(),
    "the start of the program",
    f"add `{'; '.join(calls)}` at the top of the file that starts it: none of "
    "these files does",
    findings.BY_HAND,
  )
