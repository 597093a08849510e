# SPDX-License-Identifier: Apache-2.0
"""Lists the ratios that a run of the benchmarks measured."""

from __future__ import annotations

from typing import Any


def list_ratios(
  results: dict[str, Any],
) -> list[tuple[str, str, tuple[float, float, float]]]:
  """Returns (what was timed, over what, the ratio with its interval).

  The worst ratio is the first: that whose interval begins highest.
  """
  found = []
  for measured in results["steps"]:
    axes = [measured[key] for key in ("optimizer", "mode", "gradients")]
    for row in measured["rows"]:
      what = ", ".join([row["shape"], *axes])
      found.append((what, "TensorFlow", row["over TensorFlow"]))
      fixed = row["fixed over TensorFlow"]
      found.append((f"{what}, fixed scale", "TensorFlow", fixed))
  for row in results["plane"]:
    what = f"{row['cell']}, {row['mode']}"
    found.append((what, "TensorFlow", row["over TensorFlow"]))
  for key, base in (
    ("policies", "DynamicLossScale"),
    ("monitoring", "no hook"),
  ):
    for row in results.get(key, ()):
      for name, ratio in row[f"over {base}"].items():
        what = f"{row['shape']}, {row['mode']}, {name}"
        found.append((what, base, ratio))
  return sorted(found, key=lambda each: each[2][1], reverse=True)
