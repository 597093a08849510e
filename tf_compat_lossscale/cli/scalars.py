# SPDX-License-Identifier: Apache-2.0
"""Reads a run's loss scale back from TensorFlow's event files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import os
from typing import NamedTuple

from tf_compat_lossscale.cli import errors

_TAG = "loss_scale/value"
_SKIPPED = "loss_scale/skipped_total"
_FILES = "*tfevents*"


class Row(NamedTuple):
  """A step, the loss scale after it, and whether the step was skipped."""

  step: int
  scale: float
  skipped: bool


def add_arguments(parser: errors.Parser) -> None:
  """Adds the arguments that say what to read."""
  parser.add_argument(
    "dir",
    metavar="DIR",
    help="the output_dir of LossScaleHook, or another "
    "folder with event files of one run, or an event file",
  )
  parser.add_argument(
    "--tag",
    default=_TAG,
    help="the scalar that is the loss scale (default: %(default)s); without "
    f"{_SKIPPED}, a step counts as skipped if the scale falls",
  )


def read(arguments: argparse.Namespace) -> list[Row]:
  """Returns the rows of a run, in the order of the steps; at least one.

  A session that starts at a step replaces what earlier sessions wrote from that
  step on.
  """
  kept = os.dup(2)
  with open(os.devnull, "wb") as null:
    os.dup2(null.fileno(), 2)  # TensorFlow writes there from its import on.
  try:
    return _read(arguments)
  finally:
    os.dup2(kept, 2)
    os.close(kept)


def _read(arguments: argparse.Namespace) -> list[Row]:
  import tensorflow as tf

  if not tf.io.gfile.exists(arguments.dir):
    raise errors.Mistake(f"{arguments.dir}: there is no such file or folder")
  files = [arguments.dir]
  if tf.io.gfile.isdir(arguments.dir):
    # The names begin with the time.
    files = sorted(tf.io.gfile.glob(os.path.join(arguments.dir, _FILES)))
  if not files:
    below = tf.io.gfile.glob(os.path.join(arguments.dir, "*", _FILES))
    folders = sorted({os.path.dirname(path) for path in below})
    hint = f", but there are some in {', '.join(folders)}" if folders else ""
    raise errors.Mistake(f"{arguments.dir}: there is no event file{hint}")
  rows: list[Row] = []
  tags: set[str] = set()
  for path in files:
    found = _read_file(path, arguments.tag, tags)
    rows = [row for row in rows if not found or row.step < found[0].step]
    rows += found
  if not rows:
    others = ", ".join(sorted(tags)) or "none"
    raise errors.Mistake(
      f"{arguments.dir}: there is no scalar {arguments.tag}; choose one by "
      f"--tag, of: {others}"
    )
  return rows


def count_skipped(rows: Sequence[Row]) -> tuple[int, float]:
  """Returns how many steps were skipped, and their share."""
  count = sum(row.skipped for row in rows)
  return count, min(count / max(rows[-1].step - rows[0].step, 1), 1.0)


def _read_file(path: str, tag: str, tags: set[str]) -> list[Row]:
  """Returns the rows of an event file, and adds the names of its scalars."""
  import tensorflow as tf

  rows: dict[int, Row] = {}
  scale = total = 0.0
  try:
    for event in tf.compat.v1.train.summary_iterator(path):
      found = {}
      for value in event.summary.value:
        tensor = value.tensor
        if value.HasField("simple_value"):
          found[value.tag] = value.simple_value
        elif tensor.dtype == tf.float32 and not tensor.tensor_shape.dim:
          found[value.tag] = float(tf.make_ndarray(tensor))
      tags.update(found)
      if tag in found:
        before, scale = scale, found[tag]
        skipped = scale < before
        if _SKIPPED in found and tag == _TAG:
          skipped, total = found[_SKIPPED] > total, found[_SKIPPED]
        rows[event.step] = Row(event.step, scale, skipped)
  except tf.errors.DataLossError as error:
    # A run that goes on, or was killed, has not finished its last record.
    if "truncated" not in str(error):
      raise errors.Mistake(f"{path}: {error.message}") from error
  return [rows[step] for step in sorted(rows)]
