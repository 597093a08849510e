# SPDX-License-Identifier: Apache-2.0
"""The strategies of `tf.contrib.distribute`, by their arguments there."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def MirroredStrategy(
  devices: Any = None,
  num_gpus: int | None = None,
  num_gpus_per_worker: int | None = None,
  cross_device_ops: Any = None,
  auto_shard_dataset: bool = False,
  cross_tower_ops: Any = None,
) -> Any:
  """Returns `tf.distribute.MirroredStrategy`.

  Args:
    devices: The devices; by default the GPUs, or the CPU if there are none.
    num_gpus: The number of GPUs to use, if `devices` is None.
    num_gpus_per_worker: Another name of `num_gpus`.
    cross_device_ops: How values are reduced.
    auto_shard_dataset: Must be False.
    cross_tower_ops: An older name of `cross_device_ops`.
  """
  if auto_shard_dataset:
    raise ValueError(
      "auto_shard_dataset=True went with tf.contrib: shard the dataset by "
      "tf.data.Dataset.shard"
    )
  count = num_gpus if num_gpus is not None else num_gpus_per_worker
  if devices is None and count is not None:
    devices = [f"/device:GPU:{i}" for i in range(count)] or ["/device:CPU:0"]
  return tf.distribute.MirroredStrategy(
    devices, cross_device_ops or cross_tower_ops
  )


def CollectiveAllReduceStrategy(
  num_gpus_per_worker: int = 0, communication: Any = None
) -> Any:
  """Returns `tf.distribute.experimental.MultiWorkerMirroredStrategy`.

  The strategy finds a worker's GPUs itself.
  """
  del num_gpus_per_worker
  strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy
  return strategy(communication) if communication is not None else strategy()


def ParameterServerStrategy(num_gpus_per_worker: int = 0) -> Any:
  """Returns `tf.distribute.experimental.ParameterServerStrategy`.

  The strategy finds a worker's GPUs itself.
  """
  del num_gpus_per_worker
  return tf.distribute.experimental.ParameterServerStrategy()


def TPUStrategy(
  tpu_cluster_resolver: Any = None,
  steps_per_run: int | None = None,
  device_assignment: Any = None,
) -> Any:
  """Returns `tf.distribute.experimental.TPUStrategy`."""
  return tf.distribute.experimental.TPUStrategy(
    tpu_cluster_resolver, steps_per_run, device_assignment
  )
