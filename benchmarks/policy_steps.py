# SPDX-License-Identifier: Apache-2.0
"""Times steps with other rules than that of `DynamicLossScale`."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import rivals
from benchmarks import shapes
from benchmarks import steps
from benchmarks import timing

# Two graphs of the same step differ by a few percent, and so do two functions.
# So each step is built several times.
BUILDS = 5


def measure(
  variable_shapes: Sequence[shapes.Shape],
  loss: Callable[[Sequence[tf.Variable]], tf.Tensor],
  mode: str,
  seconds: float,
  rounds: int,
  builds: int = BUILDS,
) -> dict[str, Any]:
  """Times a momentum step with each policy.

  Args:
    variable_shapes: The shapes of the variables.
    loss: Returns the loss of the variables.
    mode: One of `steps.MODES`.
    seconds: How long to time all steps together, approximately.
    rounds: The least number of rounds, of all builds together.
    builds: How often to build each step.

  Returns:
    Figure -> value: the median seconds of a step with `DynamicLossScale`; for
    each policy, the ratio over `DynamicLossScale` with its interval, and the
    number of nodes. "again" is a second build of `DynamicLossScale`: its ratio
    shows how far the others are exact.
  """
  named = {**rivals.POLICIES, "again": rivals.POLICIES[rivals.RULE]}
  times: dict[str, list[list[float]]] = {name: [] for name in named}
  nodes: dict[str, int | None] = {}
  random = np.random.default_rng(0)
  for i in range(builds):
    built = {}
    # The order is random, because memory is laid out in that order.
    for name in map(str, random.permutation(list(named))):
      built[name] = steps.Step(
        named[name], variable_shapes, mode=mode, loss=loss
      )
      nodes[name] = built[name].nodes
    timed = timing.take_turns(
      built, seconds / builds, -(-rounds // builds), f"{mode}, build {i + 1}"
    )
    for name, step in built.items():
      times[name].append(timed[name])
      step.close()
  base = times[rivals.RULE]
  return {
    "mode": mode,
    "seconds": float(np.median(np.concatenate(base))),
    "over DynamicLossScale": {
      name: timing.ratio_of_builds(times[name], base)
      for name in named
      if name != rivals.RULE
    },
    "nodes": nodes,
  }
