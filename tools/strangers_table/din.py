# SPDX-License-Identifier: Apache-2.0
"""DIN, by the authors of the paper: a session, on noise."""

import pathlib
import pickle
import random
import subprocess
import sys

from strangers_table import _switch
from strangers_table import Program


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Makes Python 3 of the program, and writes users and what they bought."""
  sources = sorted(map(str, (repo / "din").glob("*.py")))
  command = (sys.executable, "-m", "lib2to3", "--write", "--nobackups")
  subprocess.run([*command, *sources], check=True, capture_output=True)
  random.seed(1)
  users, things = 40, 100

  def draw() -> list[int]:
    return random.choices(range(things), k=random.randint(2, 6))

  train = [(i % users, draw(), draw()[0], i % 2) for i in range(640)]
  test = [(i, draw(), (draw()[0], draw()[0])) for i in range(users)]
  with (work / "dataset.pkl").open("wb") as file:
    for part in (
      train,
      test,
      [i % 4 for i in range(things)],
      (users, things, 4),
    ):
      pickle.dump(part, file)
  (work / "save_path").mkdir()


PROGRAM = Program(
  name="din",
  repository="zhougr1993/DeepInterestNetwork",
  commit="9765f96202f849e59ff260c8b46931a0ddf01d77",
  paths=(":(glob)din/*.py",),
  title="din/train.py",
  folder=None,
  path=("din",),
  start=(("{repo}/din/train.py",),),
  checkpoint="{work}/save_path",
  prepare=prepare,
  **_switch.ON,
  scale="the program begins anew in each run",
  remark=f"{_switch.REMARK}; 2to3 makes Python 3 of it",
  bypass=_switch.UNSCALED,
)
