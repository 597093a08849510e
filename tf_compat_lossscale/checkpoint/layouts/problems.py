# SPDX-License-Identifier: Apache-2.0
"""Messages for variables and tensors that do not fit each other."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import difflib

from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)

MOST = 20  # The number of problems that a message lists at most.
_LONG = 200  # Characters of a name for which no similar names are listed.
# The number of characters of names that are compared with a name at most: of a
# name of 50 characters, with 400 names.
_COMPARED = 20_000
# Reasons why a variable does not get a value of the checkpoint, for reports.
NO_SCALE = "the checkpoint has no loss scale for it"
NOT_THERE = "it is not in the checkpoint"
NO_WEIGHT = "the checkpoint's loss scale has no such variable"
PARTIAL = "the checkpoint has a loss scale without its variable"
NOT_COUNTED = "that loss scale has no such count; it starts from 0"


def shorten(problems: Sequence[str]) -> list[str]:
  """Returns the first `MOST` problems, and the number of others."""
  more = len(problems) - MOST
  return [*problems[:MOST], *([f"and {more} more"] if more > 0 else [])]


def join(problems: Sequence[str]) -> str:
  """Returns the first `MOST` problems, sorted, and the number of others."""
  return "; ".join(shorten([*sorted(problems[:MOST]), *problems[MOST:]]))


def make_misfit_error(path: str, problems: Iterable[str]) -> CheckpointError:
  """Returns the error for a checkpoint that does not fit the variables."""
  return CheckpointError(
    f"{path}: it does not fit, and nothing was restored: {'; '.join(problems)}"
  )


@dataclasses.dataclass(frozen=True)
class Undecided:
  """Variables for which nothing proves which tensor is theirs.

  Attributes:
    here: The variables of the program, or of the new checkpoint.
    there: The candidates in the checkpoint.
    likely: The pairs if both sides were created in the same order.
  """

  here: Sequence[str]
  there: Sequence[str]
  likely: Mapping[str, str]

  def __str__(self) -> str:
    here, there = (
      ", ".join(names) or "nothing" for names in (self.here, self.there)
    )
    text = f"nothing proves which of {there} in the checkpoint are {here}"
    pairs = dict(self.likely)
    rest = [name for name in self.here if name not in pairs]
    shown = ", ".join(f"{a!r}: {b!r}" for a, b in pairs.items())
    shown += ", " * bool(shown and rest)
    shown += ", ".join(f"{name!r}: ..." for name in rest)
    likely = " (likely)" * bool(pairs)
    return f"{text}: decide by mapping={{{shown}}}{likely}"


def make_unmatched_error(
  path: str,
  problems: Sequence[str],
  undecided: Sequence[Undecided],
  has_meta_graph: bool,
) -> CheckpointError:
  """Returns the error for variables that have no tensor, or may have several.

  Args:
    path: The checkpoint.
    problems: The problems of variables.
    undecided: The variables for which nothing proves which tensor is theirs.
    has_meta_graph: Whether the checkpoint has a MetaGraph, which was read.
  """
  error = make_misfit_error(path, [*map(str, undecided), *shorten(problems)])
  advice = (
    "mapping={here: there} of tf_compat_lossscale.checkpoint.restore decides, "
    "None initializes; tf-lossscale convert takes --map HERE=THERE"
  )
  if undecided and not has_meta_graph:
    advice += (
      "; the MetaGraph (the '.meta' file) beside the checkpoint would be a "
      "proof"
    )
  return CheckpointError(f"{error} ({advice})")


def make_unnamed_error(
  path: str, what: str, undecided: Undecided
) -> CheckpointError:
  """Returns the error for a conversion in which a new name has no proof.

  Args:
    path: The checkpoint.
    what: The question that has no answer.
    undecided: The new names, and the variables.
  """
  return CheckpointError(
    f"{path}: nothing was written, since it is unknown {what}: {undecided}, on "
    "the command line by --map HERE=THERE; the MetaGraph (the '.meta' file) "
    "beside the checkpoint may be a proof"
  )


def suggest_names(name: str, known: Iterable[str]) -> str:
  """Returns a hint at similar names, to be put behind a name."""
  if len(name) > _LONG:
    return ""  # The time to compare two names grows with both lengths.
  # Names whose lengths differ by more are not similar.
  near = [n for n in known if len(n) <= 3 * len(name)]
  if len(near) * len(name) > _COMPARED:
    # Most similar names have a common begin or end.
    most = _COMPARED // (2 * len(name))
    near = [
      *_find_neighbors(name, near, most),
      *(
        n[::-1]
        for n in _find_neighbors(name[::-1], [n[::-1] for n in near], most)
      ),
    ]
    near = list(dict.fromkeys(near))
  same = [n for n in near if n.lower() == name.lower()]
  close = same or difflib.get_close_matches(name, near, 3, 0.5)
  return f" (nearest: {', '.join(close)})" if close else ""


def _find_neighbors(name: str, known: Iterable[str], most: int) -> list[str]:
  """Returns at most `most` names that a sorted list has around `name`."""
  ordered = sorted(known)
  at = bisect.bisect(ordered, name)
  return ordered[max(0, at - most // 2) : at + most // 2]
