# SPDX-License-Identifier: Apache-2.0
"""Times a step for each number of variables and of elements in each."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from benchmarks import rivals
from benchmarks import shapes
from benchmarks import steps
from benchmarks import timing

COUNTS = (1, 6, 20, 60, 300, 1000)
ELEMENTS = tuple(1 << power for power in range(6, 23, 2))
# Larger cells would need more than a few GB with their slots and gradients.
_MOST_ELEMENTS = 1 << 25
_RIVALS = ("TensorFlow", "ours")


def list_cells() -> list[str]:
  """Returns all cells, such as "60x4096": 60 variables of 4,096 elements."""
  return [
    f"{count}x{elements}"
    for count in COUNTS
    for elements in ELEMENTS
    if count * elements <= _MOST_ELEMENTS
  ]


def parse(cell: str) -> list[shapes.Shape] | None:
  """Returns the shapes of the variables in a cell; None for no cell.

  Args:
    cell: Such as "60x4096": 60 variables of 4,096 elements. Or such as
      "60x64-4096": the variables have from 64 to 4,096 elements, each by the
      same factor more than the one before.
  """
  found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)(?:-([1-9]\d*))?", cell)
  if found is None:
    return None
  count, first, last = (int(x) if x else 0 for x in found.groups())
  sizes = np.geomspace(first, last or first, count).round().astype(int)
  return [_make_shape(size) for size in sizes.tolist()]


def _make_shape(elements: int) -> shapes.Shape:
  """Returns a square matrix if there is one of so many elements."""
  side = math.isqrt(elements)
  return (side, side) if side * side == elements else (elements,)


def measure(
  cell: str,
  optimizer: str,
  mode: str,
  gradients: str,
  seconds: float,
  rounds: int,
  builds: int = 3,
) -> dict[str, Any]:
  """Times a step of this package and of TensorFlow's own in a cell.

  Args:
    cell: The cell, as `parse` takes it.
    optimizer: One of `rivals.OPTIMIZERS`.
    mode: One of `steps.MODES`.
    gradients: One of `steps.LOSSES`.
    seconds: How long to time all steps together, approximately.
    rounds: The least number of rounds, of all builds together.
    builds: How often to build each step.

  Returns:
    Figure -> value: the cell, the mode, the median seconds of TensorFlow's own
    step, and the ratio over it with its interval.
  """
  variables = parse(cell) or []

  def build(rival: str) -> steps.Step:
    return steps.Step(
      rivals.RIVALS[rival],
      variables,
      optimizer,
      mode,
      steps.LOSSES[gradients],
    )

  title = f"{cell}, {mode}"
  times = timing.time_builds(_RIVALS, build, builds, seconds, rounds, title)
  own = times["TensorFlow"]
  return {
    "cell": cell,
    "mode": mode,
    "seconds": float(np.median(np.concatenate(own))),
    "over TensorFlow": timing.ratio_of_builds(times["ours"], own),
  }
