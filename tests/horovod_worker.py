# SPDX-License-Identifier: Apache-2.0
"""The program of a rank: horovodrun -np 2 python horovod_worker.py TASK FOLDER.

Each rank writes what it found to FOLDER/RANK.npz, by the names of the cases.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import horovod.tensorflow as hvd
import horovod_programs as programs
import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1


def make_optimizer(case: programs.Case, **more: Any) -> Any:
  """Returns an optimizer of Horovod with a loss scale, in a case's order."""
  inner = programs.INNER[case.inner]()
  # Before the broadcast, each rank has a loss scale of its own.
  scale = 2.0 ** (10 + hvd.rank())
  if case.order == "inside":
    return hvd.DistributedOptimizer(programs.wrap(inner, case, scale), **more)
  return programs.wrap(hvd.DistributedOptimizer(inner, **more), case, scale)


def broadcast(program: programs.Program) -> None:
  """Gives all ranks the variables of rank 0, the loss scale included."""
  if program.graph is None:
    hvd.broadcast_variables(program.list_variables(), root_rank=0)
    return
  hook = hvd.BroadcastGlobalVariablesHook(0)
  hook.begin()
  hook.after_create_session(program.session, None)


def train(case: programs.Case, **more: Any) -> np.ndarray:
  """Returns the state of this rank after each step of a case."""
  program = programs.Program(
    case, lambda: make_optimizer(case, **more), initial=1.0 + hvd.rank()
  )
  program.start()
  broadcast(program)
  states = []
  for step in range(case.steps):
    program.step(programs.make_feeds(case.seed, step, hvd.rank()))
    states.append(program.state())
  program.close()
  return np.stack(states)


def run_cases(folder: pathlib.Path) -> dict[str, Any]:
  """Runs the cases that the folder's cases.json lists."""
  cases = json.loads((folder / "cases.json").read_text("utf-8"))
  return {
    case.name: train(case) for case in (programs.Case(**x) for x in cases)
  }


def main() -> None:
  """Runs a task and writes its results."""
  task, folder = sys.argv[1], pathlib.Path(sys.argv[2])
  hvd.init()
  (folder / f"{hvd.rank()}.pid").write_text(str(os.getpid()), "utf-8")
  results = globals()[task](folder)
  np.savez(folder / f"{hvd.rank()}.npz", **results)
  hvd.shutdown()


if __name__ == "__main__":
  main()
