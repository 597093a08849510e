# SPDX-License-Identifier: Apache-2.0
"""The rule of `policies.GrowthBackoff` told once more, as an oracle for tests.

Nothing here is shared with the package. The oracle never fails at the minimum.
"""

from __future__ import annotations

from collections.abc import Container
from collections.abc import Iterable
import dataclasses
import itertools
import math
import random
from typing import Any
from typing import NamedTuple

import numpy as np

_SMALLEST = 2.0**-126


class State(NamedTuple):
  """The values of the variables of a `GrowthBackoff`."""

  current_loss_scale: float
  good_steps: int = 0
  spent_hysteresis: int = 0
  overflows: int = 0
  steps_to_overflow: int = 0
  skipped_steps: int = 0


@dataclasses.dataclass(frozen=True)
class Rule:
  """The arguments of a `GrowthBackoff`, and what a step does to its state."""

  initial_loss_scale: float = 2.0**15
  growth_factor: float = 2.0
  backoff_factor: float = 0.5
  growth_interval: int = 2000
  min_loss_scale: float | None = 1.0
  max_loss_scale: float | None = None
  hysteresis: int = 1
  refill: Container[str] = ("growth",)
  overflow_tolerance: float = 0.0
  overflow_reset: Container[str] = ("growth", "backoff")
  good_steps_after_growth: int = 0

  def start(self) -> State:
    """Returns the state before the first step."""
    return State(float(np.float32(self.initial_loss_scale)))

  def step(self, state: State, finite: bool) -> State:
    """Returns the state after a step."""
    scale, good, spent, overflows, steps, skipped = state
    if finite and good + 1 < self.growth_interval:
      return state._replace(good_steps=good + 1)
    if finite:
      scale, good = self._multiply(scale, self.growth_factor), None
      events = {"growth", "finite"}
    else:
      if "finite" in self.refill and good > 0:
        spent = 0
      if self.hysteresis > 1:
        spent += 1
      if self.overflow_tolerance > 0:
        overflows, steps = overflows + 1, steps + good + 1
      skipped, good = skipped + 1, 0
      share = overflows / steps if steps else 1.0
      if spent < self.hysteresis > 1 or share < self.overflow_tolerance:
        events = set()
      else:
        scale = self._multiply(scale, self.backoff_factor)
        events = {"backoff"}
    return State(
      scale,
      self.good_steps_after_growth if good is None else good,
      0 if any(event in self.refill for event in events) else spent,
      0 if any(event in self.overflow_reset for event in events) else overflows,
      0 if events else steps,
      skipped,
    )

  def run(self, finite: Iterable[bool]) -> list[State]:
    """Returns the state after each step of a new run."""
    states = itertools.accumulate(finite, self.step, initial=self.start())
    return list(states)[1:]

  def _multiply(self, scale: float, factor: float) -> float:
    """Returns the product within the bounds, or `scale` if it is no float32."""
    with np.errstate(over="ignore"):
      product = float(np.float32(scale * factor))
    if scale * factor < _SMALLEST or product == np.inf:
      product = scale
    least, most = self.min_loss_scale or 0.0, self.max_loss_scale or np.inf
    lowest, highest = np.float32(least), np.float32(most)
    if float(lowest) < least:
      lowest = np.nextafter(lowest, np.float32(np.inf))
    if float(highest) > most:
      highest = np.nextafter(highest, np.float32(0))
    return float(np.clip(np.float32(product), lowest, highest))


def draw_arguments(rng: random.Random) -> dict[str, Any]:
  """Returns random arguments that make much happen."""
  interval = rng.randint(1, 5)
  return {
    "initial_loss_scale": rng.choice([7.0, 8.0, 9.0]),
    "growth_factor": rng.choice([2, 2.0, 1.7, 4.0, 2.0**100]),
    "backoff_factor": rng.choice([0.5, 0.8, 1 / 3, 2.0**-100]),
    "growth_interval": interval,
    "min_loss_scale": rng.choice([None, 2.0**-126, 1e-4, 0.3, 1.0, 7.0]),
    "max_loss_scale": rng.choice([None, None, 9.0, 300.0, 2.0**127]),
    "hysteresis": rng.choice([1, 1, 2, 3]),
    "refill": tuple(
      each for each in ("growth", "backoff", "finite") if rng.random() < 0.5
    ),
    "overflow_tolerance": rng.choice([0, 0, 0.2, 0.5, 1.0]),
    "overflow_reset": tuple(
      each for each in ("growth", "backoff") if rng.random() < 0.5
    ),
    "good_steps_after_growth": rng.choice([0, 0, interval - 1]),
  }


def draw_gradients(rng: random.Random, count: int) -> list[float]:
  """Returns random gradients, some of them not finite."""
  share = rng.choice([0.05, 0.3, 0.6])
  return [
    rng.choice([math.inf, -math.inf, math.nan])
    if rng.random() < share
    else rng.choice([0.0, 2.0 ** rng.randint(-30, 10), -rng.random()])
    for _ in range(count)
  ]
