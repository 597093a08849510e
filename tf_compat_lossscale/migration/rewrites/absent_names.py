# SPDX-License-Identifier: Apache-2.0
"""The rules for names and packages that today's TensorFlow lacks."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

from tf_compat_lossscale._core import installation
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.migration import contexts
from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.migration.rewrites import start_calls

_IMPORTS = ("import", "from", "star")


@rules.rule(
  "LS301",
  "removed-name",
  """
A name that today's TensorFlow lacks, and that `tfl.install()` puts back.

The package `keras` is one of them, in a program that gets Keras 2: from
TensorFlow 2.16 on, it is Keras 3, and tf_keras is Keras 2.

`migrate` leaves the place as it is, and adds the call of `tfl.install()` to the
file that starts the program (LS203). `tf-lossscale run` needs no such call.
""",
  start_calls.RESTORED,
  of_program=True,
)
def find_removed(file: files.File) -> Iterator[findings.Finding]:
  """Yields the first use of each name that is put back."""
  start = next(iter(file.list_starts(1)), None)
  for name, place in file.restorable.items():
    if name in file.context.restored:
      verb = "makes it tf_keras" if name == "keras" else "restores it"
      message = f"tfl.install() {verb}; {start} has to call that"
      yield file.make(place, name, message)


@rules.rule(
  "LS302",
  "missing-name",
  """
A name that today's TensorFlow lacks, and that nothing puts back.

The program stops where it uses the name. The finding says what to use instead,
if there is something. Code that tries the name out, by `try` or by asking for
TensorFlow's version, works without it and is not listed.
""",
  """\
 import tensorflow.compat.v1 as tf
 import tf_compat_lossscale as tfl
 tf.disable_v2_behavior()

 scale = tfl.FixedLossScale(128.0)
 tf.contrib.quantize.create_training_graph()
""",
)
def find_missing(file: files.File) -> Iterator[findings.Finding]:
  """Yields the uses of names that nothing puts back."""
  for use, absence in file.absences:
    if not (absence.is_restored or absence.command):
      message = absence.hint or "this TensorFlow has no such name"
      yield file.make(use.node, absence.name, message, findings.BY_HAND)


@rules.rule(
  "LS303",
  "missing-package",
  """
A package that the program needs, and that is not installed here.

Keras 2, `tf.estimator`, tf_slim and TensorBoard are packages of their own
today: `pip install 'tf_keras==2.21.*'` for TensorFlow 2.21. So are companions
of TensorFlow, such as tensorflow_hub. Other packages are not looked for. There
is one line for each package, in the first file that needs it. The line goes
away when the package is installed for the Python that runs `scan`.
""",
  """\
 import tf_compat_lossscale as tfl
 tfl.use_keras_2()  # Before TensorFlow is imported.
 import tensorflow as tf

 tfl.keras.set_policy("mixed_float16")
""",
  of_program=True,
)
def find_missing_package(file: files.File) -> Iterator[findings.Finding]:
  """Yields the first name that needs each missing package."""
  for name, node, command, note in file.context.packages:
    yield file.make(node, name, command, findings.BY_HAND, note)


def find_packages(
  read: Sequence[files.File],
) -> dict[str, list[contexts.Package]]:
  """Returns path -> the packages of which the file has the first name."""
  needing: dict[str, dict[str, tuple[str, Any]]] = {}
  for file in read:
    for name, place, command, _ in file.packages:
      needing.setdefault(command, {}).setdefault(file.path, (name, place))
    needs, release = file.context.needs, file.context.release
    uses_keras_2 = needs is not None and needs.uses_keras_2
    if uses_keras_2 and which_keras.is_missing(release):
      command = installation.make_command("tf_keras", release)
      place = "Keras 2", file.start
      needing.setdefault(command, {}).setdefault(file.path, place)
  found: dict[str, list[contexts.Package]] = {}
  for command, places in needing.items():
    path, *others = places
    more = f"for {len(others)} more file{'s'[: len(others) > 1]}, too"
    package = (*places[path], command, more if others else "")
    found.setdefault(path, []).append(package)
  return found


def find_restorable(file: files.File) -> dict[str, tuple[int, int]]:
  """Returns the names in a file that `tfl.install()` puts back -> the first."""
  found = [(x.name, use) for use, x in file.absences if x.is_restored]
  for use in file.source.uses:
    if use.name.partition(".")[0] == "keras" and use.form in _IMPORTS:
      found.append(("keras", use))
  first = dict(reversed(found))
  return {name: file.find_span(first[name].node) for name, _ in found}


def list_packages(file: files.File) -> Iterator[contexts.Package]:
  """Yields the missing packages that a file names, each time it does."""
  for use, absence in file.absences:
    if absence.command:
      is_call = absence.name == "tensorboard" and use.form == "expression"
      name = use.written if is_call else absence.name
      yield name, file.find_span(use.node), absence.command, ""
