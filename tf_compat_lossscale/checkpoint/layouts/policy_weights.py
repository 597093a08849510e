# SPDX-License-Identifier: Apache-2.0
"""Finds the variables that GrowthBackoff has beside those of DynamicLossScale.

    DynamicLossScale      GrowthBackoff
    current_loss_scale    current_loss_scale
    good_steps            good_steps
                          spent_hysteresis
                          overflows
                          steps_to_overflow
                          skipped_steps

So a loss scale of one class is restored from a checkpoint of the other: a count
that the other does not have starts from 0. tf.contrib's `bad_steps` are
`spent_hysteresis`.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping

from tf_compat_lossscale.checkpoint.files.entries import TensorSpec
from tf_compat_lossscale.checkpoint.files.values import Literal
from tf_compat_lossscale.checkpoint.files.values import Sources
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts import problems
from tf_compat_lossscale.checkpoint.layouts.match import PartialMatch
from tf_compat_lossscale.checkpoint.layouts.names import ScaleNames
from tf_compat_lossscale.checkpoint.layouts.scale_bridges import convert_counter

SPENT, SKIPPED = "spent_hysteresis", "skipped_steps"
_COUNT = TensorSpec("int64", ())
# The base names of the counts that only GrowthBackoff has.
COUNTS = (SPENT, "overflows", "steps_to_overflow", SKIPPED)

# The first name of a loss scale -> the base names of its further variables ->
# their names.
Further = Mapping[str, Mapping[str, str]]


def find_further(
  tensors: Mapping[str, TensorSpec], scales: Iterable[ScaleNames]
) -> Further:
  """Finds the further variables of loss scales, by name.

  In a scope with several loss scales, variables belong together in the order
  of their numbers. If a scope has a GrowthBackoff and other loss scales, the
  names do not show which are which, and nothing is found there.

  Args:
    tensors: Name -> dtype and shape.
    scales: The loss scales among the variables.

  Returns:
    The further variables of the loss scales that have any.
  """
  by_scope = names.group(
    (scale for scale in scales if scale.api == names.COMPAT),
    lambda scale: scale.scope,
  )
  found: dict[tuple[str, str], list[tuple[int, str]]] = {}
  for name, tensor in tensors.items():
    scope, last = names.split_scope(name)
    base, number = names.split_number(last)
    if scope in by_scope and base in COUNTS and tensor == _COUNT:
      found.setdefault((scope, base), []).append((number, name))
  result: dict[str, dict[str, str]] = {}
  for scope, members in by_scope.items():
    lists = [sorted(found.get((scope, base), [])) for base in COUNTS]
    if {len(each) for each in lists} == {len(members)}:
      for scale, *further in zip(members, *lists):
        result[scale.names[0]] = {
          base: name for base, (_, name) in zip(COUNTS, further)
        }
  return result


def match_further(match: PartialMatch, further: Further) -> None:
  """Decides on the further variables of the loss scales that are decided on.

  Args:
    match: The match; it has decided on loss scales.
    further: The further variables of the program.
  """
  specs = {name: source.spec for name, source in match.sources.items()}
  # Another system's loss scale has other names in the checkpoint.
  scales_there = {
    key: scale
    for scale in match.scales_there.known
    for name in scale.names
    for key in (name, match.sources[name].origin if name in specs else name)
  }
  further_there = find_further(specs, match.scales_there.known)
  for first, members in further.items():
    source = match.match.sources.get(first)
    other = scales_there.get(source.origin) if source else None
    theirs = dict(further_there.get(other.names[0], {})) if other else {}
    if other and other.api == names.CONTRIB:
      theirs[SPENT] = other.names[2]
    for base, name in members.items():
      if name not in match.wanted:
        continue
      if base in theirs:
        value = convert_counter(match.sources[theirs[base]], _COUNT)
        proof = match.match.proofs.get(first, "")
        match.set_source(name, value, "" if theirs[base] == name else proof)
      elif (
        (source.origin if source else first) == first
        and name in match.given
        and match.sources[name].spec == _COUNT
        and not match.there.belongs_to_user(name)
      ):
        match.set_source(name, match.sources[name])  # Others are missing.
      elif source or first in match.match.initialized:
        why = problems.NO_WEIGHT if source else problems.NO_SCALE
        match.initialize({name: why})


def list_dropped(
  sources: Sources, scales: Iterable[ScaleNames], api: str | None
) -> list[str]:
  """Returns the variables of loss scales that another API does not have.

  Args:
    sources: Name -> source, of all variables.
    scales: The loss scales.
    api: COMPAT or CONTRIB; None for no loss scale.
  """
  scales = list(scales)
  dropped = [] if api else [name for scale in scales for name in scale.names]
  if api != names.COMPAT:
    tensors = {name: source.spec for name, source in sources.items()}
    for members in find_further(tensors, scales).values():
      dropped += members.values()
  return dropped


def make_new(further: Iterable[str]) -> Sources:
  """Returns further variables, by name, of a loss scale before any step."""
  return {name: Literal(_COUNT.dtype, 0) for name in further}
