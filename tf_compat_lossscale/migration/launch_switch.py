# SPDX-License-Identifier: Apache-2.0
"""Finds where shell scripts and the like turn on NVIDIA's variables.

The edit is made in the Python file that they start: `rewrites/nvidia_switch`.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
import os

from tf_compat_lossscale.migration import document_base
from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import reading
from tf_compat_lossscale.migration import roles
from tf_compat_lossscale.migration import trees

CODE = "LS205"
NOTE = (
  "NVIDIA's TensorFlow 1 obeyed this environment variable; tf-lossscale run "
  "obeys it, too"
)
_CALL = "tfl.honor_environment()"
_UNKNOWN = (
  f"{_CALL} in the program that starts with it; nothing here tells which one: "
  "with --nvidia-switch, migrate edits all that start"
)


def find(
  group: trees.Group,
  project: roles.Roles,
  shown: Mapping[str, str],
  reader: reading.Reader,
) -> Iterator[findings.Finding]:
  """Yields a finding for each place that turns a variable on.

  Args:
    group: The project.
    project: The roles of its files.
    shown: The paths of the files that are asked for.
    reader: The reader of its files.
  """
  for switch in group.switches:
    if switch.path not in shown:
      continue
    started = [path for path in switch.started if path in project.of]
    rest = [path for path in started if not project.of[path].obeys]
    if started and not rest:
      continue
    if not started and project.all_honor:
      continue  # Any program that the switch may start obeys it.
    state, message = findings.BY_HAND, _UNKNOWN
    if rest:
      folder = os.path.dirname(switch.path)
      names = [
        document_base.show_path(os.path.relpath(path, folder)) for path in rest
      ]
      message = f"{_CALL} in {' and '.join(names)}"
      reasons = {
        reason
        for path in rest
        if (reason := _find_obstacle(path, project.of[path], shown))
      }
      if reasons:
        message += f": {'; '.join(sorted(reasons))}"
      else:
        state = findings.APPLIED
    setting = switch.setting
    cell, line, column = None, setting.line, setting.column
    if documents.is_notebook(switch.path):
      document = reader.read_document(switch.path)
      cell, line, column = document.locate(setting.start)
    yield findings.Finding(
      switch.path,
      line,
      column,
      line,
      column + len(setting.name),
      CODE,
      setting.name,
      message,
      state,
      NOTE,
      cell=cell,
    )


def _find_obstacle(
  path: str, role: roles.Role, shown: Mapping[str, str]
) -> str:
  """Returns why `migrate` does not edit a file, or ""."""
  name = os.path.basename(path)
  if path not in shown:
    return f"{name} is not among the files that you give"
  if not role.starts:
    return f"{name} cannot be read, or does not import TensorFlow"
  return ""
