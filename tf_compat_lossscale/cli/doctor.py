# SPDX-License-Identifier: Apache-2.0
"""`tf-lossscale doctor`: says whether a run's loss scale is all right."""

from __future__ import annotations

import argparse
from collections.abc import Callable
import itertools
import json
import math
import sys
from typing import TypeAlias

from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import scalars
from tf_compat_lossscale.cli import terminal

SUMMARY = "say what is wrong with the loss scale of a run"

# The last 10 steps were skipped and left the scale where it is, or the last 40
# were skipped: float16 has 40 powers of 2.
_FEW, _POWERS = 10, 40
# The share of skipped steps that is too much; it is that of the last steps,
# because a run begins by looking for a scale.
_MOST_SKIPPED, _LEAST_STEPS, _STRETCH = 0.05, 100, 1000
# From step to step, gradients differ by less than so many powers of 2.
_FAR = 8
_PERIOD = 2000  # The good steps after which a scale grows by default.
_FLOAT32 = (
  "Look for an operation that is not finite in float16, such as a log, a "
  "division or a softmax, and compute it in float32."
)

# A name, a sentence, and sentences that say what to try.
_Verdict: TypeAlias = tuple[str, ...]
# The names of verdicts that find nothing wrong.
_HEALTHY = ("healthy", "never moved", "too few")


def add_arguments(parser: errors.Parser) -> None:
  """Adds the subcommand's description and arguments to its parser."""
  parser.description = (
    "Judges the loss scale of a run by its event files: whether it is all "
    "right, and what to try. The exit status is 0 if nothing is wrong, 1 if "
    "something is, and 2 if there is no log or for another mistake."
  )
  scalars.add_arguments(parser)
  parser.add_format()


def execute(arguments: argparse.Namespace) -> int:
  """Prints the verdict and returns the exit status."""
  log = scalars.read(arguments)
  name, sentence, *advice = judge(log)
  scales = [row.scale for row in log.rows]
  scales = [min(scales), max(scales), scales[-1]]
  count, share, words = log.count_skipped()
  first, end = log.rows[0].step, log.rows[-1].step
  if arguments.format == "json":
    finite = [x if math.isfinite(x) else str(x) for x in scales]  # As JSON.
    result = {
      "verdict": name,
      "healthy": name in _HEALTHY,
      "log": log.name,
      "sentence": sentence,
      "steps": [first, end],
      "skipped": {"count": count, "share": share, "at_least": bool(words)},
      "scales": dict(zip(("lowest", "highest", "last"), finite)),
      "advice": advice,
      "notes": log.notes,
    }
    print(json.dumps(result, indent=2))
  else:
    printer = terminal.Printer(sys.stdout)
    for line in (
      f"{log.name}: {sentence}",
      f"Steps {first} to {end}, {words}{count} of them skipped ({share:.2%}). "
      "The loss scale was {:g} to {:g}, and is {:g}.".format(*scales),
      *(f"Try: {x}" for x in advice),
      *log.notes,
    ):
      printer.print(line)
  return 0 if name in _HEALTHY else 1


def judge(log: scalars.Log) -> _Verdict:
  """Returns what the first rule that fits says."""
  facts = _Facts(log)
  found = (rule(facts) for rule in _RULES)
  return next(filter(None, found), ("healthy", "The loss scale is healthy."))


class _Facts:
  """What several rules ask of a log: rows, and those that moved the scale."""

  def __init__(self, log: scalars.Log) -> None:
    self.rows, self.tells_skips = log.rows, log.tells_skips
    self.first, self.last = log.rows[0], log.rows[-1]
    self.scale = self.last.scale
    self.steps = self.last.step - self.first.step
    self.pairs = [*itertools.pairwise(log.rows)]
    self.rises = [row for old, row in self.pairs if row.scale > old.scale]
    self.falls = [row for old, row in self.pairs if row.scale < old.scale]
    self.has_skips = bool(self.falls) or any(row.skipped for row in self.rows)


def _judge_values(facts: _Facts) -> _Verdict | None:
  row = next((x for x in facts.rows if not 0 < x.scale < math.inf), None)
  return row and (
    "not usable",
    f"The loss scale is {row.scale:g} at step {row.step}: it must be finite "
    "and above 0.",
    "Restore an older checkpoint, and let nothing else assign the scale.",
  )


def _judge_stuck_end(facts: _Facts) -> _Verdict | None:
  end: list[scalars.Row] = []
  for old, row in reversed(facts.pairs):
    if row.skipped < row.step - old.step:
      break
    end.append(row)
  count = sum(row.skipped for row in end)
  stays = len(end) > _FEW and end[_FEW].scale == facts.scale
  if count < _POWERS and not stays:
    return None
  begin = end[-1].step - end[-1].skipped + 1
  return (
    "stuck",
    f"The run is stuck: all of the last {count} steps, from step {begin} on, "
    f"were skipped, and the loss scale fell to {facts.scale:g}.",
    "The model itself makes gradients that are not finite, so no lower scale "
    'helps. The program\'s log names them: look for "skipped".',
    f"{_FLOAT32} tf.debugging.enable_check_numerics() finds it.",
    f"Lower the learning rate, look at the data of step {begin}, and go on "
    "from a checkpoint before that step.",
  )


def _judge_stuck_floor(facts: _Facts) -> _Verdict | None:
  """Judges a scale that fell to its lowest value, or began at 1, and stays.

  There, a skipped step does not change the scale. So a log of the scale alone
  does not tell the skipped steps from the good ones.
  """
  if facts.tells_skips or not (facts.falls or facts.scale <= 1):
    return None
  moves = [x for old, x in facts.pairs if x.scale != old.scale]
  growths = (
    row.step - old.step
    for old, row in itertools.pairwise(moves)
    if row.scale > old.scale
  )
  # A log that lacks steps may show a growth late.
  gap = max((row.step - old.step for old, row in facts.pairs), default=0)
  limit = min(growths, default=_PERIOD) + gap
  start = (facts.falls[-1] if facts.falls else facts.first).step
  since = facts.last.step - start
  lowest = min(row.scale for row in facts.rows)
  if facts.scale > lowest or since <= limit:
    return None
  how = f"fell to {lowest:g}, its lowest value, at step {start}"
  if not facts.falls:
    how = f"was {lowest:g} at the first step of the log, {start}"
  return (
    "stuck",
    f"The run is stuck: the loss scale {how}, and did not grow in the {since} "
    f"steps since. So at least one step of {limit} was skipped, if not all.",
    "Watch the run by LossScaleHook, LossScaleCallback, or tf-lossscale run "
    "--watch, which count the skipped steps and name the gradients.",
    _FLOAT32,
  )


def _judge_length(facts: _Facts) -> _Verdict | None:
  if facts.steps >= _LEAST_STEPS:
    return None
  few = f"{facts.steps} steps tell too little; {_LEAST_STEPS} are needed."
  return "too few", few, "If the program ended early, look at its log."


def _judge_rest(facts: _Facts) -> _Verdict | None:
  if facts.rises or facts.has_skips:
    return None
  return (
    "never moved",
    f"The loss scale is {facts.scale:g} and never moved.",
    f"If it is dynamic, it grows by default after {_PERIOD} good steps.",
  )


def _judge_falls(facts: _Facts) -> _Verdict | None:
  scale, rises, falls = facts.scale, facts.rises, facts.falls
  top = max(facts.rows, key=lambda row: row.scale)
  half = facts.first.step + facts.steps / 2
  # At its floor, a scale may go on to fall, and this does not show.
  is_hidden = scale <= 1 and not facts.tells_skips
  is_falling = falls and (is_hidden or falls[-1].step > half)
  rises_again = rises and rises[-1].step > top.step
  if not is_falling or rises_again or top.scale < scale * 2**_FAR:
    return None
  return (
    "falls",
    f"The loss scale falls and does not recover: from {top.scale:g} at step "
    f"{top.step} to {scale:g} at step {falls[-1].step}.",
    "Lower the learning rate, or clip the gradients after they are unscaled.",
    _FLOAT32,
  )


def _judge_share(facts: _Facts) -> _Verdict | None:
  stretch = max(_LEAST_STEPS, min(_STRETCH, facts.steps // 2))
  begin = facts.last.step - stretch
  count = sum(x.skipped for x in facts.rows if x.step > begin)
  if count < _FEW or count <= _MOST_SKIPPED * stretch:
    return None
  words = "" if facts.tells_skips else "at least "
  return (
    "skips too often",
    f"Too many steps are skipped: {words}{count} of the last {stretch} "
    f"({count / stretch:.1%}); more than {_MOST_SKIPPED:.0%} is too often.",
    "Let the scale grow after more steps: a larger increment_period of "
    "DynamicLossScale, or growth_interval of policies.GrowthBackoff.",
    _FLOAT32,
  )


def _judge_climb(facts: _Facts) -> _Verdict | None:
  """Judges a scale that still climbs, and has met no limit: it is too low."""
  first, scale, rises = facts.first, facts.scale, facts.rises
  pace = facts.steps / (len(rises) + 1)
  is_climbing = (
    len(rises) > 1 and facts.last.step - rises[-1].step <= 1.5 * pace
  )
  if facts.has_skips or not is_climbing or scale < first.scale * 2**_FAR:
    return None
  return (
    "too low",
    f"The loss scale is too low: it rose from {first.scale:g} to {scale:g} "
    "without a skipped step, and is still climbing.",
    f"Start with initial_loss_scale={scale:g}, or let the scale grow after "
    "fewer steps.",
    "If all gradients are float32, none overflows: use no loss scale.",
  )


_RULES: tuple[Callable[[_Facts], _Verdict | None], ...] = (
  *(_judge_values, _judge_stuck_end, _judge_stuck_floor, _judge_length),
  *(_judge_rest, _judge_falls, _judge_share, _judge_climb),
)
