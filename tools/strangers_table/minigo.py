# SPDX-License-Identifier: Apache-2.0
"""Minigo: an Estimator that trains on positions of Go, of noise."""

import pathlib

import numpy as np
import tensorflow as tf

from strangers_table import _switch
from strangers_table import Program

_SIZE, _PLANES = 9, 17
_COMMAND = (
  *("train.py", "{work}/train.tfrecord.zz", "--work_dir={work}/model"),
  *("--train_batch_size=4", "--steps_to_train=10", "--trunk_layers=2"),
  *("--conv_width=8", "--fc_width=8", "--shuffle_buffer_size=50"),
)


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes noise, and in place of Google's Bigtable modules without names."""
  bigtable = repo / "google" / "cloud" / "bigtable"
  bigtable.mkdir(parents=True)
  for name in ("__init__", "column_family", "row_filters"):
    (bigtable / f"{name}.py").touch()
  random, moves = np.random.RandomState(1), _SIZE * _SIZE + 1
  with tf.io.TFRecordWriter(
    str(work / "train.tfrecord.zz"), options="ZLIB"
  ) as writer:
    for _ in range(100):
      board = random.randint(0, 2, [_SIZE, _SIZE, _PLANES]).astype(np.uint8)
      chances = random.dirichlet([1] * moves).astype(np.float32)
      features = tf.train.Features()
      features.feature["x"].bytes_list.value.append(board.tobytes())
      features.feature["pi"].bytes_list.value.append(chances.tobytes())
      features.feature["outcome"].float_list.value.append(
        random.choice([-1, 1])
      )
      writer.write(tf.train.Example(features=features).SerializeToString())


PROGRAM = Program(
  name="minigo",
  repository="tensorflow/minigo",
  commit="6d89c202cdceaf449aefc3149ab2110d44f1a6a4",
  paths=(":(glob)*.py",),
  title="train.py",
  importable=("sgf",),
  start=(_COMMAND,),
  checkpoint="{work}/model",
  needs={"tqdm": "tqdm"},
  prepare=prepare,
  **{
    **_switch.SWITCH,
    "environment": {
      **_switch.SWITCH["environment"],
      "BOARD_SIZE": str(_SIZE),
    },
  },
  unseeded=True,
  remark=f"{_switch.REMARK}; its batches differ from run to run",
)
