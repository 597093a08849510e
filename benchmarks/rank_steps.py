# SPDX-License-Identifier: Apache-2.0
"""Steps of several processes that take turns, in the same order on each."""

from __future__ import annotations

from collections.abc import Callable
import time

import numpy as np
import tensorflow as tf

from benchmarks import network

_WARM_UP = 5  # Rounds that do not count.
OWN = "TensorFlow"  # The rival to compare with.


def make_variables() -> list[tf.Variable]:
  """Returns variables for the small network, the same on each rank."""
  random = np.random.default_rng(0)
  return [
    tf.compat.v1.Variable(
      random.normal(0, 0.01, shape).astype(np.float32), use_resource=True
    )
    for shape in network.SHAPES
  ]


def take_turns(
  steps: dict[str, Callable[[], object]], rounds: int
) -> dict[str, list[float]]:
  """Returns the seconds of each step in each round, by its name.

  Args:
    steps: Functions that take a step together with the other ranks.
    rounds: The number of rounds.
  """
  times: dict[str, list[float]] = {name: [] for name in steps}
  random = np.random.default_rng(0)  # The same order on all ranks.
  for i in range(rounds + _WARM_UP):
    for name in random.permutation(list(steps)):
      begin = time.perf_counter()
      steps[name]()
      if i >= _WARM_UP:
        times[name].append(time.perf_counter() - begin)
  return times


def print_ratios(times: dict[str, list[float]], title: str) -> None:
  """Prints medians, and ratios over TensorFlow's own, round by round."""
  for name, seconds in times.items():
    ratios = np.asarray(seconds) / np.asarray(times[OWN])
    low, ratio, high = np.percentile(ratios, [25, 50, 75])
    print(
      f"{title}, {name}: {1e3 * np.median(seconds):.2f} ms, "
      f"{ratio:.3f} of TensorFlow's own ({low:.3f} to {high:.3f})",
      flush=True,
    )
