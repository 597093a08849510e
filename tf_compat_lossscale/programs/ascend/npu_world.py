# SPDX-License-Identifier: Apache-2.0
"""Ascend's collective operations, in a world of one process."""

from __future__ import annotations

import os
from typing import Any

import tensorflow.compat.v1 as tf


def check() -> None:
  """Checks that the program was started as one process.

  Raises:
    RuntimeError: The environment says that there are several.
  """
  size = os.environ.get("RANK_SIZE", "1")
  if size not in ("", "1"):
    raise RuntimeError(
      f"RANK_SIZE is {size!r}, but processes of Ascend programs train together "
      "on Ascend's NPUs alone. Here there is one process: unset RANK_SIZE, or "
      "set RANK_SIZE=1."
    )


def get_rank_size(*args: Any, **kwargs: Any) -> int:
  """Returns the number of processes, 1; the error is `check`'s."""
  del args, kwargs
  check()
  return 1


def get_rank_id(*args: Any, **kwargs: Any) -> int:
  """Returns the number of this process, 0; the error is `check`'s."""
  del args, kwargs
  check()
  return 0


def get_ranksize() -> str:
  """Returns the number of processes as text, "1"."""
  return str(get_rank_size())


def do_nothing(*args: Any, **kwargs: Any) -> None:
  """Stands for functions that set up what this hardware lacks."""
  del args, kwargs


def copy(tensor: Any, *args: Any, **kwargs: Any) -> Any:
  """Returns the tensor, or each of a list: what one process has computed.

  Args:
    tensor: A tensor, or a list of tensors.
    *args: How several processes would exchange tensors.
    **kwargs: The same.

  Raises:
    RuntimeError: As of `check`.
  """
  del args, kwargs
  check()
  if isinstance(tensor, (list, tuple)):
    return [tf.identity(each) for each in tensor]
  return tf.identity(tensor)


def average(tensor: Any, average: bool = True) -> Any:
  """Returns the tensor or `IndexedSlices`: the mean over one process."""
  del average
  check()
  return tensor


def all_reduce_values(
  values: Any, reduction: str = "mean", *args: Any, **kwargs: Any
) -> Any:
  """Returns the values: their mean or sum over one process."""
  del reduction, args, kwargs
  check()
  return values


def broadcast_values(
  values: Any, root_rank: int = 0, *args: Any, **kwargs: Any
) -> None:
  """Leaves the variables as they are: there is one process."""
  del values, root_rank, args, kwargs
  check()


def shard_and_rebatch_dataset(dataset: Any, global_bs: int) -> tuple[Any, int]:
  """Returns the dataset and its batch size: one process reads all of it."""
  check()
  return dataset, global_bs
