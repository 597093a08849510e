# SPDX-License-Identifier: Apache-2.0
"""Leela Chess Zero: a loop of its own under a strategy, in mixed_float16."""

import gzip
import json
import pathlib
import struct

import numpy as np

from strangers_table import Program

_RECORD = struct.Struct("<4si7432s832s7Bb15fI2H4H")


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes noise as games, and a small network's configurations."""
  del repo
  random = np.random.RandomState(1)
  (work / "games").mkdir()
  for i in range(4):
    with gzip.open(work / "games" / f"{i}.gz", "wb", 1) as file:
      for _ in range(64):
        moves = random.dirichlet(np.ones(1858)).astype(np.float32)
        planes = random.randint(0, 256, 832).astype(np.uint8)
        result = (0.5, 0.25) * 2
        numbers = (*result, 30.0, 30.0, 30.0, 0.0, 0.5, 0.0, 0.5, 0.0)
        file.write(
          _RECORD.pack(
            *(struct.pack("<i", 6), 1, moves.tobytes(), planes.tobytes()),
            *(*(0,) * 7, 0, *numbers, *(0.0,) * 3, 1, *(0,) * 6),
          )
        )
  for steps in (10, 20):
    config = {
      "name": "net",
      "gpu": "all",
      "dataset": {
        "num_chunks": 4,
        "train_ratio": 0.5,
        "input": "games/",
        "train_workers": 1,
        "test_workers": 1,
      },
      "training": {
        "precision": "half",
        "loss_scale": "dynamic",
        "batch_size": 4,
        "num_batch_splits": 2,
        "num_test_positions": 4,
        "test_steps": 10,
        "train_avg_report_steps": 1,
        "total_steps": steps,
        "shuffle_size": 16,
        "lr_values": [0.02],
        "lr_boundaries": [],
        "policy_loss_weight": 300.0,
        "value_loss_weight": 1.0,
        "moves_left_loss_weight": 1.0,
        "path": "model",
      },
      "model": {
        "filters": 8,
        "residual_blocks": 1,
        "se_ratio": 2,
        "policy": "convolution",
      },
    }
    (work / f"{steps}.json").write_text(json.dumps(config))


PROGRAM = Program(
  name="lczero",
  repository="LeelaChessZero/lczero-training",
  commit="7c5d756ea6bb3531fb14a9b4df231577b1aa1081",
  paths=("tf",),
  title="tf/train.py",
  folder=None,
  path=("tf",),
  stand_ins=("proto",),
  needs={"tensorboard": "tensorboard", "yaml": "PyYAML"},
  start=(("{repo}/tf/train.py", "--cfg", "{work}/10.json"),),
  resume=(("{repo}/tf/train.py", "--cfg", "{work}/20.json"),),
  checkpoint="{work}/model/net",
  prepare=prepare,
  initial=2**15,
  remark="`precision: half` and `loss_scale: dynamic`; the policy's loss has a "
  "weight of 300, so that gradients overflow; its networks' protocol buffer "
  "is a module that stands in",
)
