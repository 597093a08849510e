# SPDX-License-Identifier: Apache-2.0
"""XLNet's pretraining on a GPU: a loop in a session, on a CPU here."""

import json
import pathlib

import numpy as np
import tensorflow as tf

from strangers_table import Program

_LENGTH = 16
_COMMAND = (
  *("train_gpu.py", "--record_info_dir={work}", "--model_dir={work}/model"),
  *("--num_core_per_host=1", "--train_batch_size=4", f"--seq_len={_LENGTH}"),
  *("--reuse_len=8", "--perm_size=4", "--mem_len=4", "--n_layer=2"),
  *("--d_model=8", "--d_embed=8", "--n_head=2", "--d_head=4", "--d_inner=8"),
  *("--save_steps=10", "--iterations=5", "--nobi_data"),
)


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes random words, of which every fourth is masked."""
  del repo
  random = np.random.RandomState(1)
  with tf.io.TFRecordWriter(str(work / "train.tfrecords")) as writer:
    for _ in range(64):
      words = random.randint(10, 1000, _LENGTH + 1).tolist()
      values = {
        "input": words[:-1],
        "target": words[1:],
        "seg_id": [0] * _LENGTH,
        "label": [1],
        "is_masked": [int(i % 4 == 0) for i in range(_LENGTH)],
      }
      features = tf.train.Features()
      for name, value in values.items():
        features.feature[name].int64_list.value.extend(value)
      writer.write(tf.train.Example(features=features).SerializeToString())
  name = f"bsz-4.seqlen-{_LENGTH}.reuse-8.uni.alpha-6.beta-1.json"
  (work / f"record_info-train-0-0.{name}").write_text(
    json.dumps({"filenames": ["train.tfrecords"], "num_batch": 16})
  )


PROGRAM = Program(
  name="xlnet",
  repository="zihangdai/xlnet",
  commit="bbaa3a6fa0b3a2ee694e8cf66167434f9eca9660",
  title="train_gpu.py",
  importable=("sentencepiece",),
  needs={"six": "six"},
  start=((*_COMMAND, "--train_steps=10"),),
  resume=(
    (
      *_COMMAND,
      "--train_steps=20",
      "--init_checkpoint={work}/model/model.ckpt",
    ),
  ),
  checkpoint="{work}/model",
  prepare=prepare,
  prints=r"gnorm \d",
  scale="no loss scale: it trains in float32",
)
