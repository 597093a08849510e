# SPDX-License-Identifier: Apache-2.0
"""DIEN of ai-matrix: recurrent networks of its own, on noise."""

import json
import pathlib
import random

from strangers_table import _switch
from strangers_table import Program

_FOLDER = "macro_benchmark/DIEN/script"


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes users, things they looked at, and whether they bought the next."""
  del repo
  random.seed(1)
  for name, count in (("uid", 50), ("mid", 40), ("cat", 4)):
    words = {f"{name}{i}": i for i in range(count)}
    (work / f"{name}_voc.pkl").write_text(json.dumps(words))
  things = [f"mid{i}\tcat{i % 4}\n" for i in range(40)]
  (work / "item-info").write_text("".join(things))
  reviews = [f"uid{i % 50}\tmid{i % 40}\n" for i in range(200)]
  (work / "reviews-info").write_text("".join(reviews))
  for name, count in (("train", 1616), ("test", 64)):
    lines = []
    for i in range(count):
      seen = random.choices(range(40), k=random.randint(4, 8))
      past = "\x02".join(f"mid{x}" for x in seen[1:])
      kinds = "\x02".join(f"cat{x % 4}" for x in seen[1:])
      row = (i % 2, f"uid{i % 50}", f"mid{seen[0]}", f"cat{seen[0] % 4}")
      lines.append("\t".join(map(str, (*row, past, kinds))) + "\n")
    (work / f"local_{name}_splitByUser").write_text("".join(lines))
  for name in ("dnn_save_path", "dnn_best_model"):
    (work / name).mkdir()


PROGRAM = Program(
  name="dien",
  repository="alibaba/ai-matrix",
  commit="f7e1d7788c03e01eea915ff2bcad10103dcb529e",
  paths=(_FOLDER,),
  title=f"{_FOLDER}/train.py --model=DIEN",
  folder=None,
  path=(_FOLDER,),
  start=((f"{{repo}}/{_FOLDER}/train.py", "--batch_size=16"),),
  checkpoint="{work}/dnn_save_path",
  prepare=prepare,
  environment=_switch.SWITCH["environment"],
  migrate=_switch.SWITCH["migrate"],
  scale="the program begins anew in each run",
  remark=_switch.REMARK,
)
