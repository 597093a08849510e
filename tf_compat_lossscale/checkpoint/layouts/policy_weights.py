# SPDX-License-Identifier: Apache-2.0
"""Finds the variables that `policies` have beside those of DynamicLossScale.

    DynamicLossScale      GrowthBackoff         LogNormal
    current_loss_scale    current_loss_scale    current_loss_scale
    good_steps            good_steps            good_steps
                          spent_hysteresis      observations
                          overflows             log2_mean
                          steps_to_overflow     log2_variance
                          skipped_steps         ceiling
                                                skipped_steps

So a loss scale of one class is restored from a checkpoint of another: what the
other does not have starts from its initial value. tf.contrib's `bad_steps` are
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
from tf_compat_lossscale.policies import float32
from tf_compat_lossscale.policies import growth_backoff_rule
from tf_compat_lossscale.policies import log_normal_rule

SPENT, SKIPPED = "spent_hysteresis", "skipped_steps"
_COUNT = TensorSpec("int64", ())
_SPECS = {
  SPENT: _COUNT,
  "overflows": _COUNT,
  "steps_to_overflow": _COUNT,
  SKIPPED: _COUNT,
  "observations": _COUNT,
  "log2_mean": TensorSpec("float64", ()),
  "log2_variance": TensorSpec("float64", ()),
  "ceiling": TensorSpec("float32", ()),
}
# The base names of the variables that only policies have.
FURTHER = tuple(sorted(_SPECS))
# Those of each policy: all but current_loss_scale and good_steps.
COUNTS = growth_backoff_rule.State._fields[2:]
_CLASSES = (COUNTS, log_normal_rule.State._fields[2:])
# The values of a loss scale that has counted no steps yet, if not 0.
_NEW_VALUES = {"ceiling": float32.LARGEST_POWER}

# The first name of a loss scale -> the base names of its further variables ->
# their names.
Further = Mapping[str, Mapping[str, str]]


def find_further(
  tensors: Mapping[str, TensorSpec], scales: Iterable[ScaleNames]
) -> Further:
  """Finds the further variables of loss scales, by name.

  In a scope with several loss scales, variables belong together in the order
  of their numbers. If a scope has policies and other loss scales, the names do
  not show which are which, and nothing is found there.

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
    if scope in by_scope and _SPECS.get(base) == tensor:
      found.setdefault((scope, base), []).append((number, name))
  result: dict[str, dict[str, str]] = {}
  for scope, members in by_scope.items():
    for bases in _CLASSES:
      lists = [sorted(found.get((scope, base), [])) for base in bases]
      if {len(each) for each in lists} == {len(members)}:
        for scale, *further in zip(members, *lists):
          result[scale.names[0]] = {
            base: name for base, (_, name) in zip(bases, further)
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
        value = convert_counter(match.sources[theirs[base]], _SPECS[base])
        proof = match.match.proofs.get(first, "")
        match.set_source(name, value, "" if theirs[base] == name else proof)
      elif (
        (source.origin if source else first) == first
        and name in match.given
        and match.sources[name].spec == _SPECS[base]
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


def get_new_value(base: str) -> float:
  """Returns the value of a further variable before the first step."""
  return _NEW_VALUES.get(base, 0)


def make_new(further: Mapping[str, str]) -> Sources:
  """Returns the further variables of a loss scale that has counted no steps.

  Args:
    further: Base name -> name.
  """
  return {
    name: Literal(_SPECS[base].dtype, get_new_value(base))
    for base, name in further.items()
  }
