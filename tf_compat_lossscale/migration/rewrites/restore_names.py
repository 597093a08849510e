# SPDX-License-Identifier: Apache-2.0
"""A program that uses names which `tfl.install()` puts back.

These are `tf.estimator` (gone with 2.16), most of `tf.contrib` (gone with 2.0),
private modules that moved, and the optimizers that `tf.keras.optimizers` had up
to TensorFlow 2.10. LS301 lists the places. `migrate` adds the call of
`tfl.install()` to the files that start programs. If there is none, LS206 says
what to add.
"""

from __future__ import annotations

from collections.abc import Iterator

from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.programs import tables


@rules.rule(
  "LS203",
  "restore-names",
  (
    """\
import tensorflow as tf

scale = tf.train.experimental.FixedLossScale(128.0)
x = tf.placeholder(tf.float32)
parameters = tf.contrib.training.HParams(rate=0.1)
""",
    """\
import tf_compat_lossscale as tfl
tfl.use_keras_2()  # Before TensorFlow is imported.
tfl.install()  # For tf.contrib.
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()

scale = tfl.FixedLossScale(128.0)
x = tf.placeholder(tf.float32)
parameters = tf.contrib.training.HParams(rate=0.1)
""",
  ),
)
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the place where a program must put names back."""
  needs = file.context.needs
  if needs is None or not (needs.restored or needs.optimizers):
    return
  names = list(dict.fromkeys(map(_shorten, needs.restored)))
  if needs.optimizers:
    names.append("tf.keras.optimizers")
  call = f"{file.short}.{needs.install}"
  yield file.make(
    "LS203",
    file.find_start(),
    names[0],
    f"{call} at the start of the program",
    opening=[file.package_import, f"{call}  # For {_join(names)}."],
  )


def _shorten(name: str) -> str:
  """Returns the first parts of a name: `tf.contrib`, `tensorflow.python`."""
  if name == tables.PRIVATE_KERAS:
    return name
  return ".".join(name.split(".")[:2])


def _join(names: list[str]) -> str:
  """Returns names as a list in words."""
  if len(names) == 1:
    return names[0]
  return f"{', '.join(names[:-1])} and {names[-1]}"
