# SPDX-License-Identifier: Apache-2.0
"""The error for checkpoints that cannot be used."""

from __future__ import annotations


class CheckpointError(ValueError):
  """An error for a checkpoint that is missing, damaged or of the wrong kind.

  The message is one line: it names the checkpoint or the value, what was
  expected, and what to do.
  """

  def __init__(self, message: str = "") -> None:
    super().__init__(escape(message))


def escape(text: str) -> str:
  """Returns a text that prints in one line: `a\\nb` if it has a line end.

  Checkpoints may have any bytes as names.
  """
  return "".join(
    char if char.isprintable() else char.encode("unicode_escape").decode()
    for char in text
  )
