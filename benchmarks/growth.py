"""How a step and its graph grow with the number of variables."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import processes
from benchmarks import rivals
from benchmarks import steps
from benchmarks import timing

_SHAPE = (16,)
FIGURES = ("step", "build", "nodes", "memory")


def measure(sizes: list[int], seconds: float) -> dict[str, Any]:
  """Times steps of so many variables of 16 elements each, with plain SGD.

  Args:
    sizes: The numbers of variables, each larger than the one before.
    seconds: How long to time each of them.

  Returns:
    Rival -> figure -> a value for each size: medians of seconds of a step,
    seconds of `minimize`, nodes of the graph, and bytes by which the process
    grew while the graph was built and first run.
  """
  found: dict[str, Any] = {
    name: {figure: [] for figure in FIGURES} for name in rivals.MAIN
  }
  for size in sizes:
    built = {}
    for name in rivals.MAIN:
      before = processes.resident()
      step = steps.Step(rivals.RIVALS[name], [_SHAPE] * size, "sgd")
      step()
      built[name] = step
      found[name]["build"].append(step.build_seconds)
      found[name]["nodes"].append(step.nodes)
      found[name]["memory"].append(max(processes.resident() - before, 0))
    times = timing.take_turns(built, seconds, 10, f"{size} variables")
    for name, step in built.items():
      found[name]["step"].append(float(np.median(times[name])))
      step.close()
  return found


def exponents(sizes: list[int], values: dict[str, list[float]]) -> list[float]:
  """The exponents of step and build, from the second size on.

  With few variables, what every graph has counts more than they do.
  """
  return [
    timing.exponent(sizes[1:], values[figure][1:])
    for figure in ("step", "build")
  ]
