# SPDX-License-Identifier: Apache-2.0
"""`tf-lossscale simulate`: draws the loss scale that policies would have."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import itertools
import sys
from typing import Any
from typing import NamedTuple
from typing import TYPE_CHECKING

from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import selection
from tf_compat_lossscale.cli import terminal

if TYPE_CHECKING:
  from tf_compat_lossscale.cli.charts import Curve
  from tf_compat_lossscale.cli.policy_options import Policy
  from tf_compat_lossscale.cli.step_logs import Steps

SUMMARY = "draw the loss scale that policies would have in a run"

_DEFAULT_STEPS = 10000
_CAVEAT = (
  "The overflows are taken as given: a run with another scale has others."
)
# Between two signs of progress, in steps.
_STRIDE = 1 << 16


class _Run(NamedTuple):
  """A simulated run.

  Attributes:
    policy: The policy.
    curve: The scale over the steps.
    ended: Whether the rule ended the run at the next step.
  """

  policy: Policy
  curve: Curve
  ended: bool


def add_arguments(parser: errors.Parser) -> None:
  """Adds the subcommand's description and arguments to its parser."""
  parser.description = (
    "Simulates how policies would scale the loss in a run that overflows at "
    "the steps of LOG, or of a pattern, and draws the scale. The overflows are "
    "taken as given: with another scale, the run itself would have overflowed "
    "at other steps. The exit status is 0, or 2 for a mistake."
  )
  parser.epilog = (
    "LOG is one of these. Words, such as 1 0 1: 1 and 0, true and false, or "
    "finite and overflow; 1 and true mean that the step was finite. JSON: an "
    "object in each line, with true or false as `finite`, `applied`, `skipped` "
    "or `overflow`. CSV, with a header that has such a column; or with the "
    "column `value` for the loss scale, as TensorBoard downloads: a step "
    "overflowed if the value is below that of the row before. JSON and CSV may "
    "have the number of each step as `step`. The first number begins the run, "
    "and steps that are left out were finite."
  )
  parser.add_argument(
    "log", nargs="?", metavar="LOG", help="a file, or - for standard input"
  )
  parser.add_argument(
    "--every",
    type=selection.parse_count,
    metavar="N",
    help="in place of LOG: each Nth step overflows",
  )
  parser.add_argument(
    "--at",
    action="append",
    type=_parse_counts,
    metavar="STEPS",
    help="in place of LOG: these steps overflow, such as 5,17,900; the first "
    "step is 1",
  )
  parser.add_argument(
    "--steps",
    type=selection.parse_count,
    metavar="N",
    help=f"with --every and --at: the number of steps (default: "
    f"{_DEFAULT_STEPS})",
  )
  parser.add_argument(
    "--restarted",
    action="store_true",
    help="the run of LOG was restarted: a step that is not above the step of "
    "the line before replaces all lines from that step on (default: an error)",
  )
  parser.add_argument(
    "--like",
    action="append",
    default=[],
    metavar="SYSTEM",
    help="simulate the policy of apex, contrib, deepspeed, fairseq, flax, jmp, "
    "keras3, megatron, torch, or default for GrowthBackoff, which is also the "
    "default; with changes for this policy alone: megatron,hysteresis=4; give "
    "several to compare them",
  )
  parser.add_argument(
    "--policy",
    action="append",
    default=[],
    metavar="CHANGES",
    help="change arguments of all policies: growth_interval=500,hysteresis=4. "
    "A value is a number (also 2**16 or 2^16), None, a word "
    "(at_minimum=raise), words with + or none at all "
    "(refill=growth+backoff, refill=none), or true or false",
  )
  parser.add_argument("--format", choices=("text", "json"), default="text")


def execute(arguments: argparse.Namespace) -> int:
  """Prints the simulated runs and returns the exit status."""
  from tf_compat_lossscale.cli import policy_options  # Slow to import.

  policies = policy_options.make_policies(arguments.like, arguments.policy)
  steps = _find_steps(arguments)
  runs = _simulate(policies, steps)
  write = _write_json if arguments.format == "json" else _write_text
  write(runs, steps, terminal.Printer(sys.stdout))
  return 0


def _parse_counts(text: str) -> list[int]:
  """Returns the numbers of `--at`."""
  return [selection.parse_count(part.strip()) for part in text.split(",")]


def _find_steps(arguments: argparse.Namespace) -> Steps:
  """Returns the steps of the log or of the pattern.

  Raises:
    Mistake: There is neither or both, or the log or the pattern is wrong.
  """
  from tf_compat_lossscale.cli import step_logs

  if arguments.log is not None:
    for option in ("every", "at", "steps"):
      if getattr(arguments, option) is not None:
        raise errors.Mistake(f"give LOG or --{option}, but not both")
    return step_logs.read(arguments.log, arguments.restarted)
  if arguments.restarted:
    raise errors.Mistake("--restarted goes with LOG")
  at = list(itertools.chain.from_iterable(arguments.at or []))
  if arguments.every is None and not at:
    raise errors.Mistake("name a LOG, or give a pattern: --every=N or --at=N,N")
  return _make_pattern(arguments.steps or _DEFAULT_STEPS, arguments.every, at)


def _make_pattern(count: int, every: int | None, at: list[int]) -> Steps:
  """Returns the steps of a pattern.

  Args:
    count: The number of steps.
    every: Each step whose number is a multiple of this overflows; None for no
      such step.
    at: The numbers of further steps that overflow.

  Raises:
    Mistake: There are too many steps, or `at` names a step after the last.
  """
  from tf_compat_lossscale.cli import step_logs

  for number in (count, *at):
    if number > step_logs.MOST_STEPS:
      raise errors.Mistake(
        f"a run has at most {step_logs.MOST_STEPS} steps, but got {number}"
      )
  if at and max(at) > count:
    raise errors.Mistake(
      f"--at names step {max(at)}, but the run has {count} steps: set --steps"
    )
  finite = [True] * count
  multiples = range(every, count + 1, every) if every is not None else ()
  for step in (*at, *multiples):
    finite[step - 1] = False
  return step_logs.Steps(1, finite)


def _simulate(policies: list[Policy], steps: Steps) -> list[_Run]:
  """Returns a run for each policy."""
  from tf_compat_lossscale.policies import MinimumReachedError

  runs = []
  total = len(policies) * len(steps.finite)
  with terminal.show_progress("Simulating") as show:
    for i, policy in enumerate(policies):
      done, ended = i * len(steps.finite), False
      try:
        scales = policy.rule.simulate(_watch(steps.finite, show, done, total))
      except MinimumReachedError as error:
        scales, ended = error.scales, True
      start = policy.rule.start().current_loss_scale
      runs.append(_Run(policy, _make_curve(steps, start, scales), ended))
  return runs


def _watch(
  finite: Sequence[bool],
  show: Callable[[int, int], None],
  done: int,
  total: int,
) -> Iterator[bool]:
  """Yields all flags, and shows how many steps of the total are done."""
  for start in range(0, len(finite), _STRIDE):
    show(done + start, total)
    yield from finite[start : start + _STRIDE]


def _make_curve(steps: Steps, start: float, scales: Sequence[float]) -> Curve:
  """Returns the scale over the steps of a run.

  Args:
    steps: The steps; the run may end before the last.
    start: The scale before the first step.
    scales: The scale after each step.
  """
  from tf_compat_lossscale.cli import charts

  changes = [(steps.first - 1, start)]
  lost = []
  for step, (scale, finite) in enumerate(
    zip(scales, steps.finite), steps.first
  ):
    if scale != changes[-1][1]:
      changes.append((step, scale))
    if not finite:
      lost.append(step)
  return charts.Curve(steps.first, steps.first + len(scales) - 1, changes, lost)


def _summarize(run: _Run) -> dict[str, Any]:
  """Returns the numbers that describe a run."""
  curve = run.curve
  scales = [scale for _, scale in curve.changes]
  return {
    "steps": curve.count,
    "skipped_steps": len(curve.lost),
    "skipped_share": curve.lost_share,
    "growths": curve.growths,
    "backoffs": curve.backoffs,
    "first_scale": scales[0],
    "last_scale": scales[-1],
    "lowest_scale": min(scales),
    "highest_scale": max(scales),
    "ended_at_step": curve.last + 1 if run.ended else None,
  }


def _write_json(
  runs: Sequence[_Run], steps: Steps, printer: terminal.Printer
) -> None:
  """Prints the runs as a JSON object in one line."""
  import json

  flags = enumerate(steps.finite, steps.first)
  value = {
    "first_step": steps.first,
    "steps": len(steps.finite),
    "overflows": [step for step, finite in flags if not finite],
    "notes": [*steps.notes, _CAVEAT],
    "policies": [
      {
        "like": run.policy.system,
        "arguments": run.policy.rule.get_config(),
        "scales": run.curve.changes,
        "summary": _summarize(run),
      }
      for run in runs
    ],
  }
  printer.write(f"{json.dumps(value)}\n")


def _write_text(
  runs: Sequence[_Run], steps: Steps, printer: terminal.Printer
) -> None:
  """Prints a chart and a summary of each run."""
  from tf_compat_lossscale.cli import charts
  from tf_compat_lossscale.monitoring import facts

  axis = charts.make_axis({x for run in runs for x in run.curve.scales})
  chart = charts.Chart(printer, axis, steps.first, len(steps.finite))
  for policy, curve, ended in runs:
    printer.print((policy.title, "bold"))
    chart.print(curve, "overflow", ended)
    printer.print(curve.describe_counts())
    printer.print(curve.describe_scales())
    if ended:
      printer.print(
        (
          f"The run ends at step {curve.last + 1} (!): the step is not finite, "
          "and the scale is at its minimum, "
          f"{facts.show_power(curve.changes[-1][1])}.",
          "red",
        )
      )
    printer.print()
  for note in (*steps.notes, _CAVEAT):
    printer.print(note)
