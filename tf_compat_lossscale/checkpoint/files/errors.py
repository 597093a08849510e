# SPDX-License-Identifier: Apache-2.0
"""The error for checkpoints that cannot be used."""


class CheckpointError(ValueError):
  """An error for a checkpoint that is missing, damaged or of the wrong kind.

  The message is one line: it names the checkpoint or the value, what was
  expected, and what to do.
  """
