# SPDX-License-Identifier: Apache-2.0
"""`tf-lossscale plot`: draws the loss scale of a monitored run."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from collections.abc import Sequence
import math
import os
import re
import shutil
import sys
import time
from typing import TYPE_CHECKING

from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import terminal

if TYPE_CHECKING:
  from tf_compat_lossscale.cli.views import View
  from tf_compat_lossscale.monitoring.rows import Row
  from tf_compat_lossscale.monitoring.rows import RunLog

SUMMARY = "draw the loss scale of a monitored run, and what made it fall"
ENDINGS = (".png", ".svg", ".html")
_MOST_CULPRITS = 12
_HEADER = ("gradient at fault", "steps", "first", "last", "inf", "NaN", "of")
_LEAST_NAME = 12
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


def add_arguments(parser: errors.Parser) -> None:
  """Adds the subcommand's description and arguments to its parser."""
  parser.description = (
    "Draws the loss scale of a run over its attempted steps, with the skipped "
    "steps and the gradients that were at fault, or compares several runs. A "
    "run has written LOGDIR by monitoring.LossScaleHook or monitoring.Monitor. "
    "The exit status is 0, or 2 for a mistake."
  )
  parser.add_argument(
    "logs",
    metavar="LOGDIR",
    nargs="+",
    help="the output_dir of the hook (loss_scale.jsonl, or else TensorBoard's "
    "event files), a file in it, or a folder above, such as the model_dir; "
    "several runs are drawn into one chart",
  )
  parser.add_argument(
    "-o",
    "--output",
    metavar="FILE",
    type=_parse_output,
    help=f"write a picture: {', '.join(ENDINGS)}; needs matplotlib",
  )
  parser.add_argument(
    "--steps",
    metavar="A:B",
    type=_parse_range,
    default=(None, None),
    help="only the steps from A to B; either may be left out",
  )
  parser.add_argument(
    "-f",
    "--follow",
    action="store_true",
    help="draw again when the run writes more, until Ctrl-C; in a pipe, print "
    "a line for each step that was skipped or changed the scale; with -o, "
    "write the picture again. A log that is not there yet is waited for",
  )
  parser.add_argument(
    "--interval",
    metavar="SECONDS",
    type=_parse_seconds,
    help="with --follow: look so often (default: 2)",
  )


def execute(arguments: argparse.Namespace) -> int:
  """Draws the run and returns the exit status."""
  if arguments.interval is not None and not arguments.follow:
    raise errors.Mistake("--interval goes with --follow")
  if arguments.output:
    _check_output(arguments.output)
  # Slow to import.
  from tf_compat_lossscale.cli import views

  if arguments.follow:
    if len(arguments.logs) > 1:
      raise errors.Mistake("--follow goes with one LOGDIR")
    _follow(arguments)
  found = views.make_views(_read_logs(arguments.logs), *arguments.steps)
  _show(found, arguments.output, terminal.Printer(sys.stdout))
  return 0


def _read_logs(places: Sequence[str]) -> list[RunLog]:
  """Returns the logs of all runs in some places.

  Raises:
    Mistake: A place has no log, or a log is damaged.
  """
  from tf_compat_lossscale.monitoring import rows
  from tf_compat_lossscale.monitoring import run_logs

  logs = {}
  try:
    for place in places:
      with terminal.announce(f"Reading {place}"):
        for path in run_logs.find_runs(place):
          if path not in logs:
            logs[path] = run_logs.read_run(path)
  except rows.LogError as error:
    raise errors.Mistake(str(error)) from error
  return [*logs.values()]


def _parse_output(text: str) -> str:
  """Returns the path of a picture."""
  if not text.lower().endswith(ENDINGS) or os.path.basename(text) in ENDINGS:
    raise argparse.ArgumentTypeError(
      f"{text!r} must end with {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
    )
  return text


def _parse_range(text: str) -> tuple[int | None, int | None]:
  """Returns the first and the last step of `--steps`."""
  # `\d` would match digits of other scripts, too.
  match = re.fullmatch(r"([0-9]{0,18}):([0-9]{0,18})", text)
  if not match or text == ":":
    raise argparse.ArgumentTypeError(
      f"{text!r} is no range of steps, such as 100:200, 100: or :200"
    )
  first, last = (int(part) if part else None for part in match.groups())
  if first is not None and last is not None and first > last:
    raise argparse.ArgumentTypeError(f"{text!r} ends before it begins")
  return first, last


def _parse_seconds(text: str) -> float:
  """Returns the number of `--interval`."""
  try:
    seconds = float(text)
  except ValueError:
    seconds = math.nan
  # `time.sleep` refuses centuries, and nobody waits longer than a day.
  if not 0.01 <= seconds <= 86400:
    raise argparse.ArgumentTypeError(
      f"{text!r} is no number of seconds from 0.01 to 86400"
    )
  return seconds


def _check_output(path: str) -> None:
  """Checks that a picture can be written, before a long log is read."""
  from tf_compat_lossscale.cli import figures

  folder = os.path.dirname(path) or "."
  if not os.path.isdir(folder):
    raise errors.Mistake(f"{path}: there is no folder {folder}")
  if os.path.isdir(path):
    raise errors.Mistake(f"{path}: this is a folder")
  figures.import_matplotlib()


def _show(
  found: Sequence[View], output: str | None, printer: terminal.Printer
) -> None:
  """Draws runs: into a picture, and says so, or as text."""
  from tf_compat_lossscale.cli import views

  if output:
    from tf_compat_lossscale.cli import figures

    figures.write(found, output)
    is_single = len(found) == 1
    what = views.summarize(found[0])[0] if is_single else f"{len(found)} runs"
    printer.print(f"{output}: {what}")
  elif len(found) == 1:
    _draw(found[0], printer)
  else:
    _draw_together(found, printer)


def _draw(view: View, printer: terminal.Printer) -> None:
  """Prints the chart, the numbers and the gradients at fault."""
  from tf_compat_lossscale.cli import charts
  from tf_compat_lossscale.cli import views

  printer.print((views.make_title(view.log), "bold"))
  if view.scales:
    axis = charts.make_axis({*view.scales})
    charts.Chart(printer, axis, view.first, view.count).print(view, "skipped")
  for line in views.summarize(view):
    printer.print(line)
  for line in views.list_stuck(view.log):
    printer.print((line, "red"))
  if view.culprits:
    printer.print()
    _draw_culprits(view, printer)


def _draw_together(found: Sequence[View], printer: terminal.Printer) -> None:
  """Prints the chart of several runs, and the numbers of each."""
  from tf_compat_lossscale.cli import charts
  from tf_compat_lossscale.cli import views

  named = dict(zip(charts.NAMES, found))
  scales = {scale for view in found for scale in view.scales}
  if scales:
    first = min(view.first for view in found)
    count = max(view.last for view in found) - first + 1
    axis = charts.make_axis(scales)
    charts.Chart(printer, axis, first, count).print_together(named, "skip")
    printer.print(f"{charts.SEVERAL}: several runs")
  for name, view in named.items():
    printer.print((f"{name}: {views.make_title(view.log)}", "bold"))
    for line in views.summarize(view):
      printer.print(f"   {line}")
    for line in views.list_stuck(view.log):
      printer.print((f"   {line}", "red"))


def _draw_culprits(view: View, printer: terminal.Printer) -> None:
  """Prints a table of the gradients at fault."""
  from tf_compat_lossscale.cli import views

  shown = view.culprits[:_MOST_CULPRITS]
  table = [_HEADER] + [
    (
      c.name,
      f"{len(c.steps)} ({len(c.steps) / len(view.lost):.0%})",
      *map(str, (c.steps[0], c.steps[-1], c.inf, c.nan, c.size)),
    )
    for c in shown
  ]
  widths = [max(len(row[i]) for row in table) for i in range(len(_HEADER))]
  if printer.is_terminal:
    columns = shutil.get_terminal_size().columns
    others = sum(widths[1:]) + 2 * len(widths[1:])
    widths[0] = max(_LEAST_NAME, min(widths[0], columns - others - 1))
  for i, row in enumerate(table):
    name = views.shorten(row[0], widths[0]).ljust(widths[0])
    cells = "".join(f"  {c:>{w}}" for c, w in zip(row[1:], widths[1:]))
    printer.print((name, "bold" if i == 0 else ""), cells)
  more = len(view.culprits) - len(shown)
  if more:
    printer.print(f"and {more} more gradients; -o FILE.html lists all")


def _follow(arguments: argparse.Namespace) -> None:
  """Draws a run again and again, until the user ends it."""
  from tf_compat_lossscale.cli import views

  printer = terminal.Printer(sys.stdout)
  before: RunLog | None = None
  for log in _watch(arguments.logs[0], arguments.interval or 2.0):
    if arguments.output or printer.is_terminal:
      try:
        view = views.make_view(log, *arguments.steps)
      except errors.Mistake:
        continue  # The steps of --steps may come.
      if not arguments.output and terminal.has_color(sys.stdout):
        printer.write(_CLEAR)
      _show([view], arguments.output, printer)
    else:
      for line in _list_news(log, before, *arguments.steps):
        printer.print(line)
    before = log
    sys.stdout.flush()


def _watch(path: str, interval: float) -> Iterator[RunLog]:
  """Yields a log whenever there is more, for ever."""
  from tf_compat_lossscale.monitoring import rows
  from tf_compat_lossscale.monitoring import run_logs

  source = path
  follower = run_logs.Follower(source)
  waits = False
  while True:
    try:
      if not follower.log.rows:
        found = _find_one(path)
        if found != source:
          source, follower = found, run_logs.Follower(found)
      if follower.update() and follower.log.rows:
        yield follower.log
    except (rows.MissingLogError, FileNotFoundError) as error:
      if not waits:
        errors.warn(f"{errors.as_line(error)}; waiting for it", "plot")
      waits = True
    except rows.LogError as error:
      raise errors.Mistake(str(error)) from error
    time.sleep(interval)


def _find_one(path: str) -> str:
  """Returns the log of the one run at a path or below.

  Raises:
    LogError: There are several runs.
  """
  from tf_compat_lossscale.monitoring import rows
  from tf_compat_lossscale.monitoring import run_logs

  paths = run_logs.find_runs(path)
  if len(paths) > 1:
    raise rows.LogError(
      f"--follow goes with one run, but there are {', '.join(paths)}"
    )
  return paths[0]


def _list_news(
  log: RunLog, before: RunLog | None, first: int | None, last: int | None
) -> Iterator[str]:
  """Yields a line for each new step that was skipped or changed the scale.

  Args:
    log: The log now.
    before: The log when it was last looked at.
    first: The first step to tell of, or None.
    last: The last step to tell of, or None.
  """
  old = before.rows if before else ()
  known = len(old)
  # A scale may be NaN, which differs from itself.
  pairs = ((a.step, a.time) != (b.step, b.time) for a, b in zip(log.rows, old))
  same = next((i for i, differs in enumerate(pairs) if differs), len(log.rows))
  if same < known:
    known = same
    step = log.rows[min(same, len(log.rows) - 1)].step
    yield f"step {step}: the run was started again"
  for i in range(known, len(log.rows)):
    row = log.rows[i]
    if (first or 0) <= row.step <= (math.inf if last is None else last):
      yield from _describe(row, log.rows[i - 1].loss_scale if i else None)
      yield from _describe_stuck(row, log.rows[:i])


def _describe(row: Row, before: float | None) -> Iterator[str]:
  """Yields a line for a step, if the step is worth one.

  Args:
    row: The step.
    before: The scale before the step, or None.
  """
  from tf_compat_lossscale.monitoring import facts
  from tf_compat_lossscale.monitoring import phrases

  scale = facts.show_power(row.loss_scale)
  is_change = before is None or facts.is_change(before, row.loss_scale)
  if before is not None and is_change:
    scale = f"{facts.show_power(before)} -> {scale}"
  if row.applied is False or is_change:
    what = "skipped" if row.applied is False else "applied"
    names = phrases.list_some([x.name for x in row.blame or ()], 3)
    fault = f", at fault: {names}" if names else ""
    what = "" if row.applied is None else f"{what}, "
    yield f"step {row.step}: {what}scale {scale}{fault}"


def _describe_stuck(row: Row, before: Sequence[Row]) -> Iterator[str]:
  """Yields the message of a run that is stuck, in full the first time."""
  if row.stuck:
    first = next((x.step for x in before if x.stuck), None)
    text = row.stuck if first is None else f"stuck, as at step {first}"
    yield f"step {row.step}: {text}"
