# SPDX-License-Identifier: Apache-2.0
"""The rule of `LogNormal` in plain Python, without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
import functools
import math
import statistics
from typing import Any
from typing import ClassVar
from typing import NamedTuple

from tf_compat_lossscale._core import arguments
from tf_compat_lossscale.policies import checks
from tf_compat_lossscale.policies import float32

_FLOAT16_LARGEST = 65504.0


class State(NamedTuple):
  """The state of a `LogNormal`: its weights, by their names.

  Attributes:
    current_loss_scale: The loss scale, a number of float32.
    good_steps: The consecutive finite steps since the last step that was not
      finite, or since the ceiling last rose.
    observations: The steps that the averages are made of.
    log2_mean: The average of log2 of the largest gradient.
    log2_variance: The average of the squared errors of `log2_mean` as a
      prediction of the next step's value.
    ceiling: The highest scale that the rule may choose, within the bounds;
      2**127 if nothing has overflowed.
    skipped_steps: All steps of the run that were not finite.
  """

  current_loss_scale: float
  good_steps: int
  observations: int
  log2_mean: float
  log2_variance: float
  ceiling: float
  skipped_steps: int


@dataclasses.dataclass(frozen=True)
class LogNormalRule(checks.CheckedRule):
  """A loss scale that follows the largest gradient.

  The rule, with the state's names shortened; `largest` is the largest |g| of
  all unscaled gradients, and `z` is the quantile of the normal distribution
  that a value exceeds with the probability `overflow_probability`:

  ```
  if all gradients are finite:
    if good_steps + 1 >= recovery_interval:
      ceiling = min(2 * ceiling, 2**127)
      good_steps = 0
    else:
      good_steps += 1
    if largest > 0:
      x = log2(largest)
      error = x - mean if observations > 0 else 0
      n = observations
      a = max(1 - mean_decay, 1 / (n + 1))
      b = max(1 - variance_decay, 1 / n) if n > 0 else 0
      mean = mean + a * error if n > 0 else x
      variance = (1 - b) * (variance + b * error ** 2)
      observations += 1
    if observations >= warmup_steps:
      power = floor(log2(limit) - mean - z * sqrt(variance))
      scale = clip(min(2 ** power, ceiling), min_loss_scale, max_loss_scale)
  else:
    scale = ceiling = max(scale * backoff_factor, min_loss_scale)
    good_steps = 0
    skipped_steps += 1
  ```

  `LogNormal` documents the arguments.
  """

  initial_loss_scale: float = 2.0**15
  overflow_probability: float = 0.001
  limit: float = _FLOAT16_LARGEST
  mean_decay: float = 0.99
  variance_decay: float = 0.999
  warmup_steps: int = 20
  backoff_factor: float = 0.5
  recovery_interval: int = 200
  min_loss_scale: float = 1.0
  max_loss_scale: float = 2.0**24

  _CHECKS: ClassVar = {
    "initial_loss_scale": checks.check_scale,
    "limit": checks.check_scale,
    "min_loss_scale": checks.check_scale,
    "max_loss_scale": checks.check_scale,
    "overflow_probability": arguments.check_backoff,
    "mean_decay": arguments.check_backoff,
    "variance_decay": arguments.check_backoff,
    "backoff_factor": arguments.check_backoff,
    "warmup_steps": arguments.check_steps,
    "recovery_interval": arguments.check_steps,
  }

  @functools.cached_property
  def log2_limit(self) -> float:
    """log2 of the limit."""
    return math.log2(self.limit)

  @functools.cached_property
  def quantile(self) -> float:
    """The standard deviations between the mean and the limit."""
    # Of a small probability, 1 minus it would lose digits.
    return -statistics.NormalDist().inv_cdf(self.overflow_probability)

  def start(self) -> State:
    """Returns the state of a new run."""
    scale = float32.round_nearest(self.initial_loss_scale)
    return State(
      current_loss_scale=self.clip(scale),
      good_steps=0,
      observations=0,
      log2_mean=0.0,
      log2_variance=0.0,
      ceiling=float32.LARGEST_POWER,
      skipped_steps=0,
    )

  def step(self, state: State, largest: float | None) -> State:
    """Returns the state after a step.

    Args:
      state: The state before the step.
      largest: The largest |g| of all unscaled gradients; an infinity or a NaN
        if they are not finite; None if they are finite and the largest is
        unknown.
    """
    if largest is not None and not math.isfinite(largest):
      return self._back_off(state)
    state = self._count(state)
    if largest:
      state = self._observe(state, largest)
    if state.observations < self.warmup_steps:
      return state
    power = math.floor(
      self.log2_limit
      - state.log2_mean
      - self.quantile * math.sqrt(state.log2_variance)
    )
    power = min(max(power, float32.LEAST_EXPONENT), float32.LARGEST_EXPONENT)
    scale = min(math.ldexp(1.0, power), state.ceiling)
    return state._replace(current_loss_scale=self.clip(scale))

  def simulate(self, finite: Iterable[float | bool]) -> list[float]:
    """Returns the loss scale after each step of a run.

    The run starts from the arguments of the policy.

    Args:
      finite: For each step, the largest |g| of all unscaled gradients, an
        infinity or a NaN if they are not finite. Or a bool: whether the
        gradients are finite. True leaves the averages as they are. A whole 0
        or 1 is a gradient.

    Returns:
      The scales, numbers of float32.

    Raises:
      ValueError: An item of `finite` is neither.
    """
    state = self.start()
    scales: list[float] = []
    for value in finite:
      if checks.is_flag(value):
        state = self.step(state, None if value else math.inf)
      else:
        state = self.step(state, checks.check_largest(value))
      scales.append(state.current_loss_scale)
    return scales

  def get_config(self) -> dict[str, Any]:
    """Returns the arguments, as plain Python numbers."""
    return dataclasses.asdict(self)

  def _back_off(self, state: State) -> State:
    """Returns the state after a step that is not finite."""
    product = self.clip(state.current_loss_scale) * self.backoff_factor
    scale = self.clip(float32.round_nearest(max(product, float32.SMALLEST)))
    return state._replace(
      current_loss_scale=scale,
      ceiling=scale,
      good_steps=0,
      skipped_steps=state.skipped_steps + 1,
    )

  def _count(self, state: State) -> State:
    """Returns the state with one more finite step."""
    if state.good_steps + 1 < self.recovery_interval:
      return state._replace(good_steps=state.good_steps + 1)
    ceiling = 2 * min(state.ceiling, float32.LARGEST_POWER / 2)
    return state._replace(good_steps=0, ceiling=ceiling)

  def _observe(self, state: State, largest: float) -> State:
    """Returns the state with averages that include a step's gradients."""
    x = log2(min(max(largest, float32.SMALLEST), float32.LARGEST))
    count = state.observations
    if count == 0:
      return state._replace(observations=1, log2_mean=x, log2_variance=0.0)
    error = x - state.log2_mean
    a = max(1 - self.mean_decay, 1 / (count + 1))
    b = max(1 - self.variance_decay, 1 / count)
    return state._replace(
      observations=count + 1,
      log2_mean=state.log2_mean + a * error,
      log2_variance=(1 - b) * (state.log2_variance + b * (error * error)),
    )


def log2(number: float) -> float:
  """Returns log2 of a positive number: exact for powers of 2.

  TensorFlow has no log2, so the policy in TensorFlow takes the exponent apart
  in the same way.
  """
  mantissa, exponent = math.frexp(number)
  return (exponent - 1) + math.log(2 * mantissa) / math.log(2.0)
