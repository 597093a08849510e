# SPDX-License-Identifier: Apache-2.0
"""Says in sentences what the log of a run shows."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import itertools

from tf_compat_lossscale.monitoring import facts
from tf_compat_lossscale.monitoring.rows import Row
from tf_compat_lossscale.monitoring.rows import RunLog

ADVICE_ON_STUCK = (
  "Look for a loss or an operation that is not finite in float16: log or "
  "division of small numbers, a softmax or a sum over many elements. Compute "
  "these in float32.",
  "Look for a learning rate that is too high, for bad input data at that step, "
  "and clip the gradients after they are unscaled.",
)
ADVICE_ON_NAN = (
  "Find the operation that makes NaN. In eager code and in tf.function, "
  "tf.debugging.enable_check_numerics() names it. In a session, make "
  "tf.compat.v1.add_check_numerics_ops() before minimize(), and fetch it with "
  "the step: it names operations of the forward pass.",
)
ADVICE_ON_RATE = (
  "Let the scale grow after more steps: a larger increment_period, or "
  "growth_interval.",
  "Let single overflows pass: policies.GrowthBackoff with a larger hysteresis, "
  "or an overflow_tolerance.",
)
_MOST_NAMES = 3


def describe_blame(row: Row, most: int) -> str:
  """Says which gradients of a step were not finite.

  Args:
    row: The step, with its blame.
    most: The most gradients to name.

  Returns:
    A text such as "1 of 12 gradients: conv/kernel: 3 inf, 0 NaN of 288, largest
    finite 1.5".
  """
  blame = row.blame or ()
  named = "; ".join(x.describe() for x in blame[:most])
  more = f"; and {len(blame) - most} more" if len(blame) > most else ""
  return f"{len(blame)} of {row.gradients} gradients: {named}{more}"


def list_some(texts: Sequence[str], most: int) -> str:
  """Returns the first texts in a line, and how many others there are."""
  more = len(texts) - most
  others = f" and {more} more" if more > 0 else ""
  return ", ".join(texts[:most]) + others


def describe_skips(log: RunLog) -> str:
  """Says how many steps were skipped."""
  if all(row.applied is None for row in log.rows):
    return "The log does not say which steps were skipped."
  return (
    f"{log.skipped} of {log.steps} steps were skipped "
    f"({log.skipped / log.steps:.2%})."
  )


def describe_range(log: RunLog) -> list[str]:
  """Says where the scale was."""
  scales = [r.loss_scale for r in log.rows if facts.is_usable(r.loss_scale)]
  growths = sum(b > a for a, b in itertools.pairwise(scales))
  falls = sum(b < a for a, b in itertools.pairwise(scales))
  return [
    f"The scale was between {facts.show_scale(min(scales))} and "
    f"{facts.show_scale(max(scales))}; it grew {_times(growths)} and fell "
    f"{_times(falls)}."
  ]


def describe_fall(fall: tuple[Row, Row, float] | None) -> list[str]:
  """Says how the scale fell, as `facts.find_fall` has it."""
  if fall is None:
    return []
  first, last, scale = fall
  history = f"{facts.show_scale(scale)} -> {facts.show_scale(last.loss_scale)}"
  if first.step == last.step:
    return [f"The scale fell {history} at step {last.step}."]
  return [
    f"The scale fell {history} between steps {first.step} and {last.step}."
  ]


def describe_culprits(rows: Sequence[Row]) -> list[str]:
  """Says which gradients were at fault."""
  culprits = facts.find_culprits(rows)
  if not culprits:
    if any(row.blame is not None for row in rows):
      return []
    return ["The log does not say which gradients were at fault (no blame)."]
  parts = []
  for c in culprits:
    counts = ((c.inf, "inf"), (c.nan, "NaN"))
    worst = " and ".join(f"{n} {what}" for n, what in counts if n)
    parts.append(
      f"{c.name} (in {len(c.steps)} of {len(rows)} steps, up to {worst or '0'} "
      f"of {c.size} elements)"
    )
  return [f"At fault: {list_some(parts, _MOST_NAMES)}."]


def describe_zeros(shares: Mapping[str, tuple[float, float]]) -> list[str]:
  """Says which gradients have most zeros.

  Args:
    shares: Name -> (share of zeros, largest scaled magnitude).
  """
  if not shares:
    return []
  ordered = sorted(shares.items(), key=lambda item: -item[1][0])
  named = [f"{name} ({zeros:.0%})" for name, (zeros, _) in ordered]
  return [f"Most zeros: {', '.join(named[:_MOST_NAMES])}."]


def quote_message(rows: Sequence[Row]) -> list[str]:
  """Repeats what the run itself said."""
  return [f"The run said: {row.stuck}" for row in rows if row.stuck][:1]


def advise_interval(log: RunLog, growths: int) -> list[str]:
  """Advises an interval in which the scale grows within a tenth of the run."""
  name, interval = facts.find_interval(log)
  fitting = max(1, log.steps // (10 * max(1, growths)))
  if interval is not None and fitting >= interval:
    return []
  return [
    f"Or let the scale grow after fewer steps: {name}={fitting} would have "
    f"brought it there within the first tenth of these {log.steps} steps."
  ]


def _times(count: int) -> str:
  """Returns how often something happened, in words."""
  return "once" if count == 1 else f"{count} times"
