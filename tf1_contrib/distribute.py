# SPDX-License-Identifier: Apache-2.0
"""The strategies of `tf.contrib.distribute`, by their arguments there."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


class MirroredStrategy(tf.distribute.MirroredStrategy):
  """`tf.distribute.MirroredStrategy`, which may be given a number of GPUs."""

  def __init__(
    self,
    devices: Any = None,
    num_gpus: int | None = None,
    num_gpus_per_worker: int | None = None,
    cross_device_ops: Any = None,
    auto_shard_dataset: bool = False,
    cross_tower_ops: Any = None,
  ):
    """Creates the strategy.

    Args:
      devices: The names of devices; by default the GPUs, or the CPU if there
        are none.
      num_gpus: The number of GPUs to use, if `devices` is None; 0 for the CPU.
      num_gpus_per_worker: Another name of `num_gpus`.
      cross_device_ops: How values are reduced.
      auto_shard_dataset: Must be False.
      cross_tower_ops: An older name of `cross_device_ops`.

    Raises:
      ValueError: `auto_shard_dataset` is true.
    """
    if auto_shard_dataset:
      raise ValueError(
        "auto_shard_dataset=True went with tf.contrib: shard the dataset by "
        "tf.data.Dataset.shard"
      )
    count = num_gpus if num_gpus is not None else num_gpus_per_worker
    if devices is None and count is not None:
      devices = [f"/device:GPU:{i}" for i in range(count)] or ["/device:CPU:0"]
    super().__init__(devices, cross_device_ops or cross_tower_ops)


class CollectiveAllReduceStrategy(
  tf.distribute.experimental.MultiWorkerMirroredStrategy
):
  """`tf.distribute.experimental.MultiWorkerMirroredStrategy`.

  The strategy finds a worker's GPUs itself.
  """

  def __init__(self, num_gpus_per_worker: int = 0, communication: Any = None):
    """Creates the strategy; `num_gpus_per_worker` is not used."""
    del num_gpus_per_worker
    given = () if communication is None else (communication,)
    super().__init__(*given)


class ParameterServerStrategy(
  tf.distribute.experimental.ParameterServerStrategy
):
  """`tf.distribute.experimental.ParameterServerStrategy`.

  The strategy finds a worker's GPUs itself.
  """

  def __init__(self, num_gpus_per_worker: int = 0):
    """Creates the strategy; `num_gpus_per_worker` is not used."""
    del num_gpus_per_worker
    super().__init__()

  # TensorFlow's own methods of this class do not return what they compute.
  run = tf.distribute.Strategy.run
  experimental_distribute_dataset = (
    tf.distribute.Strategy.experimental_distribute_dataset
  )
