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
from collections.abc import Sequence
import re
from typing import Any

from tf_compat_lossscale._core import install_commands
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.migration import contexts
from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.programs import hints

_EXAMPLE = """\
import tf_compat_lossscale as tfl
tfl.use_keras_2()  # Before TensorFlow is imported.
import tensorflow as tf

tfl.keras.set_policy("mixed_float16")
"""

_TENSORBOARD = re.compile(r"(tensorflow\.)?(\w+\.)*callbacks\.TensorBoard$")


@rules.rule("LS303", "missing-package", (_EXAMPLE, _EXAMPLE))
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the first name that needs each missing package."""
  for name, node, command, note in file.context.packages:
    yield file.make("LS303", node, name, command, findings.BY_HAND, note)


def find_packages(
  read: Sequence[files.File],
) -> dict[str, list[contexts.Package]]:
  """Returns path -> the packages of which the file has the first name."""
  needing: dict[str, dict[str, tuple[str, Any]]] = {}
  for file in read:
    for name, node, command in _list_packages(file):
      needing.setdefault(command, {}).setdefault(file.path, (name, node))
  found: dict[str, list[contexts.Package]] = {}
  for command, places in needing.items():
    path, *others = places
    more = f"for {len(others)} more file{'s'[: len(others) > 1]}, too"
    package = (*places[path], command, more if others else "")
    found.setdefault(path, []).append(contexts.Package(*package))
  return found


def _list_packages(file: files.File) -> Iterator[tuple[str, Any, str]]:
  """Yields names that need missing packages, their places and commands."""
  for use, absence in file.absences:
    if absence.command:
      yield absence.name, use.node, absence.command
  needed = []
  for use in file.source.uses:
    package = use.name.partition(".")[0]
    if _TENSORBOARD.match(use.name):
      needed.append(("tensorboard", use.written, use.node))
    elif package not in ("keras", "tensorflow"):
      needed.append((package, package, use.node))
  for package, name, node in needed:
    if hints.is_missing(package):
      command = install_commands.make_command(package, file.context.release)
      yield name, node, command
  needs, release = file.context.needs, file.context.release
  uses_keras_2 = needs is not None and needs.uses_keras_2
  if uses_keras_2 and release and which_keras.is_missing(release):
    command = install_commands.make_command("tf_keras", release)
    yield "Keras 2", file.find_start(), command
