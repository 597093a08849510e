# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's nvcnn in float16, which scales its loss by a fixed number."""

import pathlib

from strangers_table import Program
from strangers_table import stylegan

_FOLDER = "python/nvcnn_benchmarks"
_START = (
  stylegan.MOVE_CHANNELS
  + """
import functools
import nvcnn

tf.ConfigProto = functools.partial(tf.ConfigProto, allow_soft_placement=True)
nvcnn.main()
"""
)


def _train(steps: int) -> tuple[str, ...]:
  return (
    *("start.py", "--model=lenet", "--batch_size=4", "--fp16"),
    *("--loss_scale=128", f"--num_batches={steps}", "--log_dir={work}/model"),
  )


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes a program that moves channels, and needs no GPU."""
  del work
  (repo / _FOLDER / "start.py").write_text(_START)


PROGRAM = Program(
  name="nvcnn",
  repository="HewlettPackard/dlcookbook-dlbs",
  commit="834350c81154e48af132b7d27874e30a7b80a78c",
  paths=(_FOLDER,),
  title=f"{_FOLDER}/nvcnn.py --fp16",
  folder=_FOLDER,
  start=(_train(10),),
  resume=(_train(20),),
  checkpoint="{work}/model",
  prepare=prepare,
  scale="the loss scale is fixed",
  remark="a program of ours moves channels for a CPU",
)
