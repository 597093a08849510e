# SPDX-License-Identifier: Apache-2.0
"""`tf-lossscale inspect`: describes checkpoints."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import json
import math
import sys
from typing import Any
from typing import TYPE_CHECKING

from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import terminal
from tf_compat_lossscale.cli.convert import add_map

if TYPE_CHECKING:
  from tf_compat_lossscale.checkpoint import Description
  from tf_compat_lossscale.checkpoint import LossScaleState

_KINDS = {
  "saver": "variables by name (tf.compat.v1.train.Saver)",
  "object": "objects (tf.train.Checkpoint)",
  "saved_model": "the variables of a SavedModel",
}
SUMMARY = "describe a checkpoint: its writer and its loss scale"


def add_arguments(parser: errors.Parser) -> None:
  """Adds the subcommand's description and arguments to its parser."""
  parser.description = (
    "Describes checkpoints: which API and release wrote them, what their loss "
    "scales are, and how to restore them today. The exit status is 2 if a "
    "checkpoint cannot be read."
  )
  parser.add_argument(
    "paths",
    nargs="+",
    metavar="PATH",
    help="a checkpoint's prefix or index, a folder or its file checkpoint (the "
    "latest checkpoint), a folder of such folders, or a SavedModel; also on "
    "TensorFlow's file systems, such as gs://bucket/model.ckpt-10",
  )
  parser.add_format()
  parser.add_flag("--keys", "list every tensor")
  add_map(parser, "show which names --map of convert would change;")
  parser.add_flag(
    "--verify",
    "read every tensor and compare it with its checksum, also beyond 64 MiB",
  )


def execute(arguments: argparse.Namespace) -> int:
  """Prints the descriptions and returns the exit status."""
  with terminal.quiet_tensorflow():
    from tf_compat_lossscale import checkpoint
    from tf_compat_lossscale.checkpoint import pairs
    from tf_compat_lossscale.checkpoint import reading

  descriptions = []
  status = 0
  for given in arguments.paths:
    for path in reading.expand(given):
      try:
        with terminal.show_progress(f"Reading {path}"):
          description = checkpoint.describe(path, arguments.verify)
          renamed = pairs.preview(path, arguments.map) if arguments.map else {}
      except checkpoint.CheckpointError as error:
        if arguments.traceback:
          raise
        errors.warn(errors.as_line(error), "inspect")
        status = 2
        continue
      descriptions.append(description)
      if arguments.format == "text":
        if len(descriptions) > 1:
          print()
        _show(description, arguments.keys)
        for new, old in renamed.items():
          terminal.Printer(sys.stdout).print(f"map: {new} from {old}")
  if arguments.format == "json":
    print(_as_json(descriptions, arguments.keys))
  return status


def _as_json(descriptions: list[Description], keys: bool) -> str:
  """Returns descriptions as a JSON list, with every tensor if `keys`."""
  result = []
  for description in descriptions:
    plain = _make_plain(vars(description))
    if not keys:
      del plain["keys"]
    result.append(plain | {"advice": description.advice})
  return json.dumps(result, indent=2)


def _make_plain(value: Any) -> Any:
  """Returns a value that JSON can have: not a number becomes a string."""
  if hasattr(value, "_asdict"):
    value = value._asdict()
  elif hasattr(value, "__dataclass_fields__"):
    value = vars(value)
  if isinstance(value, dict):
    return {key: _make_plain(item) for key, item in value.items()}
  if isinstance(value, (list, tuple)):
    return [_make_plain(item) for item in value]
  if isinstance(value, float) and not math.isfinite(value):
    return str(value)
  return value


def _show(description: Description, keys: bool) -> None:
  """Prints a description: on a terminal, its keys are bold."""
  printer = terminal.Printer(sys.stdout)
  listed = description.keys if keys else {}
  rows = ((f"  {name}", str(tensor)) for name, tensor in listed.items())
  for name, value in (*_make_rows(description), *rows):
    printer.print((f"{name}:", "bold"), f" {value}")


def _make_rows(d: Description) -> Iterator[tuple[str, str]]:
  """Yields the rows of a description as (name, value)."""
  yield "checkpoint", d.path
  yield "kind", _KINDS[d.kind]
  by = d.api or "unknown"
  if not d.api and not d.loss_scales and not d.notes:
    by += " (it has no state of a loss scale)"
  yield "written by", f"{by}, {d.release}" if d.release else by
  yield "step", "unknown" if d.step is None else str(d.step)
  if d.control_flow:
    yield "control flow", d.control_flow
  yield "inner optimizer", d.inner_optimizer or "does not show"
  for state in d.loss_scales:
    yield "loss scale", _describe_state(state)
  if not d.loss_scales:
    none = "none is proven" if d.notes else "none in it"
    yield "loss scale", f"{none} (a fixed loss scale has no state)"
  for note in d.notes:
    yield "note", note
  yield (
    "checksums",
    "all right"
    if d.checked
    else "of these values right; --verify compares all",
  )
  yield "tensors", str(len(d.keys))
  yield "today", d.advice


def _describe_state(state: LossScaleState) -> str:
  """Returns a loss scale, its counters and their names in words."""
  counts = [
    f"{count} {what} steps"
    for count, what in (
      (state.good_steps, "good"),
      (state.bad_steps, "bad"),
      (state.skipped_steps, "skipped"),
    )
    if count is not None
  ]
  if state.good_steps is None:
    counts.append("its counter of good steps is missing")
  value = ", ".join([f"{state.value:.9g}", *counts])
  return f"{value} ({', '.join(state.names)})"
