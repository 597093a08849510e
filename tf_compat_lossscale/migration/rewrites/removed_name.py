# SPDX-License-Identifier: Apache-2.0
"""A name that today's TensorFlow lacks, and that `tfl.install()` puts back.

The package `keras` is one of them, in a program that gets Keras 2: from
TensorFlow 2.16 on, it is Keras 3, and tf_keras is Keras 2.

`migrate` leaves the place as it is, and adds the call of `tfl.install()` to the
file that starts the program (LS203). `tf-lossscale run` needs no such call.
"""

from __future__ import annotations

from collections.abc import Iterator

from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules

_IMPORTS = ("import", "from", "star")


@rules.rule(
  "LS301",
  "removed-name",
  (
    """\
import tensorflow as tf
from tensorflow.contrib import training

scale = tf.train.experimental.FixedLossScale(128.0)
parameters = training.HParams(rate=0.1)
session = tf.Session()
""",
    """\
import tf_compat_lossscale as tfl
tfl.use_keras_2()  # Before TensorFlow is imported.
tfl.install()  # For tf.contrib.
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
from tensorflow.contrib import training

scale = tfl.FixedLossScale(128.0)
parameters = training.HParams(rate=0.1)
session = tf.Session()
""",
  ),
)
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the first use of each name that is put back."""
  if not file.context.restored:
    return
  start = next(iter(file.list_starts(1)), None)
  seen = set[str]()
  for use, absence in file.absences:
    if absence.name in seen or absence.name not in file.context.restored:
      continue
    seen.add(absence.name)
    message = f"tfl.install() restores it; {start} has to call that"
    yield file.make("LS301", use.node, absence.name, message)
  for use in file.source.uses if "keras" in file.context.restored else ():
    if use.name.partition(".")[0] == "keras" and use.form in _IMPORTS:
      message = f"tfl.install() makes it tf_keras; {start} has to call that"
      yield file.make("LS301", use.node, "keras", message)
      return
