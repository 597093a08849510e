# SPDX-License-Identifier: Apache-2.0
"""sequence_tagging: LSTMs and `tf.contrib.crf`, on the project's sample."""

import pathlib
import shutil

import numpy as np

from strangers_table import Program


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes random vectors for the words of the sample."""
  shutil.copytree(repo / "data", work / "data")
  lines = (repo / "data" / "test.txt").read_text("utf-8").splitlines()
  words = sorted({line.split()[0].lower() for line in lines if line.strip()})
  random = np.random.RandomState(1)
  folder = work / "data" / "glove.6B"
  folder.mkdir()
  with open(folder / "glove.6B.300d.txt", "w", encoding="utf-8") as file:
    for word in words:
      file.write(f"{word} {' '.join(map('{:.3f}'.format, random.rand(300)))}\n")


PROGRAM = Program(
  name="sequence-tagging",
  repository="guillaumegenthial/sequence_tagging",
  commit="5cb9890e7c52e35a1239378da43a8de7be508003",
  title="train.py",
  folder=None,
  path=(".",),
  start=(("{repo}/build_data.py",), ("{repo}/train.py",)),
  resume=(("{repo}/train.py",),),
  checkpoint=None,
  prepare=prepare,
  prints=r"acc \d",
  scale="no loss scale: it trains in float32",
)
