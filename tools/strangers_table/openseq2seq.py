# SPDX-License-Identifier: Apache-2.0
"""OpenSeq2Seq: a Transformer in mixed precision, with the program's scaler."""

import pathlib
import random

from strangers_table import Program

_CONFIG = "example_configs/text2text/toy-reversal/nmt-reversal-TT.py"


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes sequences and reversals, and the project's own configuration.

  The configuration gets mixed precision.
  """
  random.seed(1)
  for part in ("train", "dev", "test"):
    folder = work / "toy_text_data" / part
    folder.mkdir(parents=True)
    rows = [random.choices("abcdef", k=random.randint(5, 9)) for _ in range(64)]
    for name, step in (("source", 1), ("target", -1)):
      lines = [" ".join(row[::step]) for row in rows]
      (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
  folder = work / "toy_text_data" / "vocab"
  folder.mkdir()
  for name in ("source", "target"):
    (folder / f"{name}.txt").write_text("".join(f"{c}\t9\n" for c in "abcdef"))

  config = (repo / _CONFIG).read_text()
  mixed = '"dtype": "mixed", "loss_scaling": "Backoff", '
  mixed += '"loss_scaling_params": {"step_window": 3, "scale_max": 2.0**24}'
  (work / "config.py").write_text(config.replace('"dtype": tf.float32', mixed))


def _command(steps: int) -> tuple[str, ...]:
  return (
    *("{repo}/run.py", "--config_file={work}/config.py", "--mode=train"),
    *(f"--max_steps={steps}", "--save_checkpoint_steps=10"),
    *("--print_loss_steps=5", "--batch_size_per_gpu=4", "--num_gpus=1"),
    *("--use_horovod=False", "--logdir={work}/model"),
  )


PROGRAM = Program(
  name="openseq2seq",
  repository="NVIDIA/OpenSeq2Seq",
  commit="946bae94706c205182a7d547d291dcea495986a0",
  title="run.py",
  folder=None,
  importable=(
    *("librosa", "resampy", "sentencepiece", "python_speech_features"),
    *("nltk", "mpi4py"),
  ),
  needs={"six": "six", "pandas": "pandas", "scipy": "scipy"},
  start=(_command(10),),
  resume=((*_command(20), "--continue_learning"),),
  checkpoint="{work}/model",
  scale="the program's own, by names that inspect does not know",
  prepare=prepare,
  remark="a Transformer with dtype mixed and loss scaling Backoff",
)
