# SPDX-License-Identifier: Apache-2.0
"""Measures the memory of graphs and steps, each in a separate process."""

from __future__ import annotations

import sys

from benchmarks import processes
from benchmarks import rivals
from benchmarks import shapes
from benchmarks import steps


def measure() -> dict[str, int]:
  """Returns rival -> the peak bytes of 20 momentum steps with an embedding."""
  return {
    name: int(processes.python("-m", "benchmarks.memory", name))
    for name in rivals.MAIN
  }


def of_graph(rival: str, size: int) -> int:
  """Returns the bytes that a graph of `size` tiny variables adds to a process.

  The bytes include the session and the first step, but not TensorFlow's import.
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
