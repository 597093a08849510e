# SPDX-License-Identifier: Apache-2.0
"""Brings other systems' loss scalers to `DynamicLossScale`'s variables.

    tf_cnn_benchmarks        loss_scale, loss_scale_normal_steps
    OpenSeq2Seq's Backoff    scale, (iteration - last_overflow) mod window
    OpenSeq2Seq's LogMax     scale
    THUMT                    scale, (iter - overflow_iter) mod window
                          -> current_loss_scale, good_steps

The result is a checkpoint's sources by the names that compat.v1 has, which
`layouts/matching.py` and `layouts/by_name.py` then treat as those of any other
checkpoint. Float32 masters take the place of their float16 weights.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import math
from typing import NamedTuple
from typing import TypeVar

import numpy as np

from tf_compat_lossscale._core.arguments import check_share
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec
from tf_compat_lossscale.checkpoint.files.values import Literal
from tf_compat_lossscale.checkpoint.files.values import Source
from tf_compat_lossscale.checkpoint.files.values import Sources
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts import policy_weights
from tf_compat_lossscale.checkpoint.layouts import scalers
from tf_compat_lossscale.checkpoint.layouts.match import is_unchanged
from tf_compat_lossscale.checkpoint.layouts.match import Match
from tf_compat_lossscale.checkpoint.layouts.scalers import Foreign
from tf_compat_lossscale.checkpoint.layouts.scalers import Scaler

_SCALE, _GOOD = names.SCALE_TENSORS[names.COMPAT]
_RACE = (
  "its programs did not order the increment of the iteration before its "
  "readers, so the count of good steps may be one too many"
)
_NO_GRAPH = (
  "the rule's constants are in the MetaGraph alone (the '.meta' file), which "
  "is missing, so they must come from the program's settings"
)
# The scope in which tf_cnn_benchmarks applies the gradients of each replica.
_APPLIES = "append_apply_gradient_ops/"
_Name = TypeVar("_Name", str, str | None)


class Rule(NamedTuple):
  """The loss scales of this package that have a scaler's rule.

  Attributes:
    arguments: The arguments of DynamicLossScale, as far as they are known.
    policy: The loss scale that has the rule, as Python code; "" if unknown.
    notes: What neither can express, or what is not known, in sentences.
  """

  arguments: dict[str, float]
  policy: str
  notes: tuple[str, ...]


def count_good_steps(
  scaler: Scaler, read: Callable[[str], float | int]
) -> int | None:
  """Computes the good steps that DynamicLossScale would have counted.

  Args:
    scaler: The scaler.
    read: Role of a variable -> its value.

  Returns:
    The number; None if the variables do not show it.
  """
  if scaler.system == scalers.TF_CNN:
    return int(read("good_steps"))
  if scaler.kind == scalers.LOG_MAX:
    return None
  iteration, last = int(read("iteration")), int(read("last_overflow"))
  since = iteration - last
  if since < 0:
    return None  # The variables are not those of a run.
  if scaler.constants.window is not None:
    return since % scaler.constants.window
  if scaler.system == scalers.THUMT:
    # The scale grows at each window's end, and its last change is known.
    changed = int(read("last_change"))
    return iteration - changed if changed > max(last, 0) else since
  return 0 if since == 0 else None


def find_rule(scaler: Scaler) -> Rule:
  """Finds the loss scales of this package that have a scaler's rule."""
  constants = scaler.constants
  if scaler.kind == scalers.LOG_MAX:
    return Rule(
      {},
      "",
      (
        "LogMax follows the mean and the deviation of the gradients' "
        "logarithms; no loss scale has this rule, so only its present scale "
        "can be taken over",
        *(_note_bounds(scaler) if constants.are_known else [_NO_GRAPH]),
      ),
    )
  notes = []
  arguments: dict[str, float] = {}
  policy: dict[str, float | str | None] = {}
  if constants.window is not None:
    is_tf_cnn = scaler.system == scalers.TF_CNN
    arguments["increment_period"] = constants.window + is_tf_cnn
    policy["growth_interval"] = constants.window + is_tf_cnn
  elif constants.are_known:
    notes.append("the graph has no constant for the window of good steps")
  if constants.growth is not None and constants.divisor is not None:
    arguments["multiplier"] = constants.growth
    policy["growth_factor"] = constants.growth
    policy["backoff_factor"] = 1 / constants.divisor
    if constants.growth != constants.divisor:
      notes.append(
        f"DynamicLossScale has one multiplier, but the scale grows by "
        f"{constants.growth:g} and falls by {constants.divisor:g}: "
        "policies.GrowthBackoff has both"
      )
    if math.frexp(constants.divisor)[0] != 0.5:
      notes.append(
        f"the scale is divided by {constants.divisor:g}, which is no power of "
        "2, and multiplied by its reciprocal here: the last bit may differ"
      )
  if not constants.are_known:
    notes.append(_NO_GRAPH)
  else:
    policy["min_loss_scale"] = constants.lower
    if constants.upper is not None:
      policy["initial_loss_scale"] = constants.upper
      policy["max_loss_scale"] = constants.upper
    notes += _note_bounds(scaler)
  if scaler.system == scalers.THUMT:
    notes += _note_tolerance(scaler, policy)
    notes.append(
      "after an overflow, THUMT's optimizer applies zeros: slots decay, and "
      "weights and global_step move. A loss scale here skips the step"
    )
  if constants.places > 1:
    notes.append(
      f"the graph changes the scale at {constants.places} places, one for each "
      "replica, so it may fall and grow several times in a step; nothing here "
      "does"
    )
  if constants.has_own_floor:
    notes.append(
      "the graph reads the scale for its minimum without an order, so it may "
      "have lost a fall now and then; nothing here does"
    )
  if scaler.system == scalers.TF_CNN:
    notes.append("its global_step counts steps with overflow too")
  else:
    notes.append(_RACE)
  code = ", ".join(f"{name}={_show(value)}" for name, value in policy.items())
  can_tell = constants.are_known and constants.window is not None
  return Rule(
    arguments,
    f"policies.GrowthBackoff({code})" if can_tell else "",
    tuple(notes),
  )


def note_value(scale: float) -> tuple[str, ...]:
  """Returns a sentence if a present scale is below DynamicLossScale's minimum.

  Args:
    scale: The scale.
  """
  if not scale < 1:
    return ()
  return (
    f"the present scale {scale:.9g} is below DynamicLossScale's minimum: it "
    "stays until it changes, and the next overflow sets it to 1",
  )


def _show(value: float | str | None) -> str:
  """Returns an argument's value as Python code."""
  if not isinstance(value, float):
    return str(value)
  short = f"{value:.9g}"
  return short if float(short) == value else repr(value)


def _note_bounds(scaler: Scaler) -> Iterator[str]:
  """Yields sentences on bounds that DynamicLossScale does not have."""
  constants = scaler.constants
  if constants.upper is not None:
    yield (
      "DynamicLossScale has no maximum, but this scale stays at "
      f"{constants.upper:g} or below"
    )
  if constants.lower is None:
    yield (
      "DynamicLossScale does not fall below 1, but this scale has no minimum"
    )
  elif constants.lower != 1:
    yield (
      "DynamicLossScale's minimum is 1, but this scale stays at "
      f"{constants.lower:g} or above"
    )


def _note_tolerance(
  scaler: Scaler, policy: dict[str, float | str | None]
) -> Iterable[str]:
  """Adds THUMT's tolerance to a policy's arguments; yields sentences."""
  limit = scaler.constants.tolerance
  if limit is None:
    if scaler.constants.are_known:
      yield "the graph has no constant for the tolerance of overflows"
    return
  yield (
    f"DynamicLossScale falls at each overflow, but this scale only if more "
    f"than {limit:g} of the steps since its last change had one"
  )
  # The scale falls above the limit, and GrowthBackoff's from its tolerance on.
  above = 0.0 if limit <= 0 else _find_next(limit)
  try:
    check_share("tolerance", above)
  except ValueError:
    yield f"no policy has the tolerance {limit:g}"
    return
  policy["overflow_tolerance"] = above
  policy["overflow_reset"] = '"backoff"'


def _find_next(limit: float) -> float:
  """Returns the number halfway to float32's next above `limit`."""
  step = 2.0 ** (math.frexp(limit)[1] - 24)
  return float(f"{float(np.float32(limit)) + step / 2:.9g}")


@dataclasses.dataclass
class Bridge:
  """A checkpoint of another system by the names of compat.v1.

  Attributes:
    stored: Name in the checkpoint -> source.
    sources: New name -> source.
    renamed: Name in the checkpoint -> its new name; None if another variable
      has the new name that was its own.
    proofs: Name in the checkpoint -> how it was found.
    used: The names in the checkpoint whose values were used, besides the
      origins of sources.
    notes: What could not be taken over, in sentences.
  """

  stored: Sources
  sources: Sources
  renamed: dict[str, str | None] = dataclasses.field(default_factory=dict)
  proofs: dict[str, str] = dataclasses.field(default_factory=dict)
  used: set[str] = dataclasses.field(default_factory=set)
  notes: list[str] = dataclasses.field(default_factory=list)

  def rename(self, old: str, new: str, proof: str) -> None:
    """Gives a source another name, in place of one that has the name."""
    if new == old or old not in self.sources:
      return
    if new in self.sources:
      self.renamed[new] = None
    self.sources[new] = self.sources.pop(old)
    self.renamed[old] = new
    self.proofs[old] = proof

  def translate_mapping(self, mapping: Mapping[str, _Name]) -> dict[str, _Name]:
    """Returns a caller's mapping with the new names of the checkpoint.

    Args:
      mapping: Variable -> its name in the checkpoint. A variable that the
        bridge left out is a source again.
    """
    result = dict(mapping)
    for here, name in mapping.items():
      if name is None or name not in self.stored:
        continue
      new = self.renamed.get(name)
      if new is not None and name not in self.used:
        result[here] = new
      elif name not in self.sources:
        self.sources[name] = self.stored[name]
    return result

  def complete(self, match: Match) -> None:
    """Adds the bridge's proofs and notes to a match with its sources."""
    for name, source in match.sources.items():
      if source.origin in self.proofs and not is_unchanged(name, source):
        match.proofs[name] = self.proofs[source.origin]
    taken = {source.origin for source in match.sources.values()}
    is_taken = any(
      new == _SCALE and old in taken for old, new in self.renamed.items()
    )
    is_missed = not self.used and any(
      names.get_base(name) == _SCALE for name in match.initialized
    )
    if is_taken or is_missed:
      match.notes = tuple(self.notes)
    if is_taken:
      taken |= self.used
    given = {source.origin for source in self.stored.values()}
    match.unused = tuple(sorted(given - taken)) if self.proofs else match.unused


def bridge_foreign(
  foreign: Foreign,
  sources: Sources,
  wanted: Mapping[str, TensorSpec] | None = None,
) -> Bridge:
  """Gives the variables of another system the names of compat.v1.

  Args:
    foreign: The scaler and the masters.
    sources: Name -> tensor.
    wanted: The program's variables: name -> dtype and shape. Variables of the
      other system that the program has itself keep their names. None for a new
      checkpoint.

  Returns:
    The bridge.
  """
  bridge = Bridge(sources, dict(sources), notes=list(foreign.hints))
  ours = wanted or {}

  def is_own(name: str) -> bool:
    return name in ours and ours[name] == sources[name].spec

  scaler = foreign.scaler
  is_new = any(
    names.get_base(name) == _SCALE and name not in sources for name in ours
  )
  if scaler and (is_new or not all(map(is_own, scaler.names.values()))):
    _bridge_scale(bridge, scaler, ours)
    _rename_powers(bridge, foreign.title, ours, "cond_1/")
    if scaler.system == scalers.TF_CNN:
      _rename_replicas(bridge, ours)
  elif not scaler and foreign.masters:  # The scale was fixed.
    _rename_powers(bridge, foreign.title, ours, "")
  _bridge_masters(bridge, foreign, sources, wanted)
  return bridge


def _bridge_scale(
  bridge: Bridge, scaler: Scaler, ours: Mapping[str, TensorSpec]
) -> None:
  """Replaces the scaler's variables by those of DynamicLossScale."""

  def get(role: str) -> Source:
    return bridge.sources[scaler.names[role]]

  good = count_good_steps(scaler, lambda role: get(role).read_scalar())
  rule = find_rule(scaler)
  sums = [n for n in bridge.sources if n.endswith("/MultiStepOptimizer")]
  if scaler.system == scalers.THUMT and sums:
    bridge.notes.append(
      f"{scaler.title}: {len(sums)} sums of gradients, such as {sums[0]}, are "
      "of an accumulation that was under way; its window counts micro-batches"
    )
  last = scaler.names.get("good_steps") or scaler.names.get("last_overflow")
  left = {role: bridge.sources[name] for role, name in scaler.names.items()}
  counts = _make_counts(scaler, left)
  below = note_value(float(get("scale").read_scalar()))
  bridge.notes += [f"{scaler.title}: {note}" for note in rule.notes + below]
  if rule.policy:
    bridge.notes.append(f"{scaler.title}: its rule is that of {rule.policy}")
  bridge.rename(scaler.names["scale"], _SCALE, _describe(scaler, "scale"))
  for role, name in scaler.names.items():
    if role != "scale":
      bridge.sources.pop(name, None)
      bridge.used.add(name)
  if last:
    bridge.renamed[last] = _GOOD
  if good is not None:
    bridge.sources[_GOOD] = Literal("int64", good, origin=last or "")
    bridge.proofs[last or ""] = _describe(scaler, "good")
  else:
    bridge.sources[_GOOD] = Literal("int64", 0)
    if scaler.kind != scalers.LOG_MAX:
      bridge.notes.append(
        f"{scaler.title}: the number of good steps is that since the last "
        "overflow modulo the window, and nothing shows the window; it starts "
        "from 0"
      )
  if bridge.sources.keys().isdisjoint(counts):
    bridge.sources.update(counts)


def _make_counts(scaler: Scaler, sources: Sources) -> Sources:
  """Returns the counts that GrowthBackoff has beside the good steps.

  Only THUMT counts overflows. The other counts start from 0.
  """
  if scaler.kind == scalers.LOG_MAX:
    return {}
  counts = policy_weights.make_new(policy_weights.COUNTS)
  if not {"overflows", "last_overflow", "last_change"} <= sources.keys():
    return counts
  overflows, last, changed = (
    int(sources[role].read_scalar())
    for role in ("overflows", "last_overflow", "last_change")
  )
  # Before the first change, THUMT counts from iteration 0, but its first
  # overflow is -1, so that this count may be -1.
  steps = last - changed if changed <= max(last, 0) else 0
  return counts | {
    "overflows": Literal("int64", overflows, scaler.names["overflows"]),
    "steps_to_overflow": Literal("int64", steps, scaler.names["last_change"]),
  }


def _describe(scaler: Scaler, what: str) -> str:
  """Returns how a variable of a loss scale was found."""
  if what == "scale" or scaler.system == scalers.TF_CNN:
    return f"of {scaler.title}; {scaler.proof}"
  iteration, last = (
    scaler.names[role] for role in ("iteration", "last_overflow")
  )
  window = scaler.constants.window
  modulus = f" modulo {window}" if window is not None else ""
  return (
    f"of {scaler.title}: {iteration} - {last}{modulus}, perhaps 1 too many; "
    f"{scaler.proof}"
  )


def _rename_powers(
  bridge: Bridge, title: str, ours: Mapping[str, TensorSpec], scope: str
) -> None:
  """Gives Adam's powers the scope in which compat.v1 makes them."""
  powers = [n for n, s in bridge.sources.items() if names.is_power(n, s.spec)]
  for base, found in names.group(powers, names.get_base).items():
    first, *others = names.sort_names(found)
    if ours.keys() & found or not _are_equal(bridge.sources[n] for n in found):
      continue
    if others and not all(_APPLIES in name for name in found):
      continue  # They are those of several optimizers.
    new = f"{scope}{base}"
    alone = "the only" if not others else "the replicas' common"
    bridge.rename(first, new, f"{alone} {base} of {title}")
    for name in others:
      del bridge.sources[name]


def _are_equal(sources: Iterable[Source]) -> bool:
  """Returns whether scalars have one value."""
  return len({source.read_scalar() for source in sources}) == 1


def _rename_replicas(bridge: Bridge, ours: Mapping[str, TensorSpec]) -> None:
  """Renames weights of the first replica, if the program has one or no copy."""
  starts = {name.partition("/")[0] for name in ours}
  for old, new in (("v0", "v"), ("v", "v0")):
    if new in starts and old not in starts:
      for name in list(bridge.sources):
        other = f"{new}{name.removeprefix(old)}"
        if name.startswith(f"{old}/") and other not in bridge.sources:
          bridge.rename(name, other, "the first replica's")


def _bridge_masters(
  bridge: Bridge,
  foreign: Foreign,
  sources: Sources,
  wanted: Mapping[str, TensorSpec] | None,
) -> None:
  """Puts masters in place of float16 weights, and gives slots their names."""
  if not foreign:
    return
  ours = wanted or {}
  slots = {
    (primary, names.split_scope(slot)[1]): slot
    for slot, primary in names.find_slots(ours)
  }
  there = list(names.find_slots(sources))
  weights = {master: weight for weight, master in foreign.masters.items()}
  for weight, master in foreign.masters.items():
    spec = ours.get(weight)
    if master in ours or (spec and spec.dtype != "float32"):
      weights.pop(master)
      continue
    proof = f"the float32 master of {weight}, which is float16 there"
    bridge.rename(master, weight, proof)
  scopes = {
    name.rpartition(f"{scalers.MASTERS}/")[0]
    for name in foreign.masters.values()
  }
  if foreign.scaler and foreign.scaler.scope:
    scopes.add(foreign.scaler.scope)
  for slot, primary in there:
    weight = weights.get(primary, primary)
    last = names.split_scope(slot)[1]
    is_theirs = any(slot == f"{scope}{primary}/{last}" for scope in scopes)
    is_known = (weight, last) in slots or primary in weights
    if slot in ours or not (is_known or is_theirs):
      continue
    new = slots.get((weight, last), f"{weight}/{last}")
    bridge.rename(slot, new, f"the slot of {weight} in {foreign.title}")
