# SPDX-License-Identifier: Apache-2.0
"""How a step and its graph grow with the number of variables."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import memory
from benchmarks import rivals
from benchmarks import shapes
from benchmarks import steps
from benchmarks import timing

FIGURES = ("step", "build", "nodes", "memory")


def measure(sizes: list[int], seconds: float) -> dict[str, Any]:
  """Times steps of so many variables of 16 elements each, with plain SGD.

  Args:
    sizes: The numbers of variables, each larger than the one before.
    seconds: How long to time each of them.

  Returns:
    Rival -> figure -> a value for each size: medians of seconds of a step,
    seconds of `minimize`, nodes of the graph, and bytes by which a process
    grows while the graph is built and first run.
  """
  found: dict[str, Any] = {
    name: {figure: [] for figure in FIGURES} for name in rivals.MAIN
  }
  for size in sizes:
    built = {}
    for name in rivals.MAIN:
      step = steps.Step(rivals.RIVALS[name], [shapes.TINY] * size, "sgd")
      built[name] = step
      found[name]["build"].append(step.build_seconds)
      found[name]["nodes"].append(step.nodes)
      found[name]["memory"].append(memory.of_graph(name, size))
    times = timing.take_turns(built, seconds, 10, f"{size} variables")
    for name, step in built.items():
      found[name]["step"].append(float(np.median(times[name])))
      step.close()
  return found


def exponents(sizes: list[int], values: dict[str, list[float]]) -> list[float]:
  """The exponents of step and build, from the second of three sizes or more.

  With few variables, what every graph has counts more than they do.
  """
  first = min(1, len(sizes) - 2)
  return [
    timing.exponent(sizes[first:], values[figure][first:])
    for figure in ("step", "build")
  ]
