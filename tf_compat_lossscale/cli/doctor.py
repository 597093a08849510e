# SPDX-License-Identifier: Apache-2.0
"""`tf-lossscale doctor`: says whether a run's loss scale is all right."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import itertools
import math
from typing import Any

from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import scalars
from tf_compat_lossscale.cli.scalars import Row

SUMMARY = "say what is wrong with the loss scale of a run"

# The last 10 steps were skipped and left the scale where it is, or the last 40
# were skipped: float16 has 40 powers of 2.
_FEW, _POWERS = 10, 40
# The share of skipped steps that is too much; it is that of the last steps,
# because a run begins by looking for a scale.
_MOST_SKIPPED, _LEAST_STEPS, _STRETCH = 0.05, 100, 1000
# From step to step, gradients differ by less than so many powers of 2.
_FAR = 8
_FLOAT32 = (
  "Look for an operation that is not finite in float16, such as a log, a "
  "division or a softmax, and compute it in float32."
)


def add_arguments(parser: errors.Parser) -> None:
  """Adds the subcommand's description and arguments to its parser."""
  parser.description = (
    "Judges the loss scale of a run by its event files: whether it is all "
    "right, and what to try. The exit status is 0 if nothing is wrong, 1 if "
    "something is, and 2 for a mistake."
  )
  scalars.add_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
  """Prints the verdict and returns the exit status."""
  rows = scalars.read(arguments)
  is_healthy, sentence, *advice = judge(rows)
  scales = [row.scale for row in rows]
  count, share = scalars.count_skipped(rows)
  print(f"{arguments.dir}: {sentence}")
  print(
    f"Steps {rows[0].step} to {rows[-1].step}, {count} of them skipped "
    f"({share:.2%}). The loss scale was {min(scales):g} to {max(scales):g}, "
    f"and is {scales[-1]:g}."
  )
  for each in advice:
    print(f"Try: {each}")
  return 0 if is_healthy else 1


def judge(rows: Sequence[Row]) -> tuple[Any, ...]:
  """Judges a run by its rows, at least one; the first rule that fits counts.

  Returns:
    Whether nothing is wrong, as far as one can tell; the verdict, a sentence;
    and sentences that say what to try.
  """
  first, last, scale = rows[0], rows[-1], rows[-1].scale
  steps = last.step - first.step
  rises = [x for a, x in itertools.pairwise(rows) if x.scale > a.scale]
  falls = [x for a, x in itertools.pairwise(rows) if x.scale < a.scale]
  wrong = [row for row in rows if not 0 < row.scale < math.inf]
  if wrong:
    return (
      False,
      f"The loss scale is {wrong[0].scale:g} at step {wrong[0].step}: it must "
      "be finite and above 0.",
      "Restore an older checkpoint, and let nothing else assign the scale.",
    )

  # Stuck.
  count = sum(1 for _ in itertools.takewhile(lambda x: x.skipped, rows[::-1]))
  end = rows[len(rows) - count :]
  if count >= _POWERS or (count > _FEW and end[-_FEW - 1].scale == scale):
    return (
      False,
      f"The run is stuck: all of the last {count} steps, from step "
      f"{end[0].step} on, were skipped, and the loss scale fell to {scale:g}.",
      "The model itself makes gradients that are not finite, so no lower scale "
      'helps. The program\'s log names them: look for "was skipped".',
      f"{_FLOAT32} tf.debugging.enable_check_numerics() finds it.",
      f"Lower the learning rate, look at the data of step {end[0].step}, and "
      "go on from a checkpoint before that step.",
    )

  if steps < _LEAST_STEPS:
    few = f"{steps} steps tell too little; {_LEAST_STEPS} are needed."
    return True, few, "If the program ended early, look at its log."
  if not rises and not falls:
    return (
      True,
      f"The loss scale is {scale:g} and never moved.",
      "If it is dynamic, wait for its growth, by default after 2000 steps.",
    )

  # It falls and does not recover.
  top = max(rows, key=lambda row: row.scale)
  is_falling = falls and falls[-1].step > first.step + steps / 2
  rises_again = rises and rises[-1].step > top.step
  if is_falling and not rises_again and top.scale >= scale * 2**_FAR:
    return (
      False,
      f"The loss scale falls and does not recover: from {top.scale:g} at step "
      f"{top.step} to {scale:g} at step {falls[-1].step}.",
      "Lower the learning rate, or clip the gradients after they are unscaled.",
      _FLOAT32,
    )

  stretch = max(_LEAST_STEPS, min(_STRETCH, steps // 2))
  count = sum(x.skipped for x in rows if x.step > last.step - stretch)
  if count >= _FEW and count > _MOST_SKIPPED * stretch:
    return (
      False,
      f"Too many steps are skipped: {count} of the last {stretch} "
      f"({count / stretch:.1%}); more than {_MOST_SKIPPED:.0%} is too often.",
      "Let the scale grow after more steps: a larger increment_period of "
      "DynamicLossScale, or growth_interval of policies.GrowthBackoff.",
      _FLOAT32,
    )

  # It is too low: it still climbs, and has met no limit.
  pace = steps / (len(rises) + 1)
  is_climbing = len(rises) > 1 and last.step - rises[-1].step <= 1.5 * pace
  has_met_a_limit = falls or any(row.skipped for row in rows)
  if is_climbing and not has_met_a_limit and scale >= first.scale * 2**_FAR:
    return (
      False,
      f"The loss scale is too low: it rose from {first.scale:g} to {scale:g} "
      "without a skipped step, and is still climbing.",
      f"Start with initial_loss_scale={scale:g}, or let the scale grow after "
      "fewer steps.",
      "If all gradients are float32, none overflows: use no loss scale.",
    )
  return True, "The loss scale is healthy."
