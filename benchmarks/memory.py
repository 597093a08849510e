"""The peak of memory of a step with an embedding, in a process of its own."""

from __future__ import annotations

import sys

from benchmarks import processes
from benchmarks import rivals
from benchmarks import shapes
from benchmarks import steps


def measure() -> dict[str, int]:
  """Rival -> the peak of a process with 20 steps of momentum, in bytes."""
  return {
    name: int(processes.python("-m", "benchmarks.memory", name))
    for name in rivals.MAIN
  }


if __name__ == "__main__":
  one = steps.Step(
    rivals.RIVALS[sys.argv[1]],
    shapes.EMBEDDING,
    loss=steps.gathered,
  )
  for _ in range(20):
    one()
  print(processes.peak())
