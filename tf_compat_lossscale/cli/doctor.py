# SPDX-License-Identifier: Apache-2.0
"""`tf-lossscale doctor`: says whether loss scales are all right."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import os
import sys
from typing import Any
from typing import NamedTuple
from typing import TYPE_CHECKING

from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import terminal

if TYPE_CHECKING:
  from tf_compat_lossscale.monitoring.verdicts import Verdict

SUMMARY = "say what is wrong with the loss scale of a run or a checkpoint"
_SICK = 1
_MISTAKE = 2


class _Finding(NamedTuple):
  """A verdict on something.

  Attributes:
    path: The log or the checkpoint.
    what: 'run' or 'checkpoint'.
    name: The loss scale's variable in a checkpoint that has several, or "".
    verdict: The verdict.
  """

  path: str
  what: str
  name: str
  verdict: Verdict


def add_arguments(parser: errors.Parser) -> None:
  """Adds the subcommand's description and arguments to its parser."""
  parser.description = (
    "Judges the loss scale of monitored runs and of checkpoints: whether it is "
    "healthy, what shows that, and what to do. The exit status is 0 if all is "
    "healthy or too short to tell, 1 if something is wrong, and 2 for a "
    "mistake or if a path cannot be read."
  )
  parser.add_argument(
    "paths",
    nargs="+",
    metavar="PATH",
    help="the output_dir of monitoring.LossScaleHook, a file in it, or a "
    "folder above, such as the model_dir; or a checkpoint, as for `inspect`",
  )
  parser.add_argument("--format", choices=("text", "json"), default="text")


def execute(arguments: argparse.Namespace) -> int:
  """Prints the verdicts and returns the exit status."""
  findings: list[_Finding] = []
  is_unreadable = False
  for path in arguments.paths:
    try:
      with terminal.announce(f"Reading {path}"):
        for finding in _examine(path):
          findings.append(finding)
    except (errors.Mistake, OSError) as error:
      if arguments.traceback:
        raise
      errors.warn(errors.as_line(error), "doctor")
      is_unreadable = True
  with terminal.allow_closed_pipe():
    write = _write_json if arguments.format == "json" else _write_text
    write(findings, terminal.Printer(sys.stdout))
  if is_unreadable:
    return _MISTAKE
  is_healthy = all(finding.verdict.is_healthy for finding in findings)
  return 0 if is_healthy else _SICK


def _examine(path: str) -> Iterator[_Finding]:
  """Yields the verdicts on the log and on the checkpoint of a path.

  Raises:
    Mistake: There is neither, or one is damaged.
    OSError: A file cannot be read.
  """
  from tf_compat_lossscale import checkpoint
  from tf_compat_lossscale.monitoring import rows
  from tf_compat_lossscale.monitoring import run_logs
  from tf_compat_lossscale.monitoring import verdicts

  if not path:
    raise errors.Mistake("'' is no path")
  missing = damaged = ""
  is_found = False
  if os.path.isdir(path) or run_logs.is_log_file(path):
    for source in run_logs.find_runs(path):
      try:
        log = run_logs.read_run(source)
      except rows.MissingLogError as error:
        # Programs write event files of their own beside their checkpoints.
        missing = str(error)
      except rows.LogError as error:
        damaged = str(error)
      else:
        is_found = True
        yield _Finding(log.source, "run", "", verdicts.judge(log))
    if damaged:
      raise errors.Mistake(damaged)
    if os.path.isfile(path):
      if missing:
        raise errors.Mistake(missing)
      return
  try:
    yield from _examine_checkpoint(path)
  except checkpoint.CheckpointError as error:
    if _has_checkpoint(path):
      raise errors.Mistake(str(error)) from error
    if not is_found:
      raise errors.Mistake(f"{missing}; nor is there a checkpoint") from error


def _has_checkpoint(path: str) -> bool:
  """Returns whether a path, which cannot be read, should be a checkpoint."""
  if not os.path.isdir(path):
    return True
  names = os.listdir(path)
  return "checkpoint" in names or any(n.endswith(".index") for n in names)


def _examine_checkpoint(path: str) -> Iterator[_Finding]:
  """Yields the verdict on each loss scale of a checkpoint."""
  from tf_compat_lossscale import checkpoint
  from tf_compat_lossscale.monitoring import state_verdicts
  from tf_compat_lossscale.monitoring import verdicts

  description = checkpoint.describe(path)
  states = description.loss_scales
  for state in states:
    name = state.names[0] if state.names and len(states) > 1 else ""
    verdict = state_verdicts.judge_state(
      state.value,
      state.good_steps,
      state.skipped_steps,
      description.step,
    )
    yield _Finding(description.path, "checkpoint", name, verdict)
  if not states:
    verdict = verdicts.Verdict(
      "too_short",
      "The checkpoint has no dynamic loss scale: a fixed one has no state.",
    )
    yield _Finding(description.path, "checkpoint", "", verdict)


def _write_text(findings: list[_Finding], printer: terminal.Printer) -> None:
  """Prints the verdicts for people."""
  advised: dict[tuple[str, ...], str] = {}  # Advice, and where it stands.
  for i, (path, what, name, verdict) in enumerate(findings):
    if i:
      printer.print()
    which = f", loss scale {name}" if name else ""
    printer.print((f"{what} {path}{which}", "bold"))
    style = "green" if verdict.is_healthy else "bold red"
    printer.print((verdict.sentence, style))
    advice = verdict.advice
    known = advised.setdefault(tuple(advice), path) if advice else path
    if known != path:
      advice = (f"The same as for {known}.",)
    for title, sentences in (
      ("What shows it:", verdict.evidence),
      ("What to do:", advice),
    ):
      if sentences:
        printer.print((title, "bold"))
      for sentence in sentences:
        printer.print(f"- {sentence}")


def _write_json(findings: list[_Finding], printer: terminal.Printer) -> None:
  """Prints the verdicts as a JSON list."""
  import json

  value = [_make_plain(finding) for finding in findings]
  printer.write(f"{json.dumps(value, indent=2)}\n")


def _make_plain(finding: _Finding) -> dict[str, Any]:
  """Returns a verdict as JSON has it."""
  verdict = finding.verdict
  return {
    "path": finding.path,
    "what": finding.what,
    "loss_scale": finding.name or None,
    "healthy": verdict.is_healthy,
    "kind": verdict.kind,
    "sentence": verdict.sentence,
    "evidence": list(verdict.evidence),
    "advice": list(verdict.advice),
  }
