# SPDX-License-Identifier: Apache-2.0
"""Ascend's collective operations, in a world of one process."""

from __future__ import annotations

import os
from typing import Any

import tensorflow.compat.v1 as tf


def _check_world() -> None:
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


def get_rank_size(group: str = "hccl_world_group") -> int:
  """Returns the number of processes, 1.

  Raises:
    RuntimeError: The environment variable RANK_SIZE says another number.
  """
  del group
  _check_world()
  return 1


def get_rank_id(group: str = "hccl_world_group") -> int:
  """Returns the number of this process, 0; the error is `get_rank_size`'s."""
  return get_rank_size(group) - 1


get_local_rank_size = get_npu_rank_size = get_npu_local_rank_size = (
  get_rank_size
)
get_local_rank_id = get_npu_rank_id = get_npu_local_rank_id = get_rank_id


def get_ranksize() -> str:
  """Returns the number of processes as text, "1"."""
  return str(get_rank_size())


def get_world_rank_from_group_rank(group: str, group_rank_id: int) -> int:
  """Returns the number of a process in the world, 0."""
  del group_rank_id
  return get_rank_id(group)


get_group_rank_from_world_rank = get_world_rank_from_group_rank


def do_nothing(*args: Any, **kwargs: Any) -> None:
  """Stands for functions that set up what this hardware lacks."""
  del args, kwargs


def _copy(tensor: Any) -> Any:
  """Returns the tensor, or each of a list."""
  _check_world()
  if isinstance(tensor, (list, tuple)):
    return [tf.identity(each) for each in tensor]
  return tf.identity(tensor)


def allreduce(
  tensor: Any,
  reduction: str = "sum",
  fusion: int = 1,
  fusion_id: int = -1,
  group: str = "hccl_world_group",
) -> Any:
  """Returns the tensor, or each of a list: the sum over one process.

  Raises:
    RuntimeError: As of `get_rank_size`.
  """
  del reduction, fusion, fusion_id, group
  return _copy(tensor)


def average(tensor: Any, average: bool = True) -> Any:
  """Returns the tensor or `IndexedSlices`: the mean over one process."""
  del average
  _check_world()
  return tensor


def allgather(
  tensor: Any, rank_size: int, group: str = "hccl_world_group"
) -> Any:
  """Returns the tensor: those of one process, one after the other."""
  del rank_size, group
  return _copy(tensor)


def broadcast(
  tensor: Any,
  root_rank: int,
  fusion: int = 2,
  fusion_id: int = 0,
  group: str = "hccl_world_group",
) -> Any:
  """Returns the tensor, or each of a list: those of the one process."""
  del root_rank, fusion, fusion_id, group
  return _copy(tensor)


def reduce(
  tensor: Any,
  reduction: str,
  root_rank: int,
  fusion: int = 0,
  fusion_id: int = -1,
  group: str = "hccl_world_group",
) -> Any:
  """Returns the tensor: the sum over one process."""
  del reduction, root_rank, fusion, fusion_id, group
  return _copy(tensor)


def reduce_scatter(
  tensor: Any,
  reduction: str,
  rank_size: int,
  group: str = "hccl_world_group",
) -> Any:
  """Returns the tensor: this process's part of the sum over one process."""
  del reduction, rank_size, group
  return _copy(tensor)


def all_reduce_values(
  values: Any, reduction: str = "mean", *args: Any, **kwargs: Any
) -> Any:
  """Returns the values: their mean or sum over one process."""
  del reduction, args, kwargs
  _check_world()
  return values


def broadcast_values(
  values: Any, root_rank: int = 0, *args: Any, **kwargs: Any
) -> None:
  """Leaves the variables as they are: there is one process."""
  del values, root_rank, args, kwargs
  _check_world()


def shard_and_rebatch_dataset(dataset: Any, global_bs: int) -> tuple[Any, int]:
  """Returns the dataset and its batch size: one process reads all of it."""
  _check_world()
  return dataset, global_bs
