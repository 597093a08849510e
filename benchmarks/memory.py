"""The peak of memory of a step with an embedding, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks import rivals
from benchmarks import shapes
from benchmarks import steps


def peak() -> int:
  """Bytes of memory that this process held at most.

  Not `getrusage`'s, which counts what the process was before it became another
  program.
  """
  with open("/proc/self/status", encoding="ascii") as file:
    (line,) = (line for line in file if line.startswith("VmHWM:"))
  return int(line.split()[1]) << 10


def measure() -> dict[str, int]:
  """Rival -> the peak of a process with 20 steps of momentum, in bytes."""
  return {
    name: int(
      subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", name],
        check=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
      ).stdout
    )
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
  print(peak())
