# SPDX-License-Identifier: Apache-2.0
"""BERT: an Estimator with an optimizer of the program's own."""

import json
import pathlib
import random

from strangers_table import LOSS
from strangers_table import Program

WORDS = [f"word{i}" for i in range(40)]


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes a vocabulary, a tiny configuration and pairs of sentences."""
  del repo
  random.seed(1)
  special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
  (work / "vocab.txt").write_text("\n".join([*special, *WORDS]) + "\n")
  config = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 16,
    "initializer_range": 0.02,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "type_vocab_size": 2,
    "vocab_size": len(WORDS) + len(special),
  }
  (work / "config.json").write_text(json.dumps(config))
  for name in ("train", "dev"):
    lines = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
    for i in range(40):
      sentences = [" ".join(random.choices(WORDS, k=6)) for _ in range(2)]
      lines.append("\t".join([str(i % 2), str(i), str(i), *sentences]))
    (work / f"{name}.tsv").write_text("\n".join(lines) + "\n")


_FLAGS = (
  *("run_classifier.py", "--task_name=MRPC", "--data_dir={work}"),
  *("--vocab_file={work}/vocab.txt", "--bert_config_file={work}/config.json"),
  *("--output_dir={work}/model", "--max_seq_length=24"),
  *("--train_batch_size=4", "--do_train=true"),
)

PROGRAM = Program(
  name="bert",
  repository="google-research/bert",
  commit="ad7601f440c489359d3d345da43a6e262392e5d5",
  title="run_classifier.py",
  start=((*_FLAGS, "--num_train_epochs=1"),),
  resume=((*_FLAGS, "--num_train_epochs=2", "--do_eval=true"),),
  checkpoint="{work}/model",
  loss=LOSS,
  prepare=prepare,
  environment={"TF_ENABLE_AUTO_MIXED_PRECISION": "1"},
  migrate=("--nvidia-switch",),
  scale="no loss scale moves: the program calls `tf.gradients` itself, and its "
  "optimizer has an `apply_gradients` of its own",
  remark="`TF_ENABLE_AUTO_MIXED_PRECISION=1`",
)
