"""Descriptions as people and programs read them, and bars while they wait."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import json
import math
import sys
from typing import Any

from tf_compat_lossscale.checkpoint.description import Description
from tf_compat_lossscale.checkpoint.description import LossScaleState
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec

_KINDS = {
  "saver": "variables by name (tf.compat.v1.train.Saver)",
  "object": "objects (tf.train.Checkpoint)",
  "saved_model": "the variables of a SavedModel",
  "keras_h5": "a Keras HDF5 file",
  "keras": "a Keras file",
}


def as_json(descriptions: list[Description], keys: bool = True) -> str:
  """Descriptions as a JSON list; numbers that JSON has not are strings.

  Args:
    descriptions: What `describe` returned.
    keys: Whether every tensor is listed.
  """
  result = []
  for description in descriptions:
    plain = _plain(dataclasses.asdict(description))
    if not keys:
      del plain["keys"]
    result.append(plain | {"advice": description.advice})
  return json.dumps(result, indent=2)


def _plain(value: Any) -> Any:
  if isinstance(value, dict):
    return {key: _plain(item) for key, item in value.items()}
  if isinstance(value, TensorSpec):
    return {"dtype": value.dtype, "shape": list(value.shape)}
  if isinstance(value, (list, tuple)):
    return [_plain(item) for item in value]
  if isinstance(value, float) and not math.isfinite(value):
    return str(value)
  return value


def show(description: Description, keys: bool = False) -> None:
  """Prints a description: as a table on a terminal, in plain text elsewhere.

  Args:
    description: What `describe` returned.
    keys: Whether every tensor is listed.
  """
  rows = list(_rows(description))
  if keys:
    rows += [
      (f"  {name}", str(tensor)) for name, tensor in description.keys.items()
    ]
  if sys.stdout.isatty():
    try:
      from rich import box
      from rich.console import Console
      from rich.table import Table
    except ImportError:
      pass  # The same in plain text.
    else:
      table = Table(box=box.SIMPLE, show_header=False, title_justify="left")
      table.add_column(style="bold", no_wrap=True)
      table.add_column(overflow="fold")
      for name, value in rows:
        table.add_row(name, value)
      Console(highlight=False, markup=False).print(table)
      return
  for name, value in rows:
    print(f"{name}: {value}")


def _rows(d: Description) -> Iterator[tuple[str, str]]:
  yield "checkpoint", d.path
  yield "kind", _KINDS[d.kind]
  by = d.api or "unknown (it has nothing of a loss scale)"
  yield "written by", f"{by}, {d.release}" if d.release else by
  yield "step", "unknown" if d.step is None else str(d.step)
  if d.control_flow:
    yield "control flow", d.control_flow
  yield "inner optimizer", d.inner_optimizer or "does not show"
  for state in d.loss_scales:
    yield "loss scale", _state(state)
  if not d.loss_scales:
    yield "loss scale", "none in it (a fixed one leaves no trace)"
  yield "checksums", _checksums(d)
  yield "tensors", str(len(d.keys))
  yield "today", d.advice


def _checksums(d: Description) -> str:
  if d.checked:
    return "all right"
  if d.kind == "keras_h5":
    return "none in HDF5: damage to numbers does not show"
  return "of these values right; --verify compares all"


def _state(state: LossScaleState) -> str:
  if state.value is None:
    return f"starts from {state.initial:g}; its value was not saved"
  counts = [
    f"{count} {what} steps"
    for count, what in ((state.good_steps, "good"), (state.bad_steps, "bad"))
    if count is not None
  ]
  value = ", ".join([f"{state.value:.9g}", *counts])
  return f"{value} ({', '.join(state.names)})"


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[[int], Callable[[int], None]]]:
  """A bar on stderr, if that is a terminal and rich is installed.

  Args:
    what: What is done meanwhile.

  Yields:
    A function of the number of bytes to come, as `convert` takes it.
  """
  try:
    if not sys.stderr.isatty():
      raise ImportError
    from rich.console import Console
    from rich.progress import Progress
  except ImportError:
    yield lambda total: lambda size: None
    return
  with Progress(console=Console(stderr=True), transient=True) as bar:

    def start(total: int) -> Callable[[int], None]:
      task = bar.add_task(what, total=total)
      return lambda size: bar.advance(task, size)

    yield start
