# SPDX-License-Identifier: Apache-2.0
"""TFLearn: layers and a trainer of its own, on noise in MNIST's format."""

import gzip
import pathlib

import numpy as np

from strangers_table import _switch
from strangers_table import Program

_NAMES = ("images-idx3", "labels-idx1")


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes MNIST's four files, with noise."""
  del repo
  random = np.random.RandomState(1)
  (work / "mnist").mkdir()
  for part, count in (("train", 5256), ("t10k", 64)):
    images = random.randint(0, 256, [count, 28, 28]).astype(np.uint8)
    labels = random.randint(0, 10, [count]).astype(np.uint8)
    for name, magic, values in zip(_NAMES, (2051, 2049), (images, labels)):
      header = np.array([magic, *values.shape], ">i4").tobytes()
      path = work / "mnist" / f"{part}-{name}-ubyte.gz"
      path.write_bytes(gzip.compress(header + values.tobytes(), 1))


PROGRAM = Program(
  name="tflearn",
  repository="tflearn/tflearn",
  commit="db5176773299b67a2a75c5889fb2aba7fd0fea8a",
  paths=("tflearn", "examples"),
  title="examples/basics/weights_persistence.py",
  folder=None,
  path=(".",),
  needs={"PIL.Image:ANTIALIAS": "pillow<10", "six": "six"},
  start=(("{repo}/examples/basics/weights_persistence.py",),),
  checkpoint="{work}/model.tfl",
  prepare=prepare,
  **_switch.ON,
  scale="the program loads what it saved, and begins anew in each run",
  remark=f"{_switch.REMARK}; noise in place of MNIST",
  bypass=_switch.UNSCALED,
)
