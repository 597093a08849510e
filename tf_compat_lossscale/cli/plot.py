# SPDX-License-Identifier: Apache-2.0
"""`tf-lossscale plot`: draws a run's loss scale as a picture."""

from __future__ import annotations

import argparse
import io
import math
import os

from tf_compat_lossscale._core import whole_files
from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import scalars

SUMMARY = "draw the loss scale of a run"

_ENDINGS = ".png, .svg, .pdf"
_BLUE, _RED = "#1f5fa8", "#c8372d"
_PARTS = 50  # The parts of a run that have a share of skipped steps each.


def add_arguments(parser: errors.Parser) -> None:
  """Adds the subcommand's description and arguments to its parser."""
  parser.description = (
    "Draws the loss scale of a run by its event files, and marks the steps "
    "that were skipped. The exit status is 0, or 2 for a mistake."
  )
  scalars.add_arguments(parser)
  parser.add_argument(
    *("-o", "--output"),
    metavar="FILE",
    default="scale.png",
    help=f"the picture, {_ENDINGS} (default: %(default)s)",
  )


def execute(arguments: argparse.Namespace) -> int:
  """Writes the picture and returns the exit status."""
  ending = os.path.splitext(arguments.output)[1].lower()
  if ending not in _ENDINGS.split(", "):
    raise errors.Mistake(f"{arguments.output}: the name must end in {_ENDINGS}")
  log = scalars.read(arguments)
  data = _draw(log, ending[1:])
  whole_files.replace_file(arguments.output, data)
  for line in (arguments.output, *log.notes):
    print(line)
  return 0


def _draw(log: scalars.Log, kind: str) -> bytes:
  """Returns the picture as the content of a file."""
  try:
    from matplotlib import figure
    from matplotlib import ticker
  except ImportError:
    raise errors.Mistake(
      "a picture needs matplotlib: pip install matplotlib, or "
      "'tf_compat_lossscale[plot]'"
    ) from None
  rows = log.rows
  first, last = rows[0].step, rows[-1].step
  count, share, words = log.count_skipped()
  # White, also in a dark page.
  picture = figure.Figure(
    (8, 4), dpi=150, layout="constrained", facecolor="white"
  )
  axes = picture.subplots()
  scales = [row.scale for row in rows]
  steps = [row.step for row in rows]
  axes.plot(steps, scales, _BLUE, lw=1.8, drawstyle="steps-post")
  axes.set_yscale("log", base=2)
  usable = [x for x in scales if 0 < x < math.inf]
  if usable:
    axes.set_ylim(min(usable) / 2, max(usable) * 2)
  axes.yaxis.set_major_locator(ticker.LogLocator(2, numticks=12))
  axes.yaxis.set_minor_locator(ticker.NullLocator())
  axes.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
  axes.grid(color="#e3e3e3", lw=0.8)
  axes.margins(x=0.01)
  axes.set_xlabel("step")
  axes.set_ylabel("loss scale", color=_BLUE)
  axes.set_title(
    f"{log.name}: {words}{count:,} of {last - first:,} steps skipped "
    f"({share:.2%})",
    loc="left",
    fontsize=11,
  )
  axes.spines[["top", "right"]].set_visible(False)
  where = axes.get_xaxis_transform()
  marks = [row.step for row in rows if row.skipped]
  axes.vlines(marks, 0, 0.03, color=_RED, lw=1.2, transform=where)
  if marks and log.tells_skips and first < last:
    size = math.ceil((last - first) / _PARTS)
    ends = [first, *reversed(range(last, first, -size))]
    right = axes.twinx()
    right.hist(
      [step - 0.5 for step in steps],  # A part has the step at its end.
      ends,
      weights=[row.skipped / size for row in rows],
      histtype="step",
      color=_RED,
      lw=1.2,
    )
    right.margins(x=0.01)
    right.set_ylim(0, max(0.1, min(right.get_ylim()[1], 1.1)))
    right.yaxis.set_major_formatter(ticker.PercentFormatter(1.0, 0))
    right.set_ylabel(f"skipped in each {size:,} steps", color=_RED)
    right.spines[["top", "left"]].set_visible(False)
  buffer = io.BytesIO()
  picture.savefig(buffer, format=kind)
  return buffer.getvalue()
