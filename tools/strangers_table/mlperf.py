# SPDX-License-Identifier: Apache-2.0
"""MLPerf's copies of the official ResNet and Transformer of TensorFlow 1."""

import pathlib
import re

import numpy as np
import tensorflow as tf

from strangers_table import _switch
from strangers_table import Program

_RESNET = "image_classification/tensorflow"
_TRANSFORMER = "translation/tensorflow/transformer"
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


def _write_sentences(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Makes the base model tiny, and writes random sentences.

  The program is for TensorFlow 1.9: 1.15 takes lists by the name `values`.
  """
  path = repo / _TRANSFORMER / "model" / "model_params.py"
  base, big, rest = path.read_text().partition("class TransformerBigParams")
  for name, value in _SIZES.items():
    base = re.sub(rf"^  {name} = \S+", f"  {name} = {value}", base, flags=re.M)
  path.write_text(base + big + rest)
  path = repo / _TRANSFORMER / "utils" / "metrics.py"
  scope = re.compile(r'name_scope\(("\w+"), \[')
  path.write_text(scope.sub(r"name_scope(\1, values=[", path.read_text()))
  random = np.random.RandomState(1)
  for part in ("train", "dev"):
    path = str(work / f"noise-encoded-{part}-00000")
    with tf.io.TFRecordWriter(path) as writer:
      for _ in range(100):
        features = tf.train.Features()
        for name in ("inputs", "targets"):
          words = [*random.randint(2, 200, [7]).tolist(), 1]
          features.feature[name].int64_list.value.extend(words)
        writer.write(tf.train.Example(features=features).SerializeToString())


def _make(kind: str, **values: object) -> Program:
  return Program(
    name=f"mlperf-{kind}",
    repository="mlcommons/training",
    commit="0badcd1786fcb007725ed05f1c44e9d80bbeac52",
    needs={"mlperf_compliance": "mlperf_compliance", "six": "six"},
    checkpoint="{work}/model",
    **{**_switch.SWITCH, **values},
  )


def _train_resnet(steps: int) -> tuple[str, ...]:
  return (
    *("official/resnet/imagenet_main.py", "1", "--use_synthetic_data"),
    *("--model_dir={work}/model", "--resnet_size=18", "--version=1"),
    *("--batch_size=2", f"--max_train_steps={steps}", "--num_gpus=0"),
    *("--data_format=channels_last", "--data_dir={work}"),
    "--train_epochs=1",
  )


PROGRAMS = (
  _make(
    "resnet",
    paths=(_RESNET,),
    title=f"{_RESNET}/official/resnet/imagenet_main.py",
    folder=_RESNET,
    start=(_train_resnet(3),),
    resume=(_train_resnet(6),),
    settings=dict.fromkeys(_switch.NEARLY_FULL, 1998),
    remark=f"the official ResNet, {_switch.REMARK}",
  ),
  _make(
    "transformer",
    paths=(_TRANSFORMER,),
    title=f"{_TRANSFORMER}/transformer_main.py",
    folder=_TRANSFORMER,
    prepare=_write_sentences,
    start=(
      (
        *("transformer_main.py", "--data_dir={work}", "--params=base"),
        *("--model_dir={work}/model", "--train_epochs=1", "--random_seed=1"),
      ),
    ),
    remark=f"the official Transformer, {_switch.REMARK}; it is for TensorFlow "
    "1.9: two arguments are given by name, as 1.15 asks",
  ),
)
