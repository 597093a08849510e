# SPDX-License-Identifier: Apache-2.0
"""THUMT: translation in float16 with a loss scale of the program's own."""

import pathlib
import random

from strangers_table import Program


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes two vocabularies and a parallel corpus."""
  del repo
  random.seed(1)
  words = [f"w{i}" for i in range(30)]
  for side in ("source", "target"):
    vocabulary = ["<pad>", "<eos>", "<unk>", *words]
    (work / f"{side}.vocab").write_text("\n".join(vocabulary) + "\n")
    lines = [
      " ".join(random.choices(words, k=random.randint(3, 8)))
      for _ in range(200)
    ]
    (work / f"{side}.txt").write_text("\n".join(lines) + "\n")


def _command(steps: int) -> tuple[str, ...]:
  parameters = (
    *("hidden_size=16", "filter_size=32", "num_heads=2"),
    *("num_encoder_layers=1", "num_decoder_layers=1", "batch_size=64"),
    *(f"loss_scale={2**20}", "save_checkpoint_steps=5", "eval_steps=100000"),
    *(f"train_steps={steps}", "device_list=[0]", "buffer_size=100"),
  )
  return (
    *("thumt/bin/trainer.py", "--model", "transformer", "--half"),
    *("--input", "{work}/source.txt", "{work}/target.txt"),
    *("--vocabulary", "{work}/source.vocab", "{work}/target.vocab"),
    *("--output", "{work}/model", "--parameters", ",".join(parameters)),
  )


PROGRAM = Program(
  name="thumt",
  repository="THUNLP-MT/THUMT",
  commit="3829c602f4b2b989aba0f12875532147a29e56d4",
  title="thumt/bin/trainer.py --half",
  start=(_command(10),),
  resume=(_command(20),),
  checkpoint="{work}/model",
  scale="the program's own, by names that inspect does not know",
  prepare=prepare,
  needs={"six": "six"},
  remark="the scale starts at 2**20",
)
