# SPDX-License-Identifier: Apache-2.0
"""Measures how a step and its graph grow with the number of variables."""

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
  """Measures steps of plain SGD on growing numbers of 16-element variables.

  Args:
    sizes: The numbers of variables, each larger than the one before.
    seconds: How long to time each number of variables.

  Returns:
    Rival -> figure -> a value for each size. The figures are the median seconds
    of a step, the seconds of `minimize`, the number of nodes in the graph, and
    the bytes by which a process grows while it builds the graph and runs the
    first step.
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
  """Returns the exponents of the step's and the build's growth.

  The smallest of three sizes or more is left out: with few variables, the fixed
  cost of a graph outweighs the cost of its variables.
  """
  first = min(1, len(sizes) - 2)
  return [
    timing.exponent(sizes[first:], values[figure][first:])
    for figure in ("step", "build")
  ]
