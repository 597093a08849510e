# SPDX-License-Identifier: Apache-2.0
"""What graphs and steps take of memory, each in a process of its own."""

from __future__ import annotations

import sys

from benchmarks import processes
from benchmarks import rivals
from benchmarks import shapes
from benchmarks import steps


def measure() -> dict[str, int]:
  """Rival -> the peak of 20 steps of momentum with an embedding, in bytes."""
  return {
    name: int(processes.python("-m", "benchmarks.memory", name))
    for name in rivals.MAIN
  }


def of_graph(rival: str, size: int) -> int:
  """Bytes by which a process grows with a graph of so many tiny variables.

  Its session and its first step are in it, and TensorFlow's import is not.
  """
  return int(processes.python("-m", "benchmarks.memory", rival, str(size)))


def _main(rival: str, size: str | None = None) -> int:
  if size:
    before = processes.resident()
    steps.Step(rivals.RIVALS[rival], [shapes.TINY] * int(size), "sgd")()
    return processes.resident() - before
  step = steps.Step(rivals.RIVALS[rival], shapes.EMBEDDING, loss=steps.gathered)
  for _ in range(20):
    step()
  return processes.peak()


if __name__ == "__main__":
  print(_main(*sys.argv[1:]))
