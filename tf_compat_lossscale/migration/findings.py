# SPDX-License-Identifier: Apache-2.0
"""Findings: the places in old sources that have to change."""

from __future__ import annotations

from typing import NamedTuple

from tf_compat_lossscale.migration import documents

# The states of a finding.
MIGRATE = "migrate"  # `migrate` makes the edit.
OFFERED = "offered"  # `migrate --offered` makes the edit: read it first.
BY_HAND = "by hand"  # There is no edit, or it cannot be made.
STATES = (MIGRATE, OFFERED, BY_HAND)


class ScanError(Exception):
  """An error for paths that cannot be scanned; the message is one line."""


class Finding(NamedTuple):
  """A place in a source that has to change.

  Attributes:
    cell: The number of the cell of a notebook, counted from 1; None for a file.
    line: The line, counted from 1; of a notebook, the line in its cell.
    column: The column, counted from 1, in characters.
    end_line, end_column: The place after the end.
    name: What was found, as written.
    message: What to write instead, or what to do.
    state: One of `STATES`.
    note: A known difference in behavior, or a reason; "" if there is none.
    edits: The edits of the file's text.
    opening: Lines that the file needs at its start. The choice of Keras 2
      stands before all imports, other lines before the first statement that
      imports TensorFlow or a module of the program, or has such a finding.
    offset: The offset in the file's text.
    code: The code of the rule, such as "LS101", once the rule has yielded it.
  """

  path: str
  cell: int | None
  line: int
  column: int
  end_line: int
  end_column: int
  name: str
  message: str
  state: str
  note: str = ""
  edits: tuple[documents.Edit, ...] = ()
  opening: tuple[str, ...] = ()
  offset: int = 0
  code: str = ""

  @property
  def place(self) -> str:
    """The file, the cell, the line and the column, as tools print them."""
    cell = f":cell {self.cell}" if self.cell is not None else ""
    return f"{self.path}{cell}:{self.line}:{self.column}"


class Change(NamedTuple):
  """The edits of a file, with its bytes before and after.

  Attributes:
    made: The findings whose edits are made.
    left: The findings whose edits are wanted, and cannot be made.
  """

  path: str
  before: bytes
  after: bytes
  made: tuple[Finding, ...]
  left: tuple[Finding, ...]

  @property
  def edits(self) -> int:
    """The number of findings for which the text itself changes."""
    return sum(bool(each.edits or each.opening) for each in self.made)


class ScanReport(NamedTuple):
  """What `scan` found, and what `migrate` would change.

  Attributes:
    files: How many files could be read.
    findings: The findings, file by file and line by line.
    errors: A line for each file, or cell, that could not be read.
    changes: The files that `migrate` would change, and those with edits left;
      none of `scan`.
    uses_loss_scaling: Whether a file uses a legacy name, an environment
      variable of NVIDIA's TensorFlow 1, or this package. Otherwise, there are
      no findings.
    tensorflow: 1 or 2: what most of the files mean; None if none imports
      TensorFlow.
    reason: The first name that told, with its place; "" if no name tells.
  """

  files: int
  findings: tuple[Finding, ...] = ()
  errors: tuple[str, ...] = ()
  changes: tuple[Change, ...] = ()
  uses_loss_scaling: bool = False
  tensorflow: int | None = None
  reason: str = ""
