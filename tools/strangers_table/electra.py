# SPDX-License-Identifier: Apache-2.0
"""ELECTRA's pretraining: `tensorflow.compat.v1` and a TPUEstimator."""

import json
import pathlib

import numpy as np
import tensorflow as tf

from strangers_table import Program

_LENGTH, _WORDS = 16, 60


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes noise as sentences, and a vocabulary."""
  del repo
  special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
  words = [f"word{i}" for i in range(_WORDS - len(special))]
  (work / "vocab.txt").write_text("\n".join([*special, *words]) + "\n")
  random = np.random.RandomState(1)
  (work / "pretrain_tfrecords").mkdir()
  path = str(work / "pretrain_tfrecords" / "pretrain_data.tfrecord-0")
  with tf.io.TFRecordWriter(path) as writer:
    for _ in range(64):
      values = {
        "input_ids": [2, *random.randint(5, _WORDS, _LENGTH - 2), 3],
        "input_mask": [1] * _LENGTH,
        "segment_ids": [0] * _LENGTH,
      }
      features = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=value))
        for name, value in values.items()
      }
      example = tf.train.Example(features=tf.train.Features(feature=features))
      writer.write(example.SerializeToString())


def _command(steps: int) -> tuple[str, ...]:
  hparams = {
    "embedding_size": 16,
    "generator_hidden_size": 0.5,
    "iterations_per_loop": 5,
    "max_seq_length": _LENGTH,
    "model_hparam_overrides": {
      "hidden_size": 16,
      "intermediate_size": 32,
      "num_attention_heads": 2,
      "num_hidden_layers": 2,
    },
    "num_train_steps": steps,
    "num_warmup_steps": 2,
    "train_batch_size": 4,
    "vocab_size": _WORDS,
  }
  return (
    *("run_pretraining.py", "--data-dir={work}", "--model-name=tiny"),
    *("--hparams", json.dumps(hparams)),
  )


PROGRAM = Program(
  name="electra",
  repository="google-research/electra",
  commit="8a46635f32083ada044d7e9ad09604742600ee7b",
  title="run_pretraining.py",
  needs={"tensorflow_estimator": "tensorflow-estimator==2.15.*"},
  start=(_command(10),),
  resume=(_command(20),),
  checkpoint="{work}/models/tiny",
  prepare=prepare,
  scale="no loss scale: it trains in float32",
)
