# SPDX-License-Identifier: Apache-2.0
"""Keras 2, `tf.estimator` or tf_slim is needed, and is not installed here.

They are packages of their own today: `pip install 'tf_keras==2.21.*'` for
TensorFlow 2.21, `pip install 'tensorflow-estimator==2.15.*'`, and `pip install
tf_slim`. A project gets one line for each package, in the first file that needs
the package. Other packages are not looked for. The finding goes away when the
package is installed for the Python that runs `scan`.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator

from tf_compat_lossscale._core import install_commands
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules

_EXAMPLE = """\
import tf_compat_lossscale as tfl
tfl.use_keras_2()  # Before TensorFlow is imported.
import tensorflow as tf

tfl.keras.set_policy("mixed_float16")
"""


_CODE = "LS303"


@rules.rule(_CODE, "missing-package", (_EXAMPLE, _EXAMPLE))
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the first place that needs each missing package."""
  seen = set()
  for use, absence in file.absences:
    command = absence.command
    if command and command not in seen:
      seen.add(command)
      yield file.make(_CODE, use.node, absence.name, command, findings.BY_HAND)
  release = file.release
  if (
    file.role.uses_keras_2
    and file.role.starts
    and release
    and which_keras.is_missing(release)
  ):
    command = install_commands.make_command("tf_keras", release)
    yield file.make(
      _CODE, file.find_start(), "Keras 2", command, findings.BY_HAND
    )


def merge(found: Iterable[findings.Finding]) -> list[findings.Finding]:
  """Returns the findings of a project, with one for each missing package."""
  kept: list[findings.Finding] = []
  places: dict[str, int] = {}  # Command -> the place of its finding in `kept`.
  files: dict[str, set[str]] = {}
  for finding in found:
    command = finding.message
    if finding.code != _CODE:
      kept.append(finding)
      continue
    if command not in places:
      places[command] = len(kept)
      kept.append(finding)
    files.setdefault(command, set()).add(finding.path)
  for command, place in places.items():
    more = len(files[command]) - 1
    if more:
      note = f"for {more} more file{'s' if more > 1 else ''}, too"
      kept[place] = kept[place]._replace(note=note)
  return kept
