# SPDX-License-Identifier: Apache-2.0
"""KataGo's trainer: an Estimator on a small board, with noise as games."""

import json
import pathlib

import numpy as np
import tensorflow as tf

from strangers_table import Program

_BATCH, _BOARD = 4, 9
_COMMAND = (
  *("{repo}/python/train.py", "-traindir", "{work}/model", "-datadir"),
  *("{work}/data", "-exportdir", "{work}/out", "-exportprefix", "net"),
  *("-pos-len", str(_BOARD), "-batch-size", str(_BATCH), "-gpu-memory-frac"),
  *("0.5", "-model-kind", "b2c16", "-sub-epochs", "1", "-samples-per-epoch"),
  *("40", "-max-epochs-this-instance", "1", "-no-export"),
)


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes ten batches of noise, in the trainer's format."""
  del repo
  places = _BOARD * _BOARD
  sizes = {
    "ginc": 19,
    "ptncm": 2 * (places + 1),
    "gtnc": 64,
    "sdn": 2 * places + 120,
    "vtnchw": 5 * places,
  }
  random = np.random.RandomState(1)
  folder = work / "data" / "train"
  folder.mkdir(parents=True)
  (work / "data" / "train.json").write_text(json.dumps({"range": [0, 40]}))
  (folder / "data0.json").write_text(json.dumps({"num_batches": 10}))
  options = tf.io.TFRecordOptions("ZLIB")
  path = str(folder / "data0.tfrecord")
  with tf.io.TFRecordWriter(path, options) as writer:
    for _ in range(10):
      features = tf.train.Example().features
      planes = random.randint(0, 256, [_BATCH, 22, (places + 7) // 8])
      features.feature["binchwp"].bytes_list.value.append(
        planes.astype(np.uint8).tobytes()
      )
      for name, size in sizes.items():
        features.feature[name].float_list.value.extend(
          random.uniform(size=_BATCH * size)
        )
      writer.write(tf.train.Example(features=features).SerializeToString())


PROGRAM = Program(
  name="katago",
  repository="lightvector/KataGo",
  commit="ff49d04ad6bcfa056c63492439a41e2f3bce0847",
  paths=("python",),
  title="python/train.py",
  folder=None,
  path=("python",),
  start=(_COMMAND,),
  checkpoint="{work}/model",
  prepare=prepare,
  scale="no loss scale: it trains in float32",
  remark="version 1.10.0",
)
