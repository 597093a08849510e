# SPDX-License-Identifier: Apache-2.0
"""Grover: a TPUEstimator on a CPU, with Adafactor of its own."""

import json
import pathlib

import numpy as np
import tensorflow as tf

from strangers_table import Program

_LENGTH = 16
_COMMAND = (
  *("lm/train.py", "--config_file={work}/tiny.json", "--train_batch_size=4"),
  *("--input_file={work}/news.tfrecord", f"--max_seq_length={_LENGTH}"),
  *("--output_dir={work}/model", "--save_checkpoints_steps=5"),
)


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes a small model's sizes, and random words as news."""
  sizes = json.loads((repo / "lm/configs/base.json").read_text())
  sizes |= {"hidden_size": 8, "intermediate_size": 16, "vocab_size": 50}
  sizes |= {"num_attention_heads": 2, "num_hidden_layers": 2}
  (work / "tiny.json").write_text(json.dumps(sizes))
  random = np.random.RandomState(1)
  with tf.io.TFRecordWriter(str(work / "news.tfrecord")) as writer:
    for _ in range(64):
      example = tf.train.Example()
      words = random.randint(1, 50, _LENGTH + 1).tolist()
      example.features.feature["input_ids"].int64_list.value.extend(words)
      writer.write(example.SerializeToString())


PROGRAM = Program(
  name="grover",
  repository="rowanz/grover",
  commit="f59a206a8722357c351eae9e937b9f7a53bfda61",
  paths=("lm",),
  title="lm/train.py",
  path=(".",),
  needs={"six": "six"},
  start=((*_COMMAND, "--num_train_steps=10"),),
  resume=((*_COMMAND, "--num_train_steps=20"),),
  checkpoint="{work}/model",
  prepare=prepare,
  scale="no loss scale: it trains in float32",
)
