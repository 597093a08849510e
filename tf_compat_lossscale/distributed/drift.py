# SPDX-License-Identifier: Apache-2.0
"""Compares the loss scales of all workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from typing import Literal
from typing import TypeAlias

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core import horovod
from tf_compat_lossscale._core import wrong_values
from tf_compat_lossscale._core.tf import control_flow
from tf_compat_lossscale.monitoring import watched

_SCALES = ("current_loss_scale", "loss_scale")  # Names of the scale itself.

AllGather: TypeAlias = Literal["horovod"] | Callable[[tf.Tensor], Any]


class DriftError(RuntimeError):
  """The loss scales of workers differ.

  Attributes:
    values: For each variable that differs, the values by worker.
  """

  def __init__(self, message: str, values: dict[str, list[float]]) -> None:
    """Creates an error.

    Args:
      message: What differs.
      values: As the attribute.
    """
    super().__init__(message)
    self.values = values


def check_drift(optimizer: Any, all_gather: AllGather = "horovod") -> None:
  """Checks that the loss scale has the same state on all workers, eagerly.

  All workers must call this after the same step, for instance after every 100
  steps. For sessions, use `DriftHook`.

  Args:
    optimizer: An optimizer that has or wraps a loss scale.
    all_gather: "horovod" for all ranks of Horovod; or a function that gets a
      float64 vector, and returns a matrix with the vectors of all workers, each
      in the row of its worker.

  Raises:
    DriftError: The states differ. All workers raise this error.
    RuntimeError: This is called in a graph; or Horovod is not initialized, or
      has lost a rank.
    ValueError: `optimizer` has no loss scale, or `all_gather` is something
      else.
  """
  if not tf.executing_eagerly():
    raise RuntimeError(
      "check_drift() was called in a graph: use DriftHook in sessions, and "
      "call check_drift() after a tf.function, not inside."
    )
  names, rows = gather_state(optimizer, all_gather)
  compare(names, np.asarray(rows))


def gather_state(
  optimizer: Any, all_gather: AllGather
) -> tuple[list[str], tf.Tensor]:
  """Gathers the state of a loss scale from all workers.

  Args:
    optimizer: As for `check_drift`.
    all_gather: As for `check_drift`.

  Returns:
    A pair: the names of what is compared, and a float64 matrix that has a row
    for each worker and a column for each name.
  """
  gather = find_gather(all_gather)
  loss_scale = watched.find_loss_scale(
    watched.find_optimizer(optimizer, keras=True)
  )
  weights = {
    name: weight
    for name, weight in graph_weights.list_weights(loss_scale).items()
    if name not in _SCALES
    and not weight.shape.rank
    and graph_weights.is_numeric(weight.dtype)
  }
  with tf.name_scope(control_flow.NAME_SCOPE):
    values = [loss_scale(), *weights.values()]
    row = tf.stack(
      [tf.cast(tf.convert_to_tensor(x), tf.float64) for x in values]
    )
    return ["the loss scale", *weights], tf.convert_to_tensor(gather(row))


def find_gather(all_gather: AllGather) -> Callable[[tf.Tensor], Any]:
  """Returns the function that gathers a row of each worker.

  Raises:
    ImportError: `all_gather` is "horovod" and Horovod is not installed.
    RuntimeError: `all_gather` is "horovod" and Horovod is not initialized.
    ValueError: `all_gather` is neither "horovod" nor a function.
  """
  if callable(all_gather):
    return all_gather
  if all_gather == "horovod":
    horovod.load()
    return horovod.gather
  raise ValueError(
    "all_gather must be 'horovod' or a function of a float64 vector, but got "
    f"{wrong_values.show(all_gather, ('horovod',))}."
  )


def compare(
  names: list[str], rows: np.ndarray, steps: int | None = None
) -> None:
  """Checks that all rows are the same.

  Args:
    names: The names of the columns.
    rows: A row for each worker.
    steps: The number of steps so far, for the message.

  Raises:
    DriftError: Two rows differ.
    ValueError: `rows` has another number of columns.
  """
  if rows.ndim != 2 or rows.shape[1] != len(names):
    raise ValueError(
      f"all_gather must return a matrix with {len(names)} columns, as many as "
      f"the vector has elements, but the shape is {rows.shape}."
    )
  # NaN is equal to NaN here.
  bits = np.ascontiguousarray(rows, np.float64).view(np.int64)
  differing = np.flatnonzero((bits != bits[:1]).any(axis=0))
  if not differing.size:
    return
  values = {names[i]: rows[:, i].tolist() for i in differing}
  found = "; ".join(
    f"{name} is {_describe(of_worker)}" for name, of_worker in values.items()
  )
  when = "" if steps is None else f" after {steps} steps"
  raise DriftError(
    f"The loss scales of {len(rows)} workers differ{when}: {found}. So the "
    "workers have skipped different steps, and their weights differ, too. "
    "Restart from a checkpoint of one worker, broadcast all variables from "
    "there, and make the workers average the gradients before the check, or "
    "call tf_compat_lossscale.distributed.agree(optimizer).",
    values,
  )


def _describe(values: list[float]) -> str:
  """Returns values with the workers that have them: `8 on 0, 1 and 4 on 2`."""
  workers: dict[str, list[str]] = {}
  for i, value in enumerate(values):
    workers.setdefault(f"{value:.17g}", []).append(str(i))
  return " and ".join(
    f"{value} on worker{'s' * (len(which) > 1)} {', '.join(which)}"
    for value, which in workers.items()
  )
