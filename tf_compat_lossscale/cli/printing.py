# SPDX-License-Identifier: Apache-2.0
"""Prints descriptions of checkpoints as text or JSON."""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
import json
import math
import sys
from typing import Any

from tf_compat_lossscale.checkpoint.description import Description
from tf_compat_lossscale.checkpoint.description import LossScaleState
from tf_compat_lossscale.checkpoint.files.checkpoint_error import escape
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec
from tf_compat_lossscale.cli import terminal

_KINDS = {
  "saver": "variables by name (tf.compat.v1.train.Saver)",
  "object": "objects (tf.train.Checkpoint)",
  "saved_model": "the variables of a SavedModel",
  "keras_h5": "a Keras HDF5 file",
  "keras": "a Keras file",
  "npz": "arrays of NumPy (.npz)",
  "safetensors": "tensors of the safetensors package",
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
  first = ", in the first format (V1)" if d.is_first_format else ""
  yield "kind", _KINDS[d.kind] + first
  if d.kind in ("npz", "safetensors"):
    yield "loss scale", "not looked for: such files have weights alone"
    yield "checksums", _describe_checksums(d)
    yield "tensors", str(len(d.keys))
    yield "today", d.advice
    return
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
    yield from _describe_rule(state)
  if not d.loss_scales:
    none = "none is proven" if d.notes else "none in it"
    yield "loss scale", f"{none} (a fixed loss scale has no state)"
  if d.masters:
    weight, master = next(iter(d.masters.items()))
    yield (
      "masters",
      f"{len(d.masters)} float32 masters of float16 weights, such as {master} "
      f"of {weight}",
    )
  for note in d.notes:
    yield "note", note
  yield "checksums", _describe_checksums(d)
  yield "tensors", str(len(d.keys))
  yield "today", d.advice


def _describe_rule(state: LossScaleState) -> Iterator[tuple[str, str]]:
  """Yields what is known of the rule of another system's loss scale."""
  if state.system is None:
    return
  yield "  system", state.system
  for name, value in state.counters.items():
    yield "  counter", f"{name} {value:.9g}"
  if state.rule:
    arguments = ", ".join(f"{n}={v:.9g}" for n, v in state.rule.items())
    yield "  nearest", f"DynamicLossScale({arguments})"
  if state.policy:
    yield "  same rule", state.policy
  for note in state.notes:
    yield "  note", note


def _describe_checksums(d: Description) -> str:
  """Returns which checksums were compared, in words."""
  if d.checked:
    return "all right"
  without = {"keras_h5": "HDF5", "safetensors": "safetensors"}.get(d.kind)
  if without:
    return f"none in {without}: damage to numbers does not show"
  if d.kind == "npz":
    return "not compared; --verify compares all"
  return "of these values right; --verify compares all"


def _describe_state(state: LossScaleState) -> str:
  """Returns a loss scale, its counters and their names in words."""
  if state.value is None:
    return f"starts from {state.initial:g}; its value was not saved"
  counts = [
    f"{count} {what} steps"
    for count, what in (
      (state.good_steps, "good"),
      (state.bad_steps, "bad"),
      (state.skipped_steps, "skipped"),
    )
    if count is not None
  ]
  if state.good_steps is None and state.system is None:
    counts.append("its counter of good steps is missing")
  value = ", ".join([f"{state.value:.9g}", *counts])
  return f"{value} ({', '.join(state.names)})"
