# SPDX-License-Identifier: Apache-2.0
"""MLPerf's copies of the official ResNet and Transformer of TensorFlow 1."""

import pathlib

import numpy as np
import tensorflow as tf

from strangers_table import _switch
from strangers_table import Program

_RESNET = "image_classification/tensorflow"
_TRANSFORMER = "translation/tensorflow/transformer"
# The program has two sizes of its model, in its source.
_START = """
import runpy, sys
from model import model_params

for name, value in dict(
    batch_size=64, max_length=16, vocab_size=200, hidden_size=16,
    num_hidden_layers=1, num_heads=2, filter_size=32,
    learning_rate_warmup_steps=10).items():
  setattr(model_params.TransformerBaseParams, name, value)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def _write_sentences(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes a program that sets sizes, and random sentences."""
  (repo / _TRANSFORMER / "start.py").write_text(_START)
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


def _train_transformer(steps: int) -> tuple[str, ...]:
  return (
    *("start.py", "transformer_main.py", "--data_dir={work}", "--params=base"),
    *("--model_dir={work}/model", f"--train_steps={steps}"),
    *(f"--steps_between_eval={steps}", "--random_seed=1"),
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
    start=(_train_transformer(10),),
    remark=f"the official Transformer, {_switch.REMARK}",
  ),
)
