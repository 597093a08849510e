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
  nodes: dict[str, int | None] = {}

  def build(name: str) -> steps.Step:
    step = steps.Step(named[name], variable_shapes, mode=mode, loss=loss)
    nodes[name] = step.nodes
    return step

  times = timing.time_builds(named, build, builds, seconds, rounds, mode)
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
