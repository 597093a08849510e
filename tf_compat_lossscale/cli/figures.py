# SPDX-License-Identifier: Apache-2.0
"""Draws a monitored run as a picture."""

from __future__ import annotations

from collections.abc import Sequence
import io
import math
import os
from typing import Any
import warnings

from tf_compat_lossscale._core import whole_files
from tf_compat_lossscale.cli import charts
from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import pages
from tf_compat_lossscale.cli import views
from tf_compat_lossscale.cli.views import View
from tf_compat_lossscale.monitoring import facts
from tf_compat_lossscale.monitoring import stuck

_BLUE, _RED, _PURPLE, _GRAY = "#1f5fa8", "#c8322b", "#7b3fa0", "#6b7280"
_GRID = "#e5e7eb"
# Of several runs; they differ for the color-blind, too.
_COLORS = (_BLUE, "#d97706", "#0f766e", _PURPLE, "#be185d", "#4d7c0f")
_WIDTH = 10.0  # Inches.
_MOST_ROWS = 16
_MANY = 300  # More changes would run into each other.
_LONGEST_NAME = 44
_STYLE: Any = {
  "font.size": 10,
  "font.family": "DejaVu Sans",  # matplotlib brings this font along.
  "axes.edgecolor": _GRAY,
  "axes.linewidth": 0.8,
  "xtick.color": _GRAY,
  "ytick.color": _GRAY,
  "xtick.labelcolor": "black",
  "ytick.labelcolor": "black",
  # The same run gives the same file.
  "svg.hashsalt": "tf_compat_lossscale",
  "svg.fonttype": "none",
  # Names of variables are no formulas.
  "text.parse_math": False,
}


def import_matplotlib() -> Any:
  """Returns the module `matplotlib.figure`.

  Raises:
    Mistake: matplotlib is not installed.
  """
  try:
    from matplotlib import figure
  except ImportError:
    raise errors.Mistake(
      "a picture needs matplotlib: pip install 'tf_compat_lossscale[plot]'"
    ) from None
  return figure


def write(found: Sequence[View], path: str) -> None:
  """Writes a picture of a run, or one that compares several runs.

  Args:
    found: The steps to draw, of each run.
    path: The file, with the ending .png, .svg or .html, which says the format.
      A file that is there is replaced when the new one is whole.

  Raises:
    Mistake: matplotlib is not installed.
    OSError: The file cannot be written.
  """
  ending = os.path.splitext(path)[1].lower()
  is_page = ending == ".html"
  data = _render(found, "svg" if is_page else ending[1:], titled=not is_page)
  if is_page:
    data = pages.make_page(found, data.decode("utf-8")).encode("utf-8")
  whole_files.replace_file(path, data)


def _render(found: Sequence[View], kind: str, titled: bool) -> bytes:
  """Returns a picture as bytes of a format.

  Args:
    found: The steps to draw, of each run.
    kind: The format.
    titled: Whether the picture of a single run has a title.
  """
  figures = import_matplotlib()
  import matplotlib

  with matplotlib.rc_context(_STYLE):
    draw = _draw_run if len(found) == 1 else _draw_runs
    figure = figures.Figure(layout="constrained")
    figure.get_layout_engine().set(hspace=0.02, h_pad=0.03)
    draw(figure, found)
    if titled and len(found) == 1:
      view = found[0]
      lines = [_shorten(views.make_title(view.log), 90), *views.summarize(view)]
      figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=10)
    return _save(figure, kind)


def _make_panes(
  figure: Any, heights: Sequence[float], margin: float
) -> Sequence[Any]:
  """Makes the panes of a figure, one below the other.

  Args:
    figure: The figure.
    heights: The height of each pane in inches.
    margin: The height of what is around them.
  """
  figure.set_size_inches(_WIDTH, sum(heights) + margin)
  panes: Sequence[Any] = figure.subplots(
    len(heights), 1, sharex=True, height_ratios=heights, squeeze=False
  )[:, 0]
  return panes


def _draw_runs(figure: Any, found: Sequence[View]) -> None:
  """Draws several runs into one picture."""
  # The legend is above, with a line for each run.
  heights = [3.6, 0.3 * len(found) + 0.1]
  panes = _make_panes(figure, heights, 0.22 * len(found) + 0.9)
  powers = []
  for place, (name, view) in enumerate(zip(charts.NAMES, found)):
    color = _COLORS[place % len(_COLORS)]
    style = ("-", "--", ":", "-.")[place // len(_COLORS) % 4]
    label = f"{name}: {_shorten(views.make_title(view.log), 90)}"
    powers += _draw_steps(
      panes[0], view, color=color, linestyle=style, label=label
    )
    _draw_ticks(panes[1], view.lost, place, color, view)
  _scale_axis(panes[0], powers)
  names = charts.NAMES[: len(found)]
  panes[1].set_yticks(range(len(found)), [f"{x} skipped" for x in names])
  panes[1].set_ylim(len(found) - 0.5, -0.5)
  first = min(view.first for view in found)
  last = max(view.last for view in found)
  _finish(panes, first, last, ())
  figure.legend(loc="outside upper left", frameon=False, fontsize=9)


def _draw_run(figure: Any, found: Sequence[View]) -> None:
  """Draws a single run, with the gradients at fault."""
  (view,) = found
  shown = view.culprits[:_MOST_ROWS]
  heights = [3.6, 0.35, *([0.3 * len(shown) + 0.3] if shown else [])]
  panes = _make_panes(figure, heights, 0.9)
  _scale_axis(panes[0], _draw_steps(panes[0], view, color=_BLUE))
  _mark_stuck(panes[0], view)
  _draw_ticks(panes[1], view.lost, 0, _RED, view)
  panes[1].set_yticks([0], ["skipped"])
  panes[1].set_ylim(-0.5, 0.5)
  if shown:
    _draw_culprits(panes[2], view, shown)
  _finish(panes, view.first, view.last, view.restarts)


def _save(figure: Any, kind: str) -> bytes:
  """Returns a figure as bytes of a format."""
  buffer = io.BytesIO()
  # matplotlib would write a date, and addresses of web pages, into an SVG.
  names = ("Date", "Creator", "Format", "Type")
  metadata = dict.fromkeys(names) if kind == "svg" else None
  with warnings.catch_warnings():
    # A letter that the font does not have is drawn as a box.
    warnings.filterwarnings("ignore", "Glyph .* missing")
    figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
  return buffer.getvalue()


def _draw_steps(axes: Any, view: View, **style: Any) -> list[float]:
  """Draws the scale of a run; returns log2 of the scales, NaN for none."""
  steps, powers = [], []
  for step, scale in view.changes:
    steps.append(max(step, view.first))
    powers.append(math.log2(scale) if facts.is_usable(scale) else math.nan)
  steps.append(view.last)
  powers.append(powers[-1])
  width = 1.6 if len(steps) < _MANY else 0.8
  axes.step(steps, powers, where="post", linewidth=width, **style)
  return powers


def _scale_axis(axes: Any, powers: Sequence[float]) -> None:
  """Labels the vertical axis with powers of 2."""
  drawn = [power for power in powers if not math.isnan(power)]
  if drawn:
    low, high = math.floor(min(drawn)) - 1, math.ceil(max(drawn)) + 1
    axes.set_ylim(low, high)
    stride = max(1, math.ceil((high - low) / 10))
    ticks = range(-(-low // stride) * stride, high + 1, stride)
    axes.set_yticks(ticks, [_superscript(power) for power in ticks])
  else:
    axes.set_yticks([])
  axes.set_ylabel("loss scale")
  axes.grid(axis="y", color=_GRID, linewidth=0.8)
  axes.set_axisbelow(True)


def _mark_stuck(axes: Any, view: View) -> None:
  """Shades the steps from which on the run was stuck."""
  count = len(stuck.find_end(view.log.rows))
  if not count:
    return
  first = view.last - count + 1
  axes.axvspan(first, view.last, color=_RED, alpha=0.08, linewidth=0)
  # The text stands in the area, or left of an area that is too narrow.
  is_wide = count > 0.4 * view.count
  axes.annotate(
    f"all {count} steps from step {first} on were skipped",
    (first, 1 if is_wide else 0.5),
    xycoords=("data", "axes fraction"),
    xytext=(8, -6) if is_wide else (-6, 0),
    textcoords="offset points",
    ha="left" if is_wide else "right",
    va="top",
    color=_RED,
    bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 2},
  )


def _draw_culprits(axes: Any, view: View, shown: Sequence[Any]) -> None:
  """Draws a row of ticks for each gradient at fault."""
  nan = _find_nan(view)
  for place, culprit in enumerate(shown):
    bad = nan.get(culprit.name, set())
    plain = [step for step in culprit.steps if step not in bad]
    _draw_ticks(axes, plain, place, _RED, view)
    _draw_ticks(axes, sorted(bad), place, _PURPLE, view)
  axes.set_yticks(
    range(len(shown)),
    [f"{_shorten(c.name)}  {len(c.steps)}" for c in shown],
    fontsize=8,
  )
  axes.set_ylim(len(shown) - 0.5, -0.5)
  for place in range(1, len(shown)):
    axes.axhline(place - 0.5, color=_GRID, linewidth=0.6)
  more = len(view.culprits) - len(shown)
  axes.set_title(
    "gradients at fault, with the number of steps"
    + (f" ({more} more are not shown)" if more else ""),
    fontsize=9,
    loc="left",
    pad=4,
  )
  if nan:
    # The entries of the legend are rows of ticks without a step.
    for color, label in ((_RED, "inf"), (_PURPLE, "NaN")):
      axes.broken_barh([], (0, 0), color=color, label=label)
    axes.legend(
      loc="lower right",
      bbox_to_anchor=(1, 1),
      ncols=2,
      frameon=False,
      borderpad=0,
      borderaxespad=0.3,
      handlelength=0.8,
      fontsize=9,
    )


def _draw_ticks(
  axes: Any, steps: Sequence[int], place: int, color: str, view: View
) -> None:
  """Draws vertical strokes at steps; neighboring strokes become one area."""
  # A stroke is wide enough to be seen.
  width = max(1.0, view.count / 600)
  bars: list[tuple[float, float]] = []
  for step in steps:
    if bars and step <= bars[-1][0] + bars[-1][1]:
      bars[-1] = (bars[-1][0], step + width - bars[-1][0])
    else:
      bars.append((float(step), width))
  bars = [(start - width / 2, size) for start, size in bars]
  axes.broken_barh(bars, (place - 0.38, 0.76), color=color, linewidth=0)


def _find_nan(view: View) -> dict[str, set[int]]:
  """Returns the steps in which a gradient had NaN, by its name."""
  found: dict[str, set[int]] = {}
  for row in view.log.rows:
    for blame in row.blame or ():
      if blame.nan:
        found.setdefault(blame.name, set()).add(row.step)
  return found


def _finish(
  panes: Sequence[Any], first: int, last: int, restarts: Sequence[int]
) -> None:
  """Draws what all panes share.

  Args:
    panes: The panes, from the top.
    first: The first step.
    last: The last step.
    restarts: The steps at which the run was started again.
  """
  margin = max(0.5, (last - first) * 0.005)
  for axes in panes:
    for side in ("top", "right"):
      axes.spines[side].set_visible(False)
    for step in restarts:
      axes.axvline(step, color=_GRAY, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.tick_params(length=3)
  for axes in panes[1:]:
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
  for axes in panes[:-1]:
    axes.tick_params(axis="x", length=0)
    axes.spines["bottom"].set_visible(axes is panes[0])
  for step in restarts[:1]:
    panes[0].annotate(
      "restart",
      (step, 0),
      xycoords=("data", "axes fraction"),
      xytext=(3, 3),
      textcoords="offset points",
      color=_GRAY,
      fontsize=8,
    )
  panes[-1].set_xlim(first - margin, last + margin)
  panes[-1].xaxis.get_major_locator().set_params(
    integer=True, steps=[1, 2, 5, 10]
  )
  panes[-1].xaxis.set_major_formatter(
    lambda step, _: f"{step:,.0f}".replace(",", "\u2009")
  )
  panes[-1].set_xlabel("attempted step")


def _superscript(power: int) -> str:
  """Returns a power of 2 as text."""
  digits = dict(
    zip(
      "-0123456789",
      "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079",
    )
  )
  return "2" + "".join(digits[digit] for digit in str(power))


def _shorten(name: str, width: int = _LONGEST_NAME) -> str:
  """Returns a text that fits a picture."""
  return views.shorten(views.clean(name), width, "\u2026")
