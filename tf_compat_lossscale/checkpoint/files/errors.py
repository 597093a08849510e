"""What is wrong with a file, or with what it was asked for."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import difflib

MOST = 20  # So many problems are listed; more would not be read.


class CheckpointError(ValueError):
  """A checkpoint that is missing, damaged, or not what is needed.

  The message is one line: what it was, what was expected, and what to do.
  """


def misfit(path: str, problems: Sequence[str], count: int) -> CheckpointError:
  """The error for a checkpoint that does not fit what it is restored into.

  Args:
    path: The checkpoint.
    problems: The first `MOST` of them.
    count: How many there are.
  """
  more = count - len(problems)
  listed = [*problems, *([f"and {more} more"] if more else [])]
  return CheckpointError(
    f"{path}: it does not fit, and nothing was restored: {'; '.join(listed)}"
  )


@dataclasses.dataclass(frozen=True)
class Undecided:
  """Variables of which nothing proves which is which.

  Attributes:
    here: The variables of the program, or of the new checkpoint.
    there: The candidates in the checkpoint.
    likely: What the pairs are if both were created in the same order.
  """

  here: Sequence[str]
  there: Sequence[str]
  likely: Mapping[str, str]

  def __str__(self) -> str:
    here, there = (
      ", ".join(names) or "nothing" for names in (self.here, self.there)
    )
    text = f"nothing proves which of {there} there are {here} here"
    pairs = dict(self.likely)
    rest = [name for name in self.here if name not in pairs]
    shown = ", ".join(f"{a!r}: {b!r}" for a, b in pairs.items())
    shown += ", " * bool(shown and rest)
    shown += ", ".join(f"{name!r}: ..." for name in rest)
    likely = " (likely)" * bool(pairs)
    return f"{text}: decide by mapping={{{shown}}}{likely}"


def unmatched(
  path: str,
  problems: Sequence[str],
  count: int,
  undecided: Sequence[Undecided],
  has_meta_graph: bool,
) -> CheckpointError:
  """The error for variables that have no tensor, or may have several.

  Args:
    path: The checkpoint.
    problems: What is wrong with variables, the first of them.
    count: How many variables that is.
    undecided: What nothing proves.
    has_meta_graph: Whether the checkpoint's graph was looked at.
  """
  listed = [*map(str, undecided), *problems[:MOST]]
  more = count - len(problems[:MOST])
  error = misfit(path, listed, len(listed) + more)
  if not undecided:
    return error
  advice = (
    "mapping={here: there} of tf_compat_lossscale.checkpoint.restore decides, "
    "None initializes; tf-lossscale convert takes --map HERE=THERE"
  )
  if not has_meta_graph:
    advice += "; the MetaGraph (the '.meta' file) beside it would be a proof"
  return CheckpointError(f"{error} ({advice})")


def unnamed(path: str, what: str, undecided: Undecided) -> CheckpointError:
  """The error for a conversion in which nothing proves a variable's new name.

  Args:
    path: The checkpoint.
    what: What would have to be known.
    undecided: The new names, and the variables.
  """
  return CheckpointError(
    f"{path}: nothing was written, since nothing proves {what}: {undecided}, "
    "on the command line by --map HERE=THERE; the MetaGraph (the '.meta' file) "
    "beside the checkpoint may be a proof"
  )


def nearest(name: str, known: Iterable[str]) -> str:
  """A hint at what was meant, to be put behind a name."""
  close = difflib.get_close_matches(name, list(known), 3, 0.5)
  return f" (nearest: {', '.join(close)})" if close else ""
