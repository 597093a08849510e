# SPDX-License-Identifier: Apache-2.0
"""ALBERT: a TPUEstimator that trains on a CPU."""

import json
import pathlib

from strangers_table import bert
from strangers_table import Program


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Makes the repository a package, and writes BERT's data for it."""
  package = repo / "albert"
  package.mkdir()
  for path in repo.glob("*.py"):
    path.rename(package / path.name)
  bert.prepare(repo, work)
  config = json.loads((work / "config.json").read_text())
  config |= {"embedding_size": 8, "num_hidden_groups": 1, "inner_group_num": 1}
  (work / "config.json").write_text(json.dumps(config))
  for name in ("MRPC", "cache"):
    (work / name).mkdir()
  for path in work.glob("*.tsv"):
    path.rename(work / "MRPC" / path.name)


def _command(steps: int) -> tuple[str, ...]:
  return (
    *("-m", "albert.run_classifier", "--task_name=MRPC", "--data_dir={work}"),
    *("--vocab_file={work}/vocab.txt", "--spm_model_file="),
    "--output_dir={work}/model",
    *("--albert_config_file={work}/config.json", "--cached_dir={work}/cache"),
    *("--max_seq_length=24", "--train_batch_size=4", "--do_train=true"),
    *("--optimizer=lamb", f"--train_step={steps}"),
    "--save_checkpoints_steps=5",
  )


PROGRAM = Program(
  name="albert",
  repository="google-research/albert",
  commit="b772393d3dae115b493258ce8e37c17b2cc62100",
  title="run_classifier.py",
  importable=("sentencepiece", "tensorflow_hub"),
  needs={
    "tensorflow_estimator": "tensorflow-estimator==2.15.*",
    "tf_slim": "tf-slim",
  },
  start=(_command(10),),
  resume=((*_command(20), "--do_eval=true"),),
  checkpoint="{work}/model",
  prepare=prepare,
  remark="only one run of a folder may evaluate",
  scale="no loss scale: it trains in float32",
)
