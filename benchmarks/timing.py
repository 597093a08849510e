# SPDX-License-Identifier: Apache-2.0
"""Times steps that take turns, and compares them."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import time

import numpy as np
from rich.console import Console
from rich.progress import track

_ERRORS = Console(stderr=True)
_RESAMPLES = 1000


def take_turns(
  steps: Mapping[str, Callable[[], object]],
  seconds: float,
  rounds: int,
  title: str,
) -> dict[str, list[float]]:
  """Runs the steps one after another, round by round.

  Args:
    steps: Name -> a step.
    seconds: How long that is to take, about.
    rounds: How many rounds it takes at least.
    title: What to show meanwhile.

  Returns:
    Name -> seconds of each round.
  """
  names = list(steps)
  begin = time.perf_counter()
  for _ in range(3):  # To warm up, and to see how long a round takes.
    for name in names:
      steps[name]()
  rounds = max(rounds, int(3 * seconds / (time.perf_counter() - begin)))
  times: dict[str, list[float]] = {name: [] for name in names}
  random = np.random.default_rng(0)
  for _ in track(range(rounds), title, transient=True, console=_ERRORS):
    # Who comes after whom changes, since what one leaves in the caches is the
    # next one's luck.
    for name in random.permutation(names):
      begin = time.perf_counter()
      steps[name]()
      times[name].append(time.perf_counter() - begin)
  return times


def ratio(times: list[float], base: list[float]) -> tuple[float, float, float]:
  """The ratio of two medians, and the interval that holds it in 95 % of runs.

  That is the bootstrap's: rounds are drawn again, with all that was in them.
  """
  pairs = np.array([times, base])
  chosen = np.random.default_rng(0).integers(
    0, len(times), (_RESAMPLES, len(times))
  )
  upper, lower = np.median(pairs[:, chosen], axis=2)
  low, high = np.percentile(upper / lower, [2.5, 97.5])
  return float(np.median(times) / np.median(base)), float(low), float(high)


def over_itself(times: list[float]) -> tuple[float, float, float]:
  """The same of every other round to those between: what noise makes of it."""
  pairs = len(times) // 2
  return ratio(times[: 2 * pairs : 2], times[1 : 2 * pairs : 2])


def exponent(sizes: list[int], values: list[float]) -> float:
  """The p of `values` ~ `sizes`**p, by least squares of the logarithms."""
  return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
