# SPDX-License-Identifier: Apache-2.0
"""`tf-lossscale plot`: draws a run's loss scale as a picture."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import io
import os

from tf_compat_lossscale._core import whole_files
from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import scalars
from tf_compat_lossscale.cli.scalars import Row

SUMMARY = "draw the loss scale of a run"

_ENDINGS = ".png, .svg, .pdf"


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
  data = _draw(scalars.read(arguments), ending[1:], arguments.dir)
  whole_files.replace_file(arguments.output, data)
  print(arguments.output)
  return 0


def _draw(rows: Sequence[Row], kind: str, title: str) -> bytes:
  """Returns the picture as the content of a file."""
  try:
    from matplotlib import figure
    from matplotlib import ticker
  except ImportError:
    raise errors.Mistake(
      "a picture needs matplotlib: pip install matplotlib, or "
      "'tf_compat_lossscale[plot]'"
    ) from None
  steps = [row.step for row in rows]
  count, share = scalars.count_skipped(rows)
  picture = figure.Figure((8, 4), dpi=150, layout="constrained")
  axes = picture.subplots()
  scales = [row.scale for row in rows]
  axes.plot(steps, scales, "#1f5fa8", lw=1.8, drawstyle="steps-post")
  axes.set_yscale("log", base=2)
  axes.yaxis.set_major_locator(ticker.LogLocator(2, numticks=12))
  axes.yaxis.set_minor_locator(ticker.NullLocator())
  axes.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
  axes.grid(color="#e3e3e3", lw=0.8)
  axes.margins(x=0.01, y=0.12)
  axes.set_xlabel("step")
  axes.set_ylabel("loss scale")
  axes.set_title(
    f"{title}: {count:,} of {steps[-1] - steps[0]:,} steps skipped "
    f"({share:.1%})",
    loc="left",
    fontsize=11,
  )
  axes.vlines(
    [row.step for row in rows if row.skipped],
    *(0, 0.05),
    color="#c8372d",
    lw=1.2,
    transform=axes.get_xaxis_transform(),
    label="skipped step",
  )
  axes.legend(loc="upper right", frameon=False)
  axes.spines[["top", "right"]].set_visible(False)
  buffer = io.BytesIO()
  picture.savefig(buffer, format=kind)
  return buffer.getvalue()
