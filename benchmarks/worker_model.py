# SPDX-License-Identifier: Apache-2.0
"""A model of many workers: overflows of any of them, and the cost of agreement.

The model needs no TensorFlow and no second machine.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import math
import random
import statistics
from typing import Any
from typing import NamedTuple

from tf_compat_lossscale import policies

FLOAT16_LARGEST = 65504.0
_LOG2_LARGEST = math.log2(FLOAT16_LARGEST)
_NORMAL = statistics.NormalDist()
# The first part of a run in which the scale still looks for its place.
_WARMUP_SHARE = 0.5

POLICIES: dict[str, Any] = {
  "DynamicLossScale": policies.GrowthBackoffRule(),
  "interval 200": policies.GrowthBackoffRule(growth_interval=200),
  "hysteresis 2, refill finite": policies.GrowthBackoffRule(
    hysteresis=2, refill=("finite",)
  ),
  "tolerance 0.05": policies.GrowthBackoffRule(overflow_tolerance=0.05),
  "tolerance 0.2": policies.GrowthBackoffRule(overflow_tolerance=0.2),
  "minimum 2^12": policies.GrowthBackoffRule(min_loss_scale=2.0**12),
  "like torch": policies.find_rule("torch"),
  "like megatron": policies.find_rule("megatron", initial_loss_scale=2.0**16),
  "LogNormal": policies.LogNormalRule(),
}


@dataclasses.dataclass(frozen=True)
class Gradients:
  """How large the largest gradient of one worker is, at random, in each step.

  log2 of the largest |gradient| is normally distributed, independently for each
  worker and step. A broken batch gives gradients that are not finite, whatever
  the scale.

  Attributes:
    mean: The mean of log2 of the largest |gradient|.
    deviation: The standard deviation of log2 of the largest |gradient|.
    broken: The share of one worker's batches that are broken.
  """

  mean: float = -4.0
  deviation: float = 1.0
  broken: float = 0.0

  def draw(self, workers: int, source: random.Random) -> float:
    """Returns the largest |gradient| of all workers in one step, at random.

    The largest of n independent values lies below x with the probability
    F(x)^n. So one number is drawn, whatever the number of workers.

    Args:
      workers: The number of workers.
      source: Random numbers.

    Returns:
      The largest, an infinity if a worker's batch is broken.
    """
    if self.broken and source.random() < find_any(self.broken, workers):
      return math.inf
    # 1 - u^(1/n), with all digits.
    tail = -math.expm1(math.log(1.0 - source.random()) / workers)
    tail = min(max(tail, 1e-300), 1 - 1e-16)
    return 2.0 ** (self.mean - self.deviation * _NORMAL.inv_cdf(tail))

  def find_overflow(self, power: float, workers: int) -> float:
    """Returns the probability that some worker overflows at 2^power."""
    distance = (_LOG2_LARGEST - power - self.mean) / self.deviation
    finite = 1 - self.broken
    one = 1 - finite * (1 - _NORMAL.cdf(-distance))
    return find_any(one, workers)


class Settled(NamedTuple):
  """Where a run settles, in its second half.

  Attributes:
    scale: The median of log2 of the loss scale.
    skipped: The share of skipped steps.
    lowest: The lowest log2 of the loss scale.
    at_first: The share of skipped steps in the first half of the run.
  """

  scale: float
  skipped: float
  lowest: float
  at_first: float


def find_any(share: float, workers: int) -> float:
  """Returns the probability that an event happens to at least one worker."""
  if share >= 1:
    return 1.0
  return -math.expm1(workers * math.log1p(-share))


def simulate(
  rule: Any, gradients: Gradients, workers: int, steps: int, seed: int = 0
) -> Settled:
  """Returns where a policy settles if all workers agree in each step.

  Args:
    rule: A `GrowthBackoffRule` or a `LogNormalRule`.
    gradients: The gradients of a worker.
    workers: The number of workers.
    steps: The number of steps.
    seed: The seed of the random numbers.
  """
  source = random.Random(f"{seed}/{workers}")
  takes_largest = isinstance(rule, policies.LogNormalRule)
  state = rule.start()
  scales, skips = [], []
  for _ in range(steps):
    scale = state.current_loss_scale
    largest = gradients.draw(workers, source)
    finite = scale * largest <= FLOAT16_LARGEST
    scales.append(scale)
    skips.append(not finite)
    if takes_largest:
      state = rule.step(state, largest if finite else math.inf)
    else:
      state = rule.step(state, finite)
  begin = int(steps * _WARMUP_SHARE)
  late = scales[begin:]
  return Settled(
    math.log2(statistics.median_low(late)),
    sum(skips[begin:]) / len(late),
    math.log2(min(late)),
    sum(skips[:begin]) / max(begin, 1),
  )


def find_stationary(
  gradients: Gradients, workers: int, interval: int, highest: int = 40
) -> dict[int, float]:
  """Returns the share of steps that `DynamicLossScale` spends at each power.

  The scale is a chain of visits: at 2^k it stays until `interval` consecutive
  finite steps (then it doubles) or until a step that is not finite (then it
  halves). Both probabilities and the mean stay follow from the probability of
  an overflow, so no random number is needed: tests compare `simulate` with it.

  Args:
    gradients: The gradients of a worker.
    workers: The number of workers.
    interval: The growth interval, in steps.
    highest: The highest power that is looked at.
  """
  bad = [gradients.find_overflow(k, workers) for k in range(highest + 1)]
  up = [interval * math.log1p(-p) if p < 1 else -math.inf for p in bad]
  # As many visits go up from k as come down from k + 1. Logarithms, because
  # both probabilities may be next to nothing.
  visits = [0.0]
  for k in range(highest):
    visits.append(visits[-1] + _clip(up[k]) - _log_of_fall(up[k + 1]))
  largest = max(visits)
  times = [
    math.exp(visit - largest) * (-math.expm1(u) / p if p > 0 else interval)
    for visit, u, p in zip(visits, up, bad)
  ]
  total = sum(times)
  return {k: t / total for k, t in enumerate(times)}


def _clip(logarithm: float) -> float:
  """Returns a logarithm that sums of it cannot overflow."""
  return max(logarithm, -1e6)


def _log_of_fall(up: float) -> float:
  """Returns the logarithm of 1 - e^up."""
  down = -math.expm1(up)
  return _clip(math.log(down) if down > 0 else -math.inf)


@dataclasses.dataclass(frozen=True)
class Network:
  """A network between workers.

  Attributes:
    name: What it is called.
    latency: Seconds until a message's first byte arrives.
    bandwidth: Bytes per second.
  """

  name: str
  latency: float
  bandwidth: float

  def time_ring(self, size: float, workers: int) -> float:
    """Returns the seconds of a ring all-reduce of `size` bytes."""
    rounds = 2 * (workers - 1)
    return rounds * (self.latency + size / workers / self.bandwidth)

  def time_tree(self, size: float, workers: int) -> float:
    """Returns the seconds of a tree all-reduce: to the root and back."""
    depth = math.ceil(math.log2(workers)) if workers > 1 else 0
    return 2 * depth * (self.latency + size / self.bandwidth)

  def time_best(self, size: float, workers: int) -> float:
    """Returns the seconds of the faster of both."""
    ways: list[Callable[[float, int], float]] = [self.time_ring, self.time_tree]
    return min(way(size, workers) for way in ways)


NETWORKS = (
  Network("InfiniBand, 2 us, 25 GB/s", 2e-6, 25e9),
  Network("Ethernet, 30 us, 3 GB/s", 30e-6, 3e9),
  Network("TCP in a cloud, 200 us, 1 GB/s", 200e-6, 1e9),
)
_FLAG = 4.0  # Bytes of a float32.


def find_costs(network: Network, workers: int, size: float) -> dict[str, float]:
  """Returns what agreement costs in a step, in seconds.

  Args:
    network: The network.
    workers: The number of workers.
    size: The bytes of all gradients.

  Returns:
    Way -> seconds: "gradients" is the all-reduce of the gradients, which each
    step needs anyway; "ring" and "tree" are one float32 more by itself;
    "fused" is one float32 more in the message of the gradients. A check of the
    reduced gradients sends nothing.
  """
  gradients = network.time_best(size, workers)
  return {
    "gradients": gradients,
    "ring": network.time_ring(_FLAG, workers),
    "tree": network.time_tree(_FLAG, workers),
    "fused": network.time_best(size + _FLAG, workers) - gradients,
  }
