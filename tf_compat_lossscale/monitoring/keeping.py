# SPDX-License-Identifier: Apache-2.0
"""Keeps the state of a stuck run: a checkpoint, and a report beside it."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import json
import os
import shutil
import tempfile
from typing import Any
from typing import NamedTuple

from absl import logging
import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import tracking

_CHECKPOINT = "state"
_REPORT = "report.json"


class _Part(NamedTuple):
  """A variable of a checkpoint, or a partition of one.

  Attributes:
    name: The name in the checkpoint.
    slice: Which part of the variable this is, as `SaveV2` takes it; "" for a
      whole variable.
    value: The value.
  """

  name: str
  slice: str
  value: np.ndarray


def keep_session(
  session: tf.compat.v1.Session,
  folder: str,
  message: str,
  feed_dict: Mapping[Any, Any] | None,
) -> None:
  """Keeps the global variables of a session, by name as `Saver` does.

  No op is added to the session's graph. Variables without a value are left out.

  Args:
    session: The session.
    folder: The path of a new folder.
    message: Says why the run is stuck.
    feed_dict: What was fed in the last run. Only shapes and dtypes are kept.
  """
  with session.graph.as_default():
    variables = tf.compat.v1.global_variables()
  parts = []
  for variable in variables:
    try:
      value = session.run(variable)
    except tf.errors.FailedPreconditionError:
      continue
    info = tracking.find_slice(variable)
    name = variable.op.name if info is None else info.full_name
    parts.append(_Part(name, "" if info is None else info.spec, value))
  fed = {
    getattr(key, "name", str(key)): value
    for key, value in (feed_dict or {}).items()
  }
  _keep(folder, message, parts, fed)


def keep_variables(
  variables: Iterable[tf.Variable], folder: str, message: str, inputs: Any
) -> None:
  """Keeps variables of eager code, by name.

  Args:
    variables: The variables. Of several with one name, the later ones get a
      number.
    folder: The path of a new folder.
    message: Says why the run is stuck.
    inputs: A nest of what was fed in the last step. Only shapes and dtypes are
      kept.
  """
  parts: dict[str, _Part] = {}
  for variable in variables:
    stem = name = variable.name.split(":")[0]
    number = 1
    while name in parts:
      name, number = f"{stem}_{number}", number + 1
    parts[name] = _Part(name, "", variable.numpy())
  fed = {
    str(i): value
    for i, value in enumerate(tf.nest.flatten(inputs, expand_composites=True))
  }
  _keep(folder, message, list(parts.values()), fed)


def _keep(
  folder: str, message: str, parts: list[_Part], fed: Mapping[str, Any]
) -> None:
  """Writes a checkpoint and a report; logs a warning if that fails.

  The folder appears when everything is written.
  """
  report = {
    "message": message,
    "checkpoint": _CHECKPOINT,
    "variables": len({part.name for part in parts}),
    "fed": {name: _describe(value) for name, value in fed.items()},
  }
  unfinished = None
  try:
    parent, name = os.path.split(os.path.abspath(folder))
    os.makedirs(parent, exist_ok=True)
    unfinished = tempfile.mkdtemp(prefix=f".{name}.", dir=parent)
    if parts:
      _save(os.path.join(unfinished, _CHECKPOINT), parts)
    # TensorFlow's own writer of this file logs that it is deprecated.
    _write(unfinished, "checkpoint", f'model_checkpoint_path: "{_CHECKPOINT}"')
    _write(unfinished, _REPORT, json.dumps(report, indent=2))
    os.chmod(unfinished, 0o755)
    os.rename(unfinished, _find_free(folder))
  except (OSError, tf.errors.OpError) as error:
    logging.warning("%s: the state could not be kept: %s", folder, error)
    if unfinished is not None:
      shutil.rmtree(unfinished, ignore_errors=True)


def _write(folder: str, name: str, text: str) -> None:
  """Writes a file of text."""
  with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
    file.write(f"{text}\n")


def _find_free(folder: str) -> str:
  """Returns the path of a folder that does not exist yet."""
  number, free = 1, folder
  while os.path.exists(free):
    number += 1
    free = f"{folder}-{number}"
  return free


def _save(prefix: str, parts: list[_Part]) -> None:
  """Writes a checkpoint, by way of a graph of its own."""
  with tf.Graph().as_default():
    tensors = [
      tf.compat.v1.placeholder(tf.as_dtype(part.value.dtype), part.value.shape)
      for part in parts
    ]
    save = tf.raw_ops.SaveV2(
      prefix=prefix,
      tensor_names=[part.name for part in parts],
      shape_and_slices=[part.slice for part in parts],
      tensors=tensors,
    )
    values = {tensor: part.value for tensor, part in zip(tensors, parts)}
    with tf.compat.v1.Session() as session:
      session.run(save, values)


def _describe(value: Any) -> dict[str, Any]:
  """Returns the shape and the dtype of what was fed; else its type."""
  shown = {"type": type(value).__name__}
  if not hasattr(value, "shape") or not hasattr(value, "dtype"):
    try:
      value = np.asarray(value)
    except (TypeError, ValueError):  # A sparse value has several tensors.
      return shown
  return {
    "shape": [None if size is None else int(size) for size in value.shape],
    "dtype": tf.as_dtype(value.dtype).name,
  }
