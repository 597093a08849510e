# SPDX-License-Identifier: Apache-2.0
"""A program that needs Keras 2.

From TensorFlow 2.16 on, `tf.keras` is Keras 3, which has no loss scales, no
`tf.layers` and none of the old optimizers. Keras 2 is the package tf_keras. The
choice is made when TensorFlow is imported, so the file that starts the program
must make it first: `tfl.use_keras_2()`. If the program starts in a package
whose `__init__.py` imports TensorFlow, that file makes the choice, too.

If no file here starts a program, LS206 says what to add.
"""

from __future__ import annotations

from collections.abc import Iterator

from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules


@rules.rule(
  "LS202",
  "keras-2",
  (
    """\
import tensorflow as tf

policy = tf.keras.mixed_precision.experimental.Policy("mixed_float16")
tf.keras.mixed_precision.experimental.set_policy(policy)
""",
    """\
import tf_compat_lossscale as tfl
tfl.use_keras_2()  # Before TensorFlow is imported.
import tensorflow as tf

policy = tfl.keras.Policy("mixed_float16")
tfl.keras.set_policy(policy)
""",
  ),
)
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the place where a program must choose Keras 2."""
  needs = file.context.needs
  if needs is None or not needs.keras_2:
    return
  call = f"{file.short}.use_keras_2()"
  yield file.make(
    "LS202",
    file.find_start(),
    "Keras",
    f"{call} before TensorFlow is imported",
    opening=[
      file.package_import,
      f"{call}  # Before TensorFlow is imported.",
    ],
  )
