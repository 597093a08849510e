# SPDX-License-Identifier: Apache-2.0
"""Says which TensorFlow a project means, and what runs it as it is."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import os

from tf_compat_lossscale._core import install_commands
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.migration import absences
from tf_compat_lossscale.migration import reading
from tf_compat_lossscale.migration import roles
from tf_compat_lossscale.migration import start_files
from tf_compat_lossscale.migration import trees
from tf_compat_lossscale.programs import source_facts

_RUN = "`tf-lossscale run`"
# The processes that Jupyter starts inherit the choice of TensorFlow.
_RUN_NOTEBOOK = "`tf-lossscale run --tf1 -m jupyter notebook`"


class Summary:
  """What is known of a project as a whole.

  Attributes:
    tensorflow: 1 or 2: the TensorFlow that it means; None if nothing imports
      TensorFlow.
    reason: The name that decided, with its place; "" if there is none.
  """

  def __init__(
    self,
    group: trees.Group,
    found: roles.Roles,
    reader: reading.Reader,
    wanted: Iterable[str] = (),
  ):
    """Decides which TensorFlow a project means.

    Args:
      group: The project.
      found: The roles of its files.
      reader: The reader of its files.
      wanted: The files that the user asks for: they give the reason first.
    """
    self._group, self._found, self._reader = group, found, reader
    # The files that may import TensorFlow.
    self._paths = [outline.path for outline in group.files if outline.mentions]
    self.tensorflow, self.reason = self._find_tensorflow(wanted)

  def _find_tensorflow(self, wanted: Iterable[str]) -> tuple[int | None, str]:
    """Returns which TensorFlow the project means, and why."""
    found = self._found
    roles_of_all = [role for role in found.of.values() if role.tensorflow]
    starting = [role for role in roles_of_all if role.starts]
    # A module that none reaches decides little.
    meant = starting or roles_of_all
    tensorflow = min((min(role.tensorflow) for role in meant), default=None)
    if found.turns_2_off and all(found.turns_2_off):
      tensorflow = 1
    if tensorflow is None:
      return None, ""
    own = [found.of[path] for path in wanted if path in found.of]
    reasons = (role.reasons.get(tensorflow) for role in (*own, *meant))
    return tensorflow, next(filter(None, reasons), "")

  @functools.cached_property
  def _absences(self) -> list[tuple[str, absences.Absence]]:
    """The places that use names which TensorFlow lacks, with these."""
    found = []
    for path in self._paths:
      try:
        source = self._reader.read_source(path)
      except source_facts.SourceError:
        continue
      if path in self._found.of:
        lacks = self._found.list_absences(source, self.tensorflow)
        place = f"{os.path.basename(path)} line"
        found += [(f"{place} {use.line}", absence) for use, absence in lacks]
    return found

  def find_missing(self) -> dict[str, str]:
    """Returns the names that nothing puts back, each with its first place."""
    missing: dict[str, str] = {}
    for place, absence in self._absences:
      if absence.state == absences.MISSING:
        missing.setdefault(absence.name, place)
    return missing

  def list_advice(self) -> Iterator[str]:
    """Yields what runs a project that does not use loss scaling.

    Yields:
      Clauses; none for a project that today's TensorFlow runs as it is.
    """
    lacks = [absence for _, absence in self._absences]
    commands = dict.fromkeys(each.command for each in lacks if each.command)
    release = self._found.release
    if (
      release is not None
      and any(role.uses_keras_2 for role in self._found.of.values())
      and which_keras.is_missing(release)
    ):
      commands[install_commands.make_command("tf_keras", release)] = None
    restores = any(each.state == absences.RESTORED for each in lacks)
    if self.tensorflow != 1 and not restores:
      return
    starting = [
      outline.path
      for outline in start_files.find_entries(self._group)
      if self._found.of[outline.path].starts
    ]
    yield _describe_run(starting, self.find_missing())
    yield from (f"first: {command}" for command in commands)


def _describe_run(starting: Sequence[str], missing: Mapping[str, str]) -> str:
  """Returns what runs the programs that some files start, or where it stops.

  Args:
    starting: The files.
    missing: What `Summary.find_missing` returns.
  """
  notebooks_alone = all(path.endswith(".ipynb") for path in starting)
  run = _RUN_NOTEBOOK if starting and notebooks_alone else _RUN
  if not missing:
    return f"{run} runs {'it' if starting else 'the programs that import it'}"
  name, place = next(iter(missing.items()))
  rest = len(missing) - 1
  more = f" or {rest} other name{'s' if rest > 1 else ''}" if rest else ""
  back = "them" if rest else "it"
  return (
    f"{run} stops where the program uses {name} ({place}){more}: nothing puts "
    f"{back} back"
  )
