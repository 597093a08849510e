# SPDX-License-Identifier: Apache-2.0
"""A package that the program needs, and that is not installed here.

Keras 2, `tf.estimator`, tf_slim and TensorBoard are packages of their own
today: `pip install 'tf_keras==2.21.*'` for TensorFlow 2.21. So are companions
of TensorFlow, such as tensorflow_hub. Other packages are not looked for. There
is one line for each package, in the first file that needs it. The line goes
away when the package is installed for the Python that runs `scan`.
"""

from __future__ import annotations

from collections.abc import Iterator

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
  for package in file.call.packages:
    if package.files[0] is file:
      more = len(package.files) - 1
      yield file.make(
        "LS303",
        package.place,
        package.name,
        package.command,
        findings.BY_HAND,
        f"for {more} more file{'s'[: more > 1]}, too" if more else "",
      )
