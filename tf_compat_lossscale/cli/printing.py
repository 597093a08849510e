# SPDX-License-Identifier: Apache-2.0
"""Prints descriptions of checkpoints as text or JSON."""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
import json
import math
import sys
from typing import Any

from tf_compat_lossscale.checkpoint.describing import Description
from tf_compat_lossscale.checkpoint.describing import LossScaleState
from tf_compat_lossscale.checkpoint.reading import escape
from tf_compat_lossscale.checkpoint.reading import TensorSpec
from tf_compat_lossscale.cli import terminal

_KINDS = {
  "saver": "variables by name (tf.compat.v1.train.Saver)",
  "object": "objects (tf.train.Checkpoint)",
  "saved_model": "the variables of a SavedModel",
}


def as_json(descriptions: list[Description], keys: bool = True) -> str:
  """Returns descriptions as a JSON list.

  NaN and infinities, which JSON does not have, become strings.

  Args:
    descriptions: Results of `describe`.
    keys: Whether every tensor is listed.
  """
  result = []
  for description in descriptions:
    plain = _make_plain(dataclasses.asdict(description))
    if not keys:
      del plain["keys"]
    result.append(plain | {"advice": description.advice})
  return json.dumps(result, indent=2)


def _make_plain(value: Any) -> Any:
  """Returns a value that JSON can have."""
  if isinstance(value, dict):
    return {key: _make_plain(item) for key, item in value.items()}
  if isinstance(value, TensorSpec):
    return {"dtype": value.dtype, "shape": list(value.shape)}
  if isinstance(value, (list, tuple)):
    return [_make_plain(item) for item in value]
  if isinstance(value, float) and not math.isfinite(value):
    return str(value)
  return value


def show(description: Description, keys: bool = False) -> None:
  """Prints a description, on a terminal as a table.

  Args:
    description: A result of `describe`.
    keys: Whether every tensor is listed.
  """
  rows = list(_make_rows(description))
  if keys:
    rows += [
      (f"  {name}", str(tensor)) for name, tensor in description.keys.items()
    ]
  rows = [(escape(name), escape(value)) for name, value in rows]
  printer = terminal.Printer(sys.stdout)
  width = max(len(name) for name, _ in rows) + 2
  for name, value in rows:
    if printer.is_terminal:
      printer.print((name.ljust(width), "bold"), value)
    else:
      printer.print(f"{name}: {value}")


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
