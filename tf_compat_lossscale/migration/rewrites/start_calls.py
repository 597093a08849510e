# SPDX-License-Identifier: Apache-2.0
"""The rules for the calls that a program makes before it imports TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator

from tf_compat_lossscale.migration import contexts
from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.programs import tables

# An example of both the names and the call that puts them back.
RESTORED = """\
-import tensorflow as tf
+import tf_compat_lossscale as tfl
+tfl.use_keras_2()  # Before TensorFlow is imported.
+tfl.install()  # For tf.contrib.
+import tensorflow.compat.v1 as tf
+tf.disable_v2_behavior()
 from tensorflow.contrib import training

-scale = tf.train.experimental.FixedLossScale(128.0)
+scale = tfl.FixedLossScale(128.0)
 parameters = training.HParams(rate=0.1)
 session = tf.Session()
"""


@rules.rule(
  "LS202",
  "keras-2",
  """
A program that needs Keras 2.

From TensorFlow 2.16 on, `tf.keras` is Keras 3, which has no loss scales, no
`tf.layers` and none of the old optimizers. Keras 2 is the package tf_keras. The
choice is made when TensorFlow is imported, so the file that starts the program
must make it first: `tfl.use_keras_2()`. If the program starts in a package
whose `__init__.py` imports TensorFlow, that file makes the choice, too. If no
file here starts a program, LS206 says what to add.
""",
  """\
+import tf_compat_lossscale as tfl
+tfl.use_keras_2()  # Before TensorFlow is imported.
 import tensorflow as tf

-policy = tf.keras.mixed_precision.experimental.Policy("mixed_float16")
-tf.keras.mixed_precision.experimental.set_policy(policy)
+policy = tfl.keras.Policy("mixed_float16")
+tfl.keras.set_policy(policy)
""",
  of_program=True,
)
def find_missing_keras_2(file: files.File) -> Iterator[findings.Finding]:
  """Yields the place where a program must choose Keras 2."""
  needs = file.context.needs
  if needs is None or not needs.keras_2:
    return
  call = f"{file.short}.use_keras_2()"
  yield file.make(
    file.start,
    "Keras",
    f"{call} before TensorFlow is imported",
    opening=[
      file.package_import,
      f"{call}  # Before TensorFlow is imported.",
    ],
  )


@rules.rule(
  "LS203",
  "restore-names",
  """
A program that uses names which `tfl.install()` puts back.

These are `tf.estimator` (gone with 2.16), most of `tf.contrib` (gone with 2.0),
private modules that moved, and the optimizers that `tf.keras.optimizers` had up
to TensorFlow 2.10. LS301 lists the places. `migrate` adds the call of
`tfl.install()` to the files that start programs. If there is none, LS206 says
what to add. A program that has no legacy names any more and chooses Keras 2
itself keeps its optimizers.
""",
  RESTORED,
  of_program=True,
)
def find_restored(file: files.File) -> Iterator[findings.Finding]:
  """Yields the place where a program must put names back."""
  needs = file.context.needs
  if needs is None or not (needs.restored or needs.optimizers):
    return
  names = list(dict.fromkeys(map(_shorten, needs.restored)))
  if needs.optimizers:
    names.append("tf.keras.optimizers")
  *others, last = names
  listed = f"{', '.join(others)} and {last}" if others else last
  call = f"{file.short}.{needs.install}"
  yield file.make(
    file.start,
    names[0],
    f"{call} at the start of the program",
    opening=[file.package_import, f"{call}  # For {listed}."],
  )


@rules.rule(
  "LS206",
  "program-start",
  """
Calls that a program must make first, and no file here starts a program.

The files may be a library, or a console script starts them. The finding says
what to add at the top of the file that starts the program, once for all files.
The line stays until a file that starts the program is among those that you
give. If that file is elsewhere, `tf-lossscale run` needs no such calls.
""",
  """\
 import tensorflow.compat.v1 as tf
 import tf_compat_lossscale as tfl

 def build():
   return tf.placeholder(tf.float32), tfl.FixedLossScale(128.0)
""",
  of_program=True,
)
def find_elsewhere(file: files.File) -> Iterator[findings.Finding]:
  """Yields the place of the calls that belong into a file elsewhere."""
  needs = file.context.elsewhere
  if needs is not None:
    yield file.make(
      file.start,
      "the start of the program",
      f"add `{'; '.join(_list_calls(needs))}` at the top of the file that "
      "starts it: none of these files does",
      findings.BY_HAND,
    )


def _list_calls(needs: contexts.Needs) -> list[str]:
  calls = []
  if needs.keras_2:
    calls.append("tfl.use_keras_2()")
  if needs.restored or needs.optimizers:
    calls.append(f"tfl.{needs.install}")
  if needs.disables:
    calls.append("import tensorflow.compat.v1 as tf; tf.disable_v2_behavior()")
  if needs.switch:
    calls.append("tfl.honor_environment()")
  if "tfl." in "".join(calls):
    calls.insert(0, "import tf_compat_lossscale as tfl")
  return calls


def _shorten(name: str) -> str:
  """Returns the first parts of a name: `tf.contrib`, `tensorflow.python`."""
  if name == tables.PRIVATE_KERAS:
    return name
  return ".".join(name.split(".")[:2])
