# SPDX-License-Identifier: Apache-2.0
"""MLPerf's copy of the official Transformer of TensorFlow 1, on noise."""

import importlib
import pathlib
import re
import shutil

import numpy as np
import tensorflow as tf

from strangers_table import _switch
from strangers_table import Program

_FOLDER = "translation/tensorflow/transformer"
# The program has the sizes of its model in its source.
_SIZES = {
  "batch_size": 64,
  "filter_size": 32,
  "hidden_size": 16,
  "learning_rate_warmup_steps": 10,
  "max_length": 16,
  "num_heads": 2,
  "num_hidden_layers": 1,
  "vocab_size": 200,
}


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Makes the base model tiny, and writes random sentences.

  The program is for TensorFlow 1.9: 1.15 takes lists by the name `values`. Its
  package of logs is for TensorFlow 1, too, and is migrated with it.
  """
  name = "mlperf_compliance"
  logs = pathlib.Path(importlib.import_module(name).__file__ or "").parent
  shutil.copytree(logs, repo / _FOLDER / name)
  path = repo / _FOLDER / "model" / "model_params.py"
  base, big, rest = path.read_text().partition("class TransformerBigParams")
  for name, value in _SIZES.items():
    base = re.sub(rf"^  {name} = \S+", f"  {name} = {value}", base, flags=re.M)
  path.write_text(base + big + rest)
  path = repo / _FOLDER / "utils" / "metrics.py"
  scope = re.compile(r'name_scope\(("\w+"), \[')
  path.write_text(scope.sub(r"name_scope(\1, values=[", path.read_text()))
  random = np.random.RandomState(1)
  for part in ("train", "dev"):
    name = f"noise-encoded-{part}-00000"
    with tf.io.TFRecordWriter(str(work / name)) as writer:
      for _ in range(100):
        features = tf.train.Features()
        for name in ("inputs", "targets"):
          words = [*random.randint(2, 200, [7]).tolist(), 1]
          features.feature[name].int64_list.value.extend(words)
        writer.write(tf.train.Example(features=features).SerializeToString())


PROGRAM = Program(
  name="mlperf-transformer",
  repository="mlcommons/training",
  commit="0badcd1786fcb007725ed05f1c44e9d80bbeac52",
  paths=(_FOLDER,),
  title=f"{_FOLDER}/transformer_main.py",
  folder=_FOLDER,
  needs={"mlperf_compliance": "mlperf_compliance", "six": "six"},
  prepare=prepare,
  start=(
    (
      *("transformer_main.py", "--data_dir={work}", "--params=base"),
      *("--model_dir={work}/model", "--train_epochs=1", "--random_seed=1"),
    ),
  ),
  checkpoint="{work}/model",
  **_switch.SWITCH,
  remark=f"the official Transformer, {_switch.REMARK}; it is for TensorFlow "
  "1.9: two arguments are given by name, as 1.15 asks; its package of logs is "
  "migrated with it",
)
