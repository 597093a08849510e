# SPDX-License-Identifier: Apache-2.0
"""OpenNMT-tf: a Transformer in float16, with the program's scaler."""

import json
import pathlib
import random

from strangers_table import Program

_MODEL = """
import opennmt
import tensorflow as tf

def model():
  words = [opennmt.inputters.WordEmbedder(
      vocabulary_file_key=side + '_words_vocabulary', embedding_size=16,
      dtype=tf.float16) for side in ('source', 'target')]
  return opennmt.models.Transformer(
      *words, num_layers=1, num_units=16, num_heads=2, ffn_inner_dim=32,
      dropout=0.1, attention_dropout=0.1, relu_dropout=0.1)
"""


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes a parallel corpus, a small model and configurations."""
  del repo
  random.seed(1)
  words = [f"w{i}" for i in range(20)]
  text = "\n".join(["<blank>", "<s>", "</s>", *words]) + "\n"
  (work / "vocab.txt").write_text(text)
  for name in ("source", "target"):
    lines = [" ".join(random.choices(words, k=5)) for _ in range(60)]
    (work / f"{name}.txt").write_text("\n".join(lines) + "\n")
  (work / "small.py").write_text(_MODEL)
  for steps in (10, 20):
    config = {
      "model_dir": "model",
      "data": {
        "train_features_file": str(work / "source.txt"),
        "train_labels_file": str(work / "target.txt"),
        "source_words_vocabulary": str(work / "vocab.txt"),
        "target_words_vocabulary": str(work / "vocab.txt"),
      },
      "params": {
        "optimizer": "AdamOptimizer",
        "learning_rate": 0.001,
        "loss_scale": "backoff",
        "loss_scale_params": {"scale_max": 2.0**24, "step_window": 4},
      },
      "train": {
        "batch_size": 4,
        "batch_type": "examples",
        "save_checkpoints_steps": 5,
        "train_steps": steps,
        "sample_buffer_size": 60,
      },
    }
    (work / f"{steps}.json").write_text(json.dumps(config))


_COMMAND = (
  *("-m", "opennmt.bin.main", "train", "--model", "{work}/small.py"),
  "--config",
)

PROGRAM = Program(
  name="opennmt",
  repository="OpenNMT/OpenNMT-tf",
  commit="d2071c759a383d6d60b1e5a39d36db0a36c7ceef",
  folder=None,
  path=(".",),
  paths=("opennmt",),
  title="opennmt.bin.main train",
  needs={"six": "six", "tensorboard": "tensorboard", "yaml": "PyYAML"},
  start=((*_COMMAND, "{work}/10.json"),),
  resume=((*_COMMAND, "{work}/20.json"),),
  checkpoint="{work}/model",
  scale="the program's own, by names that inspect does not know",
  prepare=prepare,
  remark="version 1.25.3; a Transformer in float16 with the loss scale backoff",
)
