# SPDX-License-Identifier: Apache-2.0
"""Times steps that take turns, and compares them."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import time
from typing import Protocol

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
    seconds: How long all rounds take together, approximately.
    rounds: The least number of rounds.
    title: The title of the progress bar.

  Returns:
    Name -> the seconds of the step in each round.
  """
  names = list(steps)
  for i in range(3):  # To warm up, and to see how long a round takes.
    if i == 1:  # A graph's first run includes its optimization.
      begin = time.perf_counter()
    for name in names:
      steps[name]()
  rounds = max(rounds, int(2 * seconds / (time.perf_counter() - begin)))
  times: dict[str, list[float]] = {name: [] for name in names}
  random = np.random.default_rng(0)
  for _ in track(range(rounds), title, transient=True, console=_ERRORS):
    # The order is random, because the caches that a step leaves behind make the
    # next step faster or slower.
    for name in random.permutation(names):
      begin = time.perf_counter()
      steps[name]()
      times[name].append(time.perf_counter() - begin)
  return times


class Timed(Protocol):
  """A step that was built; a call runs the step."""

  def __call__(self) -> None:
    """Runs the step."""

  def close(self) -> None:
    """Frees what the step holds."""


def time_builds(
  names: Iterable[str],
  build: Callable[[str], Timed],
  builds: int,
  seconds: float,
  rounds: int,
  title: str,
) -> dict[str, list[list[float]]]:
  """Builds steps several times, and lets each build's steps take turns.

  Two graphs of the same step differ by a few percent, and so do two functions.

  Args:
    names: The steps.
    build: Builds the step of a name.
    builds: How often to build each step.
    seconds: How long to time all steps together, approximately.
    rounds: The least number of rounds, of all builds together.
    title: The title of the progress bar.

  Returns:
    Name -> the times of each build, in seconds.
  """
  times: dict[str, list[list[float]]] = {name: [] for name in names}
  random = np.random.default_rng(0)
  for i in range(builds):
    # The order is random, because memory is laid out in that order.
    order = map(str, random.permutation(list(times)))
    built = {name: build(name) for name in order}
    timed = take_turns(
      built, seconds / builds, -(-rounds // builds), f"{title}, build {i + 1}"
    )
    for name, step in built.items():
      times[name].append(timed[name])
      step.close()
  return times


def ratio(times: list[float], base: list[float]) -> tuple[float, float, float]:
  """Returns the ratio of two medians, and the bounds of its 95 % interval.

  The interval is found by bootstrap: rounds are drawn with replacement, and
  both times of a round stay together.
  """
  random = np.random.default_rng(0)
  low, high = np.percentile(_draw_ratios(times, base, random), [2.5, 97.5])
  return float(np.median(times) / np.median(base)), float(low), float(high)


def ratio_of_builds(
  times: list[list[float]], base: list[list[float]]
) -> tuple[float, float, float]:
  """Returns the geometric mean of ratios, and the bounds of its 95 % interval.

  Each item of the lists has the times of a build, in the order of the rounds.
  The interval is found by bootstrap: builds are drawn with replacement, then
  rounds of each drawn build.
  """
  random = np.random.default_rng(0)
  logs = np.log([_draw_ratios(t, b, random) for t, b in zip(times, base)])
  shape = (len(times), _RESAMPLES)
  builds = random.integers(0, len(times), shape)
  drawn = logs[builds, random.integers(0, _RESAMPLES, shape)].mean(axis=0)
  medians = [np.median(t) / np.median(b) for t, b in zip(times, base)]
  middle = np.log(medians).mean()
  low, high = np.percentile(drawn, [2.5, 97.5])
  return float(np.exp(middle)), float(np.exp(low)), float(np.exp(high))


def _draw_ratios(
  times: list[float], base: list[float], random: np.random.Generator
) -> np.ndarray:
  """Returns ratios of two medians, each of rounds drawn with replacement."""
  pairs = np.array([times, base])
  chosen = random.integers(0, len(times), (_RESAMPLES, len(times)))
  upper, lower = np.median(pairs[:, chosen], axis=2)
  return upper / lower
