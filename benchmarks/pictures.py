# SPDX-License-Identifier: Apache-2.0
"""Draws pictures of the benchmarks' figures."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

from benchmarks import rivals

_COLORS = {"TensorFlow": "tab:orange", "ours": "tab:blue", "floor": "tab:gray"}


def pyplot() -> Any:
  """Returns matplotlib's `pyplot`, set up to draw into files.

  Raises:
    ImportError: matplotlib is not installed.
  """
  import matplotlib

  matplotlib.use("Agg")
  from matplotlib import pyplot

  return pyplot


def draw(results: dict[str, Any], folder: str) -> list[str]:
  """Writes a picture of each set of steps, of each plane, and of growth.

  Args:
    results: What `python -m benchmarks --json` writes.
    folder: The folder to write to, which is created if it is missing.

  Returns:
    The paths of the pictures.
  """
  plot = pyplot()
  pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
  written = []
  for measured in results["steps"]:
    rows = measured["rows"]
    figure, axes = plot.subplots(figsize=(8, 3.5), layout="constrained")
    for i, (name, color) in enumerate(_COLORS.items()):
      timed = [row["over bare"][name] for row in rows]
      axes.bar(
        [x + 0.27 * (i - 1) for x in range(len(rows))],
        [ratio for ratio, _, _ in timed],
        0.25,
        color=color,
        label=name,
        yerr=[
          [ratio - low for ratio, low, _ in timed],
          [high - ratio for ratio, _, high in timed],
        ],
      )
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_ylim(bottom=0.8)
    axes.set_xticks(range(len(rows)), [row["shape"] for row in rows])
    axes.set_ylabel("step / bare optimizer's")
    which = [measured[key] for key in ("optimizer", "mode", "gradients")]
    axes.set_title(", ".join(which))
    axes.legend()
    name = f"steps-{'-'.join(which)}.png"
    written.append(str(pathlib.Path(folder, name.replace(" ", "-"))))
    figure.savefig(written[-1], dpi=100)
    plot.close(figure)
  for mode in dict.fromkeys(row["mode"] for row in results["plane"]):
    rows = [row for row in results["plane"] if row["mode"] == mode]
    figure = _draw_plane(plot, rows, mode)
    name = f"plane-{mode}.png".replace(" ", "-")
    written.append(str(pathlib.Path(folder, name)))
    figure.savefig(written[-1], dpi=100)
    plot.close(figure)
  growth = results.get("growth")
  if growth:
    figure, panes = plot.subplots(1, 4, figsize=(12, 3.2), layout="constrained")
    units = {
      "step": "a step [s]",
      "build": "building the graph [s]",
      "nodes": "nodes of the graph",
      "memory": "memory [bytes]",
    }
    for axes, (key, label) in zip(panes, units.items()):
      for name in rivals.MAIN:
        color = _COLORS.get(name, "black")
        values = growth["rivals"][name][key]
        axes.loglog(growth["sizes"], values, "o-", color=color, label=name)
      axes.set_xlabel("variables")
      axes.set_title(label)
    panes[0].legend()
    written.append(str(pathlib.Path(folder, "growth.png")))
    figure.savefig(written[-1], dpi=100)
    plot.close(figure)
  return written


def _draw_plane(plot: Any, rows: list[dict[str, Any]], mode: str) -> Any:
  """Returns a heat map: variables, elements of each, the ratio as a color."""
  cells = [row["cell"].split("x") for row in rows]
  counts = sorted({count for count, _ in cells}, key=int)
  elements = sorted(
    {sizes for _, sizes in cells}, key=lambda x: [*map(int, x.split("-"))]
  )
  ratios = np.full((len(counts), len(elements)), np.nan)
  figure, axes = plot.subplots(figsize=(8, 3.8), layout="constrained")
  for (count, sizes), row in zip(cells, rows):
    y, x = counts.index(count), elements.index(sizes)
    ratios[y, x] = row["over TensorFlow"][0]
    axes.text(x, y, f"{ratios[y, x]:.2f}", ha="center", va="center")
  image = axes.imshow(ratios, cmap="RdBu_r", vmin=0.4, vmax=1.6, aspect="auto")
  axes.set_xticks(range(len(elements)), elements, fontsize=8)
  axes.set_yticks(range(len(counts)), counts)
  axes.set_xlabel("elements of each variable")
  axes.set_ylabel("variables")
  axes.set_title(f"a step / TensorFlow's own, {mode}")
  figure.colorbar(image)
  return figure
