# SPDX-License-Identifier: Apache-2.0
"""Judges in plain words whether a loss scale is all right.

The rules are pure functions, tried one after the other: what is wrong for sure
comes first. Numbers of steps are numbers of attempted steps.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import math
import statistics
from typing import Literal
from typing import TypeAlias

from tf_compat_lossscale.monitoring import facts
from tf_compat_lossscale.monitoring import phrases
from tf_compat_lossscale.monitoring import steps
from tf_compat_lossscale.monitoring import stuck
from tf_compat_lossscale.monitoring.rows import Row
from tf_compat_lossscale.monitoring.rows import RunLog
from tf_compat_lossscale.monitoring.rows import Underflow

Kind: TypeAlias = Literal[
  "healthy",
  "too_short",
  "invalid_scale",
  "nan_gradients",
  "stuck",
  "all_skipped",
  "skips_often",
  "underflow",
  "grows_slowly",
  "applied_not_finite",
  "bypassed",
]

# With fewer steps, 5 % is less than a handful.
_LEAST_STEPS = 100
# The largest gradient differs from step to step by up to so many powers of 2.
# If all stay further below the limit, then the scale could be higher.
FAR = 8
_LARGEST_FLOAT16 = 65504.0
# If fewer elements are lost, training still learns.
_MOST_LOST = 0.5
_show = facts.show_scale


@dataclasses.dataclass(frozen=True)
class Verdict:
  """What is to be said of a loss scale.

  Attributes:
    kind: 'healthy', 'too_short', 'stuck', 'all_skipped', 'nan_gradients',
      'invalid_scale', 'skips_often', 'underflow', 'grows_slowly',
      'applied_not_finite' or 'bypassed'.
    sentence: The verdict in a sentence.
    evidence: Sentences that say what shows it.
    advice: Sentences that say what to do.
  """

  kind: Kind
  sentence: str
  evidence: tuple[str, ...] = ()
  advice: tuple[str, ...] = ()

  @property
  def is_healthy(self) -> bool:
    """Whether nothing is wrong, as far as one can tell."""
    return self.kind in ("healthy", "too_short")


def judge(log: RunLog) -> Verdict:
  """Judges a run.

  Args:
    log: The log of the run.

  Returns:
    The verdict.
  """
  if not log.rows:
    return Verdict("too_short", "The log has no step yet.")
  rules: tuple[Callable[[RunLog], Verdict | None], ...] = (
    *(_judge_value, _judge_applied, _judge_bypass, _judge_minimum, _judge_end),
    *(_judge_length, _judge_rate, _judge_underflow, _judge_growth),
  )
  found = (rule(log) for rule in rules)
  verdict = next((v for v in found if v is not None), None)
  return verdict or Verdict(
    "healthy",
    f"The loss scale is healthy: it is {_show(log.rows[-1].loss_scale)} after "
    f"step {log.rows[-1].step}.",
    (
      phrases.describe_skips(log),
      *phrases.describe_range(log),
      *_describe_zeros(log),
    ),
  )


def _judge_value(log: RunLog) -> Verdict | None:
  """Finds a loss scale that is not finite or not above 0."""
  scale = log.rows[-1].loss_scale
  if facts.is_usable(scale):
    return None
  bad = [row.step for row in log.rows if not facts.is_usable(row.loss_scale)]
  return refuse(scale, f"It was not usable first after step {bad[0]}.")


def _judge_applied(log: RunLog) -> Verdict | None:
  """Finds steps that were applied though their gradients are not finite."""
  bad = [row for row in log.rows if row.applied and row.blame]
  if not bad:
    return None
  return Verdict(
    "applied_not_finite",
    f"Gradients that are not finite were applied, first seen at step "
    f"{bad[0].step}: the model's variables are lost.",
    (*phrases.describe_culprits(bad),),
    (
      "Use a dynamic loss scale, which skips such steps: a fixed one does not.",
      f"Restore a checkpoint from before step {bad[0].step}.",
      *phrases.ADVICE_ON_STUCK,
    ),
  )


def _judge_bypass(log: RunLog) -> Verdict | None:
  """Finds a run whose loss is not scaled, in its newest session."""
  for row in reversed(log.rows):
    if row.bypassed:
      break
    if row.config is not None:
      return None
  else:
    return None
  return Verdict(
    "bypassed",
    f"The loss scale, {_show(log.rows[-1].loss_scale)}, is bypassed: the loss "
    "is not scaled.",
    (
      "apply_gradients got gradients that were computed without the loss "
      f"scale, first seen at step {row.step}.",
      phrases.describe_skips(log),
      *phrases.describe_range(log),
    ),
    (
      "Compute the gradients by compute_gradients or minimize of the optimizer "
      "that has the loss scale, not by tf.gradients, a GradientTape or the "
      "inner optimizer; with Keras, use get_scaled_loss and "
      "get_unscaled_gradients.",
      "Or multiply the loss by the loss scale, and divide the gradients by it: "
      "tf_compat_lossscale.gradients.scale and unscale do so.",
    ),
  )


def refuse(scale: float, *evidence: str) -> Verdict:
  """Returns the verdict on a loss scale that cannot scale a loss."""
  return Verdict(
    "invalid_scale",
    f"The loss scale is {scale:g}, which cannot scale a loss: it must be "
    "finite and above 0.",
    evidence,
    (
      "Repair the checkpoint with tf-lossscale convert --reset, and restore "
      "that.",
      "Do not assign to the variable of the loss scale, and do not restore it "
      "from other variables.",
    ),
  )


def _judge_minimum(log: RunLog) -> Verdict | None:
  """Finds a scale that stays at its minimum while steps are skipped."""
  minimum = facts.find_minimum(log)
  start = _find_stay(log.rows, minimum)
  if start is None:
    return None
  stay = log.rows[start:]
  # The step that brought the scale to its minimum belongs to the fall.
  losses = stuck.Losses(minimum, log.rows[max(start - 1, 0)].loss_scale)
  for row in stay:
    losses.add(row)
  begin = losses.find_begin(stay[-1].step)
  if begin is None and stuck.find_end(stay):
    begin = losses.first
  if begin is None:
    return None
  lost = [row for row in stay if row.applied is False and row.step >= begin]
  steps = stay[-1].step - lost[0].step + 1
  fall = facts.find_fall(log.rows[: start + 1])
  evidence = (
    f"Of the {steps} steps since then, {len(lost)} were skipped "
    f"({len(lost) / steps:.0%}).",
    *phrases.describe_fall(fall),
    *phrases.describe_culprits(lost),
    *phrases.quote_message(lost),
  )
  sentence = (
    f"The loss scale is stuck at {_show(stay[-1].loss_scale)} since step "
    f"{lost[0].step}"
  )
  if minimum <= 1 and _have_nan(lost):
    return Verdict(
      "nan_gradients",
      f"{sentence}: the model itself makes NaN, so no loss scale can help.",
      evidence,
      (
        *phrases.ADVICE_ON_NAN,
        *phrases.ADVICE_ON_STUCK,
      ),
    )
  begin = fall[0].step if fall else log.rows[start].step
  return Verdict(
    "stuck",
    f"{sentence}.",
    evidence,
    (
      *phrases.ADVICE_ON_STUCK,
      f"Restore a checkpoint from before step {begin}; if its loss scale is "
      "low, too, use tf-lossscale convert --reset.",
    ),
  )


def _judge_end(log: RunLog) -> Verdict | None:
  """Finds a run that skips all of its last steps."""
  last = stuck.find_end(log.rows)
  if not last:
    return None
  count, scale = len(last), last[-1].loss_scale
  name = log.config.get("class_name")
  return Verdict(
    "all_skipped",
    f"All of the last {count} steps were skipped, from step {last[0].step} on, "
    f"though the loss scale, {_show(scale)}, is not at its minimum."
    if scale > facts.find_minimum(log)
    else f"All of the last {count} steps were skipped, from step "
    f"{last[0].step} on; the loss scale is {_show(scale)}.",
    (
      f"The scale was {_show(last[0].loss_scale)} after step {last[0].step}, "
      f"and {_show(scale)} after step {last[-1].step}.",
      *([f"The loss scale is a {name}."] if name else []),
      *phrases.describe_culprits(last),
      *phrases.quote_message(last),
    ),
    (
      "Use a loss scale that falls when gradients are not finite, such as "
      "DynamicLossScale or policies.GrowthBackoff, and call its update at "
      "every step."
      if stuck.stands_still(last)
      else "A scale that falls does not mend these gradients: the model makes "
      "them.",
      *phrases.ADVICE_ON_STUCK,
    ),
  )


def _judge_length(log: RunLog) -> Verdict | None:
  """Finds a run that is too short to tell."""
  if log.steps >= _LEAST_STEPS:
    return None
  return Verdict(
    "too_short",
    f"The run is too short to tell: the log has {log.steps} "
    f"{'step' if log.steps == 1 else 'steps'}, and {_LEAST_STEPS} are needed.",
    (phrases.describe_skips(log),),
  )


def _judge_rate(log: RunLog) -> Verdict | None:
  """Finds a run that loses too many steps."""
  # At its begin, a run loses steps until it has found a scale that fits.
  stretch = max(_LEAST_STEPS, min(stuck.STRETCH, log.steps // 2))
  first = log.rows[-1].step - stretch + 1
  lost = [r for r in log.rows if r.step >= first and r.applied is False]
  if len(lost) < stuck.FEW or len(lost) <= stuck.MOST_SKIPPED * stretch:
    return None
  name, interval = facts.find_interval(log)
  growth = [f"The scale grows after {interval} steps ({name})."]
  return Verdict(
    "skips_often",
    f"{len(lost)} of the last {stretch} steps were skipped "
    f"({len(lost) / stretch:.1%}): more than {stuck.MOST_SKIPPED:.0%} is too "
    "often.",
    (
      phrases.describe_skips(log),
      *(growth if interval else []),
      *phrases.describe_culprits(lost),
    ),
    phrases.ADVICE_ON_RATE,
  )


def _judge_underflow(log: RunLog) -> Verdict | None:
  """Finds gradients that become 0 though the scale could be higher."""
  later, seen = _list_later(log)
  if not seen:
    return None
  turned = statistics.median(u.unscaling for u in seen)
  if turned >= _MOST_LOST:
    return Verdict(
      "underflow",
      f"Unscaling turns {turned:.0%} of the gradients' elements to 0: float16 "
      "has no numbers so small, whatever the loss scale is.",
      ("Before they are unscaled, these elements are not 0.",),
      (
        "Keep the variables in float32, and cast them to float16 where they "
        "are used: then their gradients are float32, too.",
      ),
    )
  # A scale that met overflows cannot be higher.
  if any(row.applied is False for row in later):
    return None
  lost = statistics.median(_find_lost(u) for u in seen)
  largest = max(u.largest for u in seen)
  if not (lost >= _MOST_LOST and largest <= _LARGEST_FLOAT16 / 2**FAR):
    return None
  scale = log.rows[-1].loss_scale
  if largest > 0:
    room = math.floor(math.log2(_LARGEST_FLOAT16 / largest))
    could = f"the scale could be 2^{room} times as high"
  else:
    room = stuck.POWERS
    could = "all of them are below float16's range, or nothing is trained"
  start = facts.show_scale(min(scale * 2.0**room, 2.0**stuck.POWERS))
  return Verdict(
    "underflow",
    f"The loss scale, {_show(scale)}, is too low: {lost:.0%} of the "
    f"gradients' elements became 0, and {could}.",
    (
      f"The largest scaled gradient was {largest:.4g}, and float16 ends at "
      f"{_LARGEST_FLOAT16:g}.",
      *phrases.describe_zeros(seen[-1].gradients),
    ),
    (
      f"Start with a higher scale: initial_loss_scale={start}.",
      *phrases.advise_interval(log, room),
    ),
  )


def _list_later(log: RunLog) -> tuple[list[Row], list[Underflow]]:
  """Returns the rows of the second half, and what they say of underflow."""
  middle = log.rows[-1].step - log.steps // 2
  later = [row for row in log.rows if row.step >= middle]
  return later, [row.underflow for row in later if row.underflow]


def _find_lost(seen: Underflow) -> float:
  """Returns the share of elements that the scale is too low for.

  Older logs have zeros alone. Units that are off and words that are absent make
  zeros, too. So there it counts only if even the largest gradient is tiny.
  """
  if seen.lost is not None:
    return seen.lost
  return seen.zeros if seen.largest < steps.SMALLEST_NORMAL else 0.0


def _describe_zeros(log: RunLog) -> list[str]:
  """Says what a log cannot tell about many zeros."""
  _, seen = _list_later(log)
  unknown = [u.zeros for u in seen if u.lost is None]
  if not unknown or statistics.median(unknown) < _MOST_LOST:
    return []
  return [
    f"{statistics.median(unknown):.0%} of the gradients' elements are 0. This "
    "log, of an older release, does not tell whether units are off, words are "
    "absent, or the scale is too low."
  ]


def _judge_growth(log: RunLog) -> Verdict | None:
  """Finds a scale that is still far from its limit at the end."""
  rows = log.rows
  growths: list[Row] = []
  for before, row in zip(reversed(rows[:-1]), reversed(rows)):
    if row.applied is False or row.loss_scale < before.loss_scale:
      break
    if row.loss_scale > before.loss_scale:
      growths.insert(0, row)
      lowest = before.loss_scale
  if len(growths) < 2 or not facts.is_usable(lowest):
    return None
  powers = math.floor(math.log2(rows[-1].loss_scale / lowest))
  pace = (growths[-1].step - growths[0].step) / (len(growths) - 1)
  waits = rows[-1].step - growths[-1].step
  # A scale that stopped growing is at its maximum.
  if powers < FAR or waits > 1.5 * pace:
    return None
  scale = rows[-1].loss_scale
  if scale >= facts.find_maximum(log):
    return None
  return Verdict(
    "grows_slowly",
    f"The loss scale grows too slowly: it rose from {_show(lowest)} to "
    f"{_show(scale)}, met no overflow, and is still climbing at step "
    f"{rows[-1].step}.",
    (
      f"It grew {len(growths)} times, each {pace:.0f} steps, and a scale "
      "that fits overflows now and then.",
      phrases.describe_skips(log),
    ),
    (
      f"Start with a higher scale: initial_loss_scale={_show(scale)}.",
      *phrases.advise_interval(log, len(growths)),
      "If all gradients are float32, then no scale overflows: you need no loss "
      "scaling.",
    ),
  )


def _find_stay(rows: Sequence[Row], minimum: float) -> int | None:
  """Returns the index of the row that began the stay at the minimum.

  Returns:
    None if the scale is not at its minimum in the end.
  """
  start = None
  for i in range(len(rows) - 1, -1, -1):
    if rows[i].loss_scale > minimum:
      break
    start = i
  return start


def _have_nan(rows: Sequence[Row]) -> bool:
  """Returns whether most of the rows with blame have NaN."""
  blamed = [row.blame for row in rows if row.blame]
  return 2 * sum(any(b.nan for b in blame) for blame in blamed) > len(blamed)
