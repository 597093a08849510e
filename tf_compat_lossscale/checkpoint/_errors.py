"""What is wrong with a file, or with what it was asked for."""


class CheckpointError(ValueError):
  """A checkpoint that is missing, damaged, or not what is needed.

  The message is one line: what it was, what was expected, and what to do.
  """
